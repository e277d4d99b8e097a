# SPDX-License-Identifier: Apache-2.0
"""A picture for each figure: SVG text of the rows that there are, by file name."""
from dataclasses import replace

from late import too_many
from reasons import RESIDENT, TRANSFERS, broken_down, stage_means
from results import STAGES, distribution_of
from svg_shapes import bars, curves, percent_text, time_text

# Colour-blind safe (Okabe and Ito), as in bench/kernels/stage_plot.py.
STAGE_COLOURS = dict(zip(STAGES, ("#56b4e9", "#cc79a7", "#d55e00", "#e69f00", "#009e73", "#0072b2")))
REST = ("rest", "#c8c8c8")
WITHOUT_HOST = (RESIDENT, "#8a8a8a")


def rate_text(gigabits):
    return f"{gigabits:.3g} Gb/s"


def form(cell):
    return "raw" if cell.raw else "preprocessed"


def count(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def label(cell, *, model=False, clients=False, kind=False):
    parts = [cell.model] * model + [cell.transport] + [form(cell)] * kind + [count(cell.clients, "client")] * clients
    return ", ".join(parts)


def end_text(row):
    """After a bar."""
    return time_text(row["total_mean"]) + (", late" if too_many(row) else "")


def stage_parts(row, scale=1.0):
    """Of a GPU-resident service only the transfers are known: it computes without the host, which marks stages."""
    whole = broken_down(row)
    parts = [(stage, STAGE_COLOURS[stage], value * scale) for stage, value in stage_means(row).items()
             if whole or stage in TRANSFERS]
    rest = (*(REST if whole else WITHOUT_HOST), max(0.0, row["total_mean"] * scale - sum(part[2] for part in parts)))
    return parts + [rest] if whole else [*parts[:1], rest, *parts[1:]]


def totals(figure, rows):
    return bars(figure.title, "mean of the total time", [
        (label(row.cell, kind=True), [("total", "#0072b2", row["total_mean"])], end_text(row))
        for row in rows])


def spread(figure, rows):
    return bars(figure.title, "mean of the total time; at the bars also the coefficient of variation", [
        (label(row.cell) + (", late" if too_many(row) else ""), [("total", "#0072b2", row["total_mean"])],
         f"{time_text(row['total_mean'])}, CoV {row['total_cov'] or 0:.2f}") for row in rows])


def stages(figure, rows):
    several = len({row.cell.model for row in rows}) > 1
    return bars(figure.title, "mean of each stage", [
        (label(row.cell, kind=True, model=several), stage_parts(row), end_text(row)) for row in rows])


def mediation(figure, rows):
    """The stages of handlers on the CPU, and of services that do without it."""
    several = len({row.cell.model for row in rows}) > 1
    who = {True: "by the CPU", False: "GPU-resident"}
    ordered = sorted(rows, key=lambda row: (figure.models.index(row["model"]), not broken_down(row)))
    return bars(figure.title, "mean of each stage; networking by the CPU, or by the GPU itself", [
        (f"{label(row.cell, model=several)}, {who[broken_down(row)]}", stage_parts(row), end_text(row))
        for row in ordered])


def shares(figure, rows):
    several = len(figure.models) > 1
    return bars(figure.title, "each stage's part of the mean total time", [
        (label(row.cell, model=several, kind=several, clients=len(figure.clients) > 1),
         stage_parts(row, 100 / row["total_mean"]), end_text(row)) for row in rows if row["total_mean"]],
                percent_text)


def overhead(figure, rows):
    local = {(row["model"], row["raw"]): row["total_mean"] for row in rows if row["transport"] == "local"}
    bars_of = []
    for row in rows:
        base = local.get((row["model"], row["raw"]))
        if row["transport"] == "local" or not base:
            continue
        more = 100 * (row["total_mean"] / base - 1)
        bars_of.append((label(row.cell, model=True, kind=True), [("overhead", "#0072b2", max(0.0, more))],
                        percent_text(more)))
    return bars(figure.title, "mean total time above that of local", bars_of, percent_text)


def cpu(figure, rows):
    colours = (("server_user", "server, user", "#0072b2"), ("server_kernel", "server, OS", "#56b4e9"),
               ("client_user", "client, user", "#e69f00"), ("client_kernel", "client, OS", "#d55e00"),
               ("server_device", "emulated adapter", "#c8c8c8"))
    return bars(figure.title, "CPU time of a request; at the bars: without the emulated adapter", [
        (label(row.cell, model=True, kind=True), [(name, colour, row[key] or 0.0) for key, name, colour in colours],
         time_text(sum(row[key] or 0.0 for key, _, _ in colours[:4]))) for row in rows])


def by_clients(figure, rows, name_of, column="total_mean"):
    lines = {}
    for row in rows:
        if row[column] is not None:
            lines.setdefault(name_of(row), []).append((row.cell.clients, row[column]))
    return curves(figure.title, "mean of the total time",
                  {name: sorted(points) for name, points in lines.items()}, "clients")


def clients(figure, rows):
    several = len({row["model"] for row in rows}) > 1
    return by_clients(figure, rows, lambda row: label(row.cell, model=several))


def streams(figure, rows):
    return by_clients(figure, rows, lambda row: f"{row['transport']}, {count(row.cell.streams, 'stream')}")


def sharing(figure, rows):
    return by_clients(figure, rows, lambda row: f"{row['transport']}, {row['sharing']}")


def priority(figure, rows):
    lines = {}
    for row in rows:
        for name, column in (("high", "high_mean"), ("normal", "normal_mean")):
            if row[column] is not None:
                lines.setdefault(f"{row['transport']}, {name}", []).append((row.cell.clients, row[column]))
    return curves(figure.title, "mean of the total time of either class",
                  {name: sorted(points) for name, points in lines.items()}, "clients")


def bandwidth(figure, rows):
    """The bytes of a request and an answer over the time of an inference."""
    sizes = {"mobilenet_v3": 606_112, "resnet50": 606_112, "efficientnet_b0": 606_112, "wide_resnet101": 606_112,
             "yolo_v4": 2_076_672 + 3_619_980, "deeplab_v3": 3_244_800 + 45_427_200, "digits": 296}
    made = []
    for row in rows:
        if row["inference_mean"] and row["model"] in sizes:
            rate = sizes[row["model"]] * 8 / row["inference_mean"] / 1000
            made.append((row["model"], [("in and out", "#0072b2", rate)], rate_text(rate)))
    return bars(figure.title, "bits of a request and its answer over the time of an inference", made, rate_text)


def distribution(figure, rows):
    lines = {count(row.cell.clients, "client"): [
        (value / 1000, percent) for percent, value in distribution_of(row["inference_distribution"])] for row in rows}
    return curves(figure.title, "share of the inferences that take at most this long", lines, "ms", percent_text)


def by_model(draw):
    """A picture for each model, where there are several."""
    def several(figure, rows):
        models = sorted({row["model"] for row in rows})
        title = figure.title + (": {}" if len(models) > 1 else "")
        return [(model, draw(replace(figure, title=title.format(model)),
                             [row for row in rows if row["model"] == model])) for model in models]
    return several


SEVERAL = {"clients": by_model(clients)}
SINGLE = {"totals": totals, "spread": spread, "stages": stages, "overhead": overhead, "shares": shares, "cpu": cpu,
          "streams": streams, "priority": priority, "sharing": sharing, "bandwidth": bandwidth,
          "distribution": distribution, "mediation": mediation}


def draw(figure, rows):
    """[(file name, SVG)]"""
    rows = [row for row in rows if row["total_mean"]]
    if not rows:
        return []
    if figure.shows in SEVERAL:
        return [(f"{figure.id}-{name}.svg", picture) for name, picture in SEVERAL[figure.shows](figure, rows)]
    return [(f"{figure.id}.svg", SINGLE[figure.shows](figure, rows))]


def links(title, rows):
    """`rows`: [(link, row)], in the order of the bars."""
    return bars(title, "mean of each stage", [
        (f"{row.cell.transport}, {form(row.cell)}, {link.split(',')[0]}", stage_parts(row),
         end_text(row)) for link, row in rows])
