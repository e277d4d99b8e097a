# SPDX-License-Identifier: Apache-2.0
"""What the papers say of their figures, beside what was measured here."""
from dataclasses import dataclass
from typing import Callable

import late
import reasons
from matrix import CLIENTS, Cell
from reasons import cpu_of, difference, percent, share, signed_time, stage_means
from svg_shapes import time_text

MOVEMENT = ("request", "copy", "response")
PROCESSING = ("preprocessing", "inference")
HOLDS, WEAKER, FAILS, UNKNOWN = "holds", "holds, but weaker", "does not hold", "not measured"
NOT_JUDGED = "not judged: emulation too slow"  # and who knows what the link alone would have made of it
VERDICTS = (HOLDS, WEAKER, FAILS, NOT_JUDGED, UNKNOWN)


class View:
    """Good rows of one link, by what a cell is."""
    def __init__(self, rows, link=""):
        self.rows, self.link = {key: row for key, row in rows.items() if row.good}, link

    def of(self, cell):
        return self.rows.get((cell.key, cell.link_of(self.link)))


@dataclass(frozen=True)
class Claim:
    """`judge` says (what is seen, verdict) of the cells' rows, or nothing where a figure is missing; `why` says why
    they are as they are. At least so many cells have to be there; of others the row is None. Where the emulation was
    too slow for a row, the verdict counts if it is the same without what the row's messages were late by."""
    paper: str
    cells: tuple
    judge: Callable
    why: Callable = reasons.of_pair
    least: int = 0

    def check(self, view):
        """(what is seen here, verdict)"""
        rows = [view.of(cell) for cell in self.cells]
        known = [row for row in rows if row]
        if len(known) < (self.least or len(rows)):
            return "", UNKNOWN
        judged = self.judge(rows)
        if judged is None:
            return "", UNKNOWN
        seen, verdict = judged
        slow = late_text(known)
        if slow and {verdict} != self.verdicts(late.variants(rows)):
            return f"seen: {seen}; {slow}", NOT_JUDGED
        if slow:
            seen += f"; {slow}, which changes no verdict"
        if verdict in (FAILS, WEAKER):
            seen += f". Why: {self.why(*rows)}"
        return seen, verdict

    def verdicts(self, variants):
        return {judged[1] if judged else UNKNOWN for judged in map(self.judge, variants)}


def late_text(rows):
    """Which of the rows the emulation was too slow for; empty: none."""
    return ", ".join(f"{reasons.name_of(row)} {late.text(row)}" for row in rows if late.too_many(row))


def verdict_of(here, paper):
    """Of two changes in the same unit: the same direction, and at least half as large."""
    if here * paper <= 0:
        return FAILS
    return HOLDS if abs(here) >= abs(paper) / 2 else WEAKER


def form(raw):
    return "raw" if raw else "preprocessed"


def clients_text(clients):
    return f"{clients} client{'s' if clients > 1 else ''}"


def times_text(one, base):
    return f"({time_text(one['total_mean'])} against {time_text(base['total_mean'])})"


def change_of(rows):
    """By how many percent the first takes longer than the second."""
    return difference(rows[0]["total_mean"], rows[1]["total_mean"])


def change(paper, other, base, model, raw, clients=1):
    """`other` takes `paper` percent more than `base`; a negative number: less."""
    def judge(rows):
        here = change_of(rows)
        return f"{percent(here)} {times_text(*rows)}", verdict_of(here, paper)
    return Claim(f"{other} {percent(paper)} against {base}, {model}, {form(raw)}, {clients_text(clients)}",
                 (Cell(model, other, raw, clients), Cell(model, base, raw, clients)), judge)


def added(rows, stages):
    """µs that the first spends more than the second in these stages; empty: in all."""
    if not stages:
        return rows[0]["total_mean"] - rows[1]["total_mean"]
    if not all(reasons.broken_down(row) for row in rows):
        return None
    return sum(stage_means(rows[0])[stage] - stage_means(rows[1])[stage] for stage in stages)


def more(paper_us, said, other, base, model, raw, stages=(), clients=1):
    """`other` spends `paper_us` more than `base` in these stages."""
    def judge(rows):
        here = added(rows, stages)
        return None if here is None else (signed_time(here), verdict_of(here, paper_us))
    return Claim(said, (Cell(model, other, raw, clients), Cell(model, base, raw, clients)), judge)


RANGE_ROOM = 25  # percent of a range's ends


def between(low_us, high_us, other, base, model, raw):
    """`other` takes from `low_us` to `high_us` more than `base`: not less, and not more."""
    room = RANGE_ROOM / 100
    least, most = low_us * (1 - room), high_us * (1 + room)

    def judge(rows):
        here = added(rows, ())
        return f"{signed_time(here)} {times_text(*rows)}", HOLDS if least <= here <= most else FAILS
    return Claim(f"{other} adds {low_us / 1000:g} to {high_us / 1000:g} ms to {base}, {model}, {form(raw)} (holds: "
                 f"from {time_text(least)} to {time_text(most)}, {RANGE_ROOM} % beyond either end)",
                 (Cell(model, other, raw), Cell(model, base, raw)), judge)


def shares(paper, model, raw, stages, what, clients=1):
    """`paper`: {transport: percent}. Judged is the order."""
    said = ", ".join(f"{transport} {value} %" for transport, value in paper.items())

    def seen(rows):
        return {name: share(row, stages) for name, row in zip(paper, rows) if share(row, stages) is not None}

    def judge(rows):
        known = seen(rows)
        if len(known) < 2:
            return None
        ordered = sorted(known, key=paper.get)
        right = all(known[a] <= known[b] for a, b in zip(ordered, ordered[1:]))
        return ", ".join(f"{name} {value:.0f} %" for name, value in known.items()), HOLDS if right else FAILS

    def why(*rows):
        """Of the two that are the most wrongly ordered."""
        known, by_name = seen(rows), dict(zip(paper, rows))
        wrong = [(known[a] - known[b], a, b) for a in known for b in known if paper[a] < paper[b]]
        return reasons.of_shares(*(by_name[name] for name in max(wrong)[1:]))
    return Claim(f"{what} of {model}, {form(raw)}, {clients_text(clients)}: {said} (holds: the same order)",
                 tuple(Cell(model, name, raw, clients) for name in paper), judge, why, 2)


def growth(paper, transport, model, stages, what, raw=True):
    """From 1 to 16 clients a share grows; `paper`: (percent, percent)."""
    def judge(rows):
        ends = [share(row, stages) for row in rows]
        if None in ends:
            return None
        return f"{ends[0]:.0f} → {ends[1]:.0f} %", verdict_of(ends[1] - ends[0], paper[1] - paper[0])
    return Claim(f"{what}, {transport}: {paper[0]} → {paper[1]} % from 1 to 16 clients",
                 tuple(Cell(model, transport, raw, clients) for clients in (CLIENTS[0], CLIENTS[-1])), judge,
                 reasons.of_growth)


def overhead(paper, model, raw):
    """The least that any transport adds to local processing, in percent."""
    def best_of(rows):
        return min((row for row in rows[1:] if row), key=lambda row: row["total_mean"])

    def judge(rows):
        if rows[0] is None or not any(rows[1:]):
            return None
        best = best_of(rows)
        here = difference(best["total_mean"], rows[0]["total_mean"])
        return f"{percent(here)} ({best.cell.transport})", HOLDS if paper / 2 <= here <= paper * 2 else FAILS

    def why(*rows):
        return reasons.of_pair(best_of(rows), rows[0])
    return Claim(f"{model}, {form(raw)}: at least {paper} % over local (holds: within a factor of two)",
                 tuple(Cell(model, name, raw) for name in ("local", "tcp", "rdma", "gdr")), judge, why, 2)


def more_cpu(paper, other, base, model, raw):
    def judge(rows):
        spent = [cpu_of(row) for row in rows]
        if None in spent or not spent[1]:
            return None
        here = difference(*spent)
        return f"{percent(here)} ({time_text(spent[0])} against {time_text(spent[1])})", verdict_of(here, paper)
    return Claim(f"{other} takes {percent(paper)} CPU time against {base}, {model}, {form(raw)}",
                 (Cell(model, other, raw), Cell(model, base, raw)), judge, reasons.of_cpu)


def as_long_as(other, base, model, raw=True, within=10, clients=CLIENTS[-1]):
    def judge(rows):
        here = change_of(rows)
        return f"{percent(here)} {times_text(*rows)}", HOLDS if abs(here) <= within else FAILS
    return Claim(f"{other} takes as long as {base} with {clients_text(clients)}, {model} (holds: at most {within} % "
                 "more or less)", (Cell(model, other, raw, clients), Cell(model, base, raw, clients)), judge)


def most_varied(loser, others, model):
    def most(rows):
        return max((row for row in rows[1:] if row), key=lambda row: row["total_cov"] or 0.0)

    def judge(rows):
        if rows[0] is None or any(row and row["total_cov"] is None for row in rows):
            return None
        said = ", ".join(f"{row.cell.transport} {row['total_cov']:.2f}" for row in rows if row)
        return f"CoV {said}", HOLDS if rows[0]["total_cov"] >= most(rows)["total_cov"] else FAILS

    def why(*rows):
        return reasons.of_spread(rows[0], most(rows))
    return Claim(f"{loser} varies most", tuple(Cell(model, name, True) for name in (loser, *others)), judge, why, 2)


def one_stream(paper, model):
    def judge(rows):
        here = change_of(rows)
        return f"{percent(here)} {times_text(*rows)}", verdict_of(here, paper)
    return Claim(f"one stream {percent(paper)} against 16, gdr, 16 clients",
                 tuple(Cell(model, "gdr", True, 16, count) for count in (1, 16)), judge)


def variation(paper, model):
    """`paper`: (gdr, rdma)."""
    def judge(rows):
        spread = [row["inference_cov"] for row in rows]
        if None in spread:
            return None
        return f"gdr {spread[0]:.2f}, rdma {spread[1]:.2f}", HOLDS if spread[0] < spread[1] else FAILS
    return Claim(f"CoV of processing with 16 clients: gdr {paper[0]}, rdma {paper[1]} (holds: gdr the lower)",
                 tuple(Cell(model, name, True, 16, 16) for name in ("gdr", "rdma")), judge, reasons.of_spread)


def priority(transport, keeps):
    """With 8 and 16 clients the high class takes less than 70 % of the normal one's time, or not."""
    def judge(rows):
        if not all(row["high_mean"] and row["normal_mean"] for row in rows):
            return None
        kept = all(row["high_mean"] < 0.7 * row["normal_mean"] for row in rows)
        said = ", ".join(f"{row.cell.clients} clients: {time_text(row['high_mean'])} against "
                         f"{time_text(row['normal_mean'])}" for row in rows)
        return said, HOLDS if kept == keeps else FAILS

    def why(*rows):
        return reasons.of_one(rows[-1])
    said = "keeps its place (54 ms, much below the others)" if keeps else "loses it from 8 clients on"
    return Claim(f"{transport}: the client of high priority {said} (a place: less than 70 % of the others' time)",
                 tuple(Cell("yolo_v4", transport, False, clients, priority_clients=1) for clients in (8, 16)), judge,
                 why)


def sharing_order(transport, better, worse, within=0):
    def judge(rows):
        here = change_of(rows)
        good = abs(here) <= within if within else here <= 0
        return f"{percent(here)} {times_text(*rows)}", HOLDS if good else FAILS
    said = f"{better} takes as long as {worse} (holds: at most {within} % more or less)" if within \
        else f"{better} takes no longer than {worse}"
    return Claim(f"{transport}, 16 clients: {said}",
                 tuple(Cell("efficientnet_b0", transport, True, 16, sharing=name) for name in (better, worse)), judge)


def wider_with_clients(model):
    def judge(rows):
        spread = [row["inference_cov"] for row in rows]
        if None in spread:
            return None
        return f"CoV {spread[0]:.2f} → {spread[1]:.2f}", HOLDS if spread[1] > spread[0] else FAILS
    return Claim("inference times are the less predictable, the more clients there are",
                 tuple(Cell(model, "local", False, clients) for clients in (CLIENTS[0], CLIENTS[-1])), judge,
                 reasons.of_growth)


CLAIMS = {
    "F5": [change(value, transport, "tcp", "resnet50", raw) for transport, values in
           (("gdr", (-20.3, -23.2)), ("rdma", (-11.4, -15.2))) for raw, value in zip((True, False), values)]
    + [between(*ends, transport, "local", "resnet50", raw) for transport, ends in
       (("gdr", (270, 530)), ("tcp", (1200, 1500))) for raw in (True, False)],
    "F6": [more(730, "tcp moves raw requests and answers in 0.73 ms more than rdma", "tcp", "rdma", "resnet50", True,
                ("request", "response")),
           more(610, "the same preprocessed: 0.61 ms", "tcp", "rdma", "resnet50", False, ("request", "response")),
           more(300, "rdma copies for 0.3 ms that gdr does not, raw", "rdma", "gdr", "resnet50", True, ("copy",)),
           more(200, "the same preprocessed: 0.2 ms", "rdma", "gdr", "resnet50", False, ("copy",))],
    "F7": [overhead(80.8, "mobilenet_v3", True), overhead(48.1, "mobilenet_v3", False),
           overhead(4.5, "wide_resnet101", True), overhead(2, "wide_resnet101", False)],
    "F8": [shares({"tcp": 62, "rdma": 42, "gdr": 30}, "mobilenet_v3", True, MOVEMENT, "data movement"),
           shares({"tcp": 60, "rdma": 32, "gdr": 23}, "deeplab_v3", True, MOVEMENT, "data movement")],
    "F9": [more_cpu(100, "tcp", "gdr", "deeplab_v3", True)],
    "F10": [change(-23, "tcp/rdma", "tcp/tcp", "mobilenet_v3", True),
            change(-57, "tcp/gdr", "tcp/tcp", "mobilenet_v3", True),
            most_varied("tcp/tcp", ("tcp/rdma", "tcp/gdr", "rdma/rdma", "rdma/gdr"), "mobilenet_v3")],
    "F11": [more(-4700, "gdr saves 4.7 ms against tcp with 16 clients, MobileNetV3", "gdr", "tcp", "mobilenet_v3",
                 True, (), 16),
            more(-160000, "gdr saves 160 ms against tcp with 16 clients, DeepLabV3", "gdr", "tcp", "deeplab_v3", True,
                 (), 16),
            as_long_as("rdma", "tcp", "mobilenet_v3"), as_long_as("rdma", "tcp", "deeplab_v3")],
    "F12": [growth(ends, transport, "mobilenet_v3", PROCESSING, "processing") for transport, ends in
            (("tcp", (38, 62)), ("rdma", (58, 72)), ("gdr", (70, 92)))],
    "F13": [growth(ends, transport, "deeplab_v3", ("copy",), "copy") for transport, ends in
            (("tcp", (7, 36)), ("rdma", (12, 28)))],
    "F14": [change(-27, "tcp/gdr", "tcp/tcp", "mobilenet_v3", True, 16),
            as_long_as("tcp/gdr", "rdma/gdr", "mobilenet_v3")],
    "F15": [one_stream(33, "resnet50"), variation((0.11, 0.21), "resnet50")],
    "F16": [priority("gdr", True), priority("rdma", False)],
    "F17": [sharing_order(transport, "mps", "contexts") for transport in ("gdr", "rdma")]
    + [sharing_order("gdr", "streams", "mps", within=10)],
    "G1": [],
    "G2": [wider_with_clients("mobilenet_v3")],
    "G6": [change(-50, "gpu", "rdma", "super_resolution", False), change(-50, "gpu", "rdma", "resnet50", False)],
    "G7": [more_cpu(50, "rdma", "gpu", "resnet50", False)],
}
