# SPDX-License-Identifier: Apache-2.0
"""A picture for each figure: SVG text of the cells that there are, by file name. Each says what it shows, of which
models and clients, with 95 % intervals."""
import itertools
from dataclasses import replace

from late import too_many
from reasons import CPU_PARTS, RESIDENT, TRANSFERS, broken_down, difference, percent, stage_means
from results import STAGES, distribution_of
from rounds import estimate, estimate_of
from svg_shapes import bars, curves, panels, percent_text, time_text

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


def label(row, rows, first=()):
    """`first`, and what it has of its own among these rows."""
    cell, varies = row.cell, lambda column: len({each[column] for each in rows}) > 1
    return ", ".join([*first] + [form(cell)] * varies("raw") + [count(cell.clients, "client")] * varies("clients"))


def subtitle(what, rows):
    models, clients = {row["model"] for row in rows}, sorted({row.cell.clients for row in rows})
    rounds = sorted({len(row.rows) for row in rows})
    said = [what, *models] if len(models) == 1 else [what, f"{len(models)} models"]
    between = " and " if len(clients) == 2 else " to "
    said.append(count(clients[0], "client") if len(clients) == 1 else f"{clients[0]}{between}{clients[-1]} clients")
    if rounds[-1] > 1:
        said.append(f"95 % intervals of {'–'.join(dict.fromkeys((str(rounds[0]), str(rounds[-1]))))} rounds")
    else:
        said.append("one round")
    return "; ".join(said)


def ends(found):
    """Of an estimate, where it has any."""
    return (found.low, found.high) if found and found.rounds > 1 else None


def total_ends(row):
    return ends(estimate_of(row, "total_mean"))


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


def grouped(figure, what, rows, bar, unit=time_text):
    """Bars of one model, or a panel for each model, form and number of clients. `bar`: of a row, all but the name."""
    models, forms, clients_of = (list(dict.fromkeys(row[name] for row in rows)) for name in ("model", "raw", "clients"))
    if len(models) == 1:
        return bars(figure.title, subtitle(what, rows),
                    [(label(row, rows, [row["transport"]]), *bar(row)) for row in rows], unit)
    groups = []
    for wanted in itertools.product(models, forms, clients_of):
        members = [row for row in rows if (row["model"], row["raw"], row["clients"]) == wanted]
        name = label(members[0], rows, wanted[:1]) if members else ""
        groups.append((name, [(row["transport"], *bar(row)) for row in members]))
    return panels(figure.title, subtitle(f"{what}; panels have their own scales", rows), groups, unit)


def totals(figure, rows):
    return grouped(figure, "mean total time", rows, lambda row: (
        [("total", "#0072b2", row["total_mean"])], end_text(row), total_ends(row)))


def spread(figure, rows):
    return grouped(figure, "mean total time, and its coefficient of variation", rows, lambda row: (
        [("total", "#0072b2", row["total_mean"])], f"{end_text(row)}, CoV {row['total_cov'] or 0:.2f}",
        total_ends(row)))


def stages(figure, rows):
    return grouped(figure, "mean of each stage", rows,
                   lambda row: (stage_parts(row), end_text(row), total_ends(row)))


def pipelines(figure, rows):
    return bars(figure.title, subtitle("mean of each stage", rows), [
        (f"{row['transport']}, {row.cell.stages_text}", stage_parts(row), end_text(row), total_ends(row))
        for row in rows])


def mediation(figure, rows):
    """The stages of handlers on the CPU, and of services that do without it."""
    who = {True: "by the CPU", False: "GPU-resident"}
    ordered = sorted(rows, key=lambda row: (figure.models.index(row["model"]), not broken_down(row)))
    return bars(figure.title, subtitle("mean of each stage; networking by the CPU, or by the GPU", rows), [
        (", ".join((row["model"], row["transport"], who[broken_down(row)])), stage_parts(row), end_text(row),
         total_ends(row)) for row in ordered])


def shares(figure, rows):
    return grouped(figure, "each stage's part of the mean total time", rows, lambda row: (
        stage_parts(row, 100 / row["total_mean"]), total_text(row)), percent_text)


def total_text(row):
    """The mean, and half of its interval in percent of it."""
    low, high = total_ends(row) or (0.0, 0.0)
    half = f" ± {50 * (high - low) / row['total_mean']:.1f} %" if high > low else ""
    return end_text(row) + half


def overhead(figure, rows):
    local = {(row["model"], row["raw"]): row for row in rows if row["transport"] == "local"}

    def more(row):
        base = local.get((row["model"], row["raw"]))
        return base and estimate(lambda pair: difference(*(each["total_mean"] for each in pair)), [row, base])

    def bar(row):
        found = more(row)
        return [("overhead", "#0072b2", max(0.0, found.value))], percent(found.value), \
            tuple(max(0.0, end) for end in ends(found) or ())
    known = [row for row in rows if row["transport"] != "local" and more(row)]
    return grouped(figure, "mean total time above that of local", known, bar, percent_text) if known else ""


def cpu(figure, rows):
    colours = ("#0072b2", "#56b4e9", "#e69f00", "#d55e00")
    parts = [(*part, colour) for part, colour in zip(CPU_PARTS.items(), colours)]
    parts.append(("server_device", "emulated adapter (not in the sums)", "#c8c8c8"))
    spent = lambda own: sum(own[0][key] or 0.0 for key in CPU_PARTS)
    return grouped(figure, "CPU time of a request", rows, lambda row: (
        [(name, colour, row[key] or 0.0) for key, name, colour in parts], time_text(spent([row])),
        ends(estimate(spent, [row]))))


def by_clients(figure, rows, names, what="mean total time"):
    """`names`: of a row, {the name of its curve: the column of its point}."""
    lines = {}
    for row in rows:
        for name, column in names(row).items():
            if row[column] is not None:
                lines.setdefault(name, []).append(
                    (row.cell.clients, row[column], *(ends(estimate_of(row, column)) or ())))
    return curves(figure.title, subtitle(what, rows), {name: sorted(points) for name, points in lines.items()},
                  "clients")


def clients(figure, rows):
    return by_clients(figure, rows, lambda row: {row["transport"]: "total_mean"})


def streams(figure, rows):
    return by_clients(figure, rows,
                      lambda row: {f"{row['transport']}, {count(row.cell.streams, 'stream')}": "total_mean"})


def sharing(figure, rows):
    return by_clients(figure, rows, lambda row: {f"{row['transport']}, {row['sharing']}": "total_mean"})


def priority(figure, rows):
    return by_clients(figure, rows, lambda row: {f"{row['transport']}, {name}": f"{name}_mean"
                                                 for name in ("high", "normal")}, "mean total time of either class")


# Bytes of a request and its answer.
SIZES = {"mobilenet_v3": 606_112, "resnet50": 606_112, "efficientnet_b0": 606_112, "wide_resnet101": 606_112,
         "yolo_v4": 2_076_672 + 3_619_980, "deeplab_v3": 3_244_800 + 45_427_200, "digits": 296}


def bandwidth(figure, rows):
    made = []
    for row in rows:
        if row["inference_mean"] and row["model"] in SIZES:
            gigabits = SIZES[row["model"]] * 8 / 1000
            found = estimate(lambda own, bits=gigabits: bits / own[0]["inference_mean"], [row])
            made.append((row["model"], [("in and out", "#0072b2", found.value)], rate_text(found.value), ends(found)))
    return bars(figure.title, subtitle("bits of a request and its answer over the time of an inference", rows), made,
                rate_text)


def distribution(figure, rows):
    lines = {count(row.cell.clients, "client"): [
        (value / 1000, percent) for percent, value in distribution_of(row["inference_distribution"])] for row in rows}
    return curves(figure.title, subtitle("share of the inferences that take at most this long", rows), lines, "ms",
                  percent_text)


def by_model(draw):
    """A picture for each model, where there are several."""
    def several(figure, rows):
        models = sorted({row["model"] for row in rows})
        title = figure.title + (": {}" if len(models) > 1 else "")
        return [(model, draw(replace(figure, title=title.format(model)),
                             [row for row in rows if row["model"] == model])) for model in models]
    return several


SEVERAL = {"clients": by_model(clients), "pipelines": by_model(pipelines)}
SINGLE = {"totals": totals, "spread": spread, "stages": stages, "overhead": overhead, "shares": shares, "cpu": cpu,
          "streams": streams, "priority": priority, "sharing": sharing, "bandwidth": bandwidth,
          "distribution": distribution, "mediation": mediation}


def draw(figure, rows):
    """[(file name, SVG)]"""
    rows = [row for row in rows if row.good and row["total_mean"]]
    if not rows:
        return []
    if figure.shows in SEVERAL:
        return [(f"{figure.id}-{name}.svg", picture) for name, picture in SEVERAL[figure.shows](figure, rows)]
    picture = SINGLE[figure.shows](figure, rows)
    return [(f"{figure.id}.svg", picture)] if picture else []


def links(title, rows):
    """`rows`: [(link, row)], in the order of the bars."""
    members = [row for _, row in rows]
    return bars(title, subtitle("mean of each stage", members), [
        (label(row, members, (row["transport"], link.split(",")[0])), stage_parts(row), end_text(row), total_ends(row))
        for link, row in rows])
