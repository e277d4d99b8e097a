# SPDX-License-Identifier: Apache-2.0
"""What the papers say of their figures, beside what was measured here.

The TCP of Hanafy et al. is ZeroMQ: their claims about it are judged with `zmq`."""
import math
from dataclasses import dataclass
from typing import Callable

import late
import reasons
from matrix import CLIENTS, VERBS, Cell
from reasons import cpu_of, difference, percent, points, share, signed_time, stage_means
from rounds import ENOUGH, estimate
from svg_shapes import time_text

MOVEMENT = ("request", "copy", "response")
PROCESSING = ("preprocessing", "inference")
CONFIRMED, SMALLER, NOT_CONFIRMED, NOT_MEASURED = VERDICTS = \
    "confirmed", "same direction but smaller", "not confirmed", "not measured"


@dataclass(frozen=True)
class Effect:
    """A change that the paper saw. Confirmed: the interval excludes zero, and the change is at least half as large."""
    size: float

    def verdict(self, found):
        sign = math.copysign(1, self.size)
        low, high = sorted((sign * found.low, sign * found.high))
        if low > 0:
            return CONFIRMED if sign * found.value >= abs(self.size) / 2 else SMALLER
        return NOT_CONFIRMED if high < abs(self.size) / 2 else NOT_MEASURED


@dataclass(frozen=True)
class Range:
    """Confirmed: the interval lies inside. `from_zero`: what lies between zero and the range is smaller."""
    low: float = -math.inf
    high: float = math.inf
    from_zero: bool = False

    def verdict(self, found):
        if self.low < found.low and found.high < self.high:
            return CONFIRMED
        if found.high < self.low or found.low > self.high:
            return SMALLER if self.from_zero and 0 < found.low < self.low else NOT_CONFIRMED
        return NOT_MEASURED


POSITIVE = Range(low=0)


class View:
    """Good cells over one link. `emulated`: the adapter; without a link its times are the emulation's."""
    def __init__(self, cells, link="", emulated=False):
        self.cells, self.link = {key: cell for key, cell in cells.items() if cell.good}, link
        self.baseless = VERBS if emulated and not link else set()

    def of(self, cell):
        return self.cells.get((cell.key, cell.link_of(self.link)))


@dataclass(frozen=True)
class Finding:
    """`seen` and `reason` may be empty."""
    seen: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class Claim:
    """`measure` turns the cells' rows into a number (nothing: a figure is missing), `text` writes it, `test` judges its
    interval, `beside` says what else is seen, and `why` why it is as it is. At least `least` cells have to be there; of
    others the row is None."""
    paper: str
    cells: tuple
    measure: Callable
    text: Callable
    test: object
    why: Callable = reasons.of_pair
    least: int = 0
    beside: Callable = lambda *_rows: ""

    def check(self, view):
        rows = [view.of(cell) for cell in self.cells]
        known = [row for row in rows if row]
        if len(known) < (self.least or len(rows)):
            missing = ", ".join(cell.key for cell, row in zip(self.cells, rows) if not row)
            return Finding("", NOT_MEASURED, f"no figures of {missing}")
        found = estimate(self.measure, rows)
        if found is None:
            return Finding("", NOT_MEASURED, "a figure is missing, or no round has all of the cells")
        verdict, reason = self.judge(view, rows, found)
        return Finding(found.text(self.text) + self.beside(*rows), verdict, reason)

    def judge(self, view, rows, found):
        """(verdict, reason)"""
        known = [row for row in rows if row]
        emulated = sorted(set.union(*(row.cell.links for row in known)) & view.baseless)
        if emulated:
            return NOT_MEASURED, f"{' and '.join(emulated)} emulated without a model of a link (--link)"
        if any(row["quick"] for row in known):
            return NOT_MEASURED, "a quick run"
        if found.rounds < ENOUGH:
            return NOT_MEASURED, f"{found.rounds} of {ENOUGH} rounds"
        verdict, slow = self.test.verdict(found), late_text(known)
        if slow and {verdict} != self.verdicts(late.variants(rows)):
            return NOT_MEASURED, f"emulation too slow: {slow}"
        if verdict == NOT_MEASURED:
            return verdict, "the interval is too wide"
        why = self.why(*rows) if verdict != CONFIRMED else ""
        return verdict, "; ".join(filter(None, [why, slow and f"{slow}, which changes no verdict"]))

    def verdicts(self, variants):
        estimates = [estimate(self.measure, rows) for rows in variants]
        return {self.test.verdict(found) if found else NOT_MEASURED for found in estimates}


def late_text(rows):
    """Which of the rows the emulation was too slow for; empty: none."""
    return ", ".join(f"{reasons.name_of(row)} {late.text(row)}" for row in rows if late.too_many(row))


def form(raw):
    return "raw" if raw else "preprocessed"


def clients_text(clients):
    return f"{clients} client{'s' if clients > 1 else ''}"


def spread_text(value):
    """Of a difference of coefficients of variation."""
    return f"{'+' if value >= 0 else '−'}{abs(value):.2f}"


def times(one, base):
    return f" ({time_text(one['total_mean'])} against {time_text(base['total_mean'])})"


def change_of(rows):
    """By how many percent the first takes longer than the second."""
    return difference(rows[0]["total_mean"], rows[1]["total_mean"])


def compared(said, cells, test):
    """The totals of two cells, in percent of the second."""
    return Claim(said, cells, change_of, percent, test, beside=times)


def change(paper, other, base, model, raw, clients=1):
    """`other` takes `paper` percent more than `base`; a negative number: less."""
    return compared(f"{other} {percent(paper)} against {base}, {model}, {form(raw)}, {clients_text(clients)}",
                    (Cell(model, other, raw, clients), Cell(model, base, raw, clients)), Effect(paper))


def added(stages):
    """µs that the first spends more than the second in these stages; empty: in all."""
    def measure(rows):
        if not stages:
            return rows[0]["total_mean"] - rows[1]["total_mean"]
        if not all(reasons.broken_down(row) for row in rows):
            return None
        return sum(stage_means(rows[0])[stage] - stage_means(rows[1])[stage] for stage in stages)
    return measure


def more(paper_us, said, other, base, model, raw, stages=(), clients=1):
    """`other` spends `paper_us` more than `base` in these stages."""
    return Claim(said, (Cell(model, other, raw, clients), Cell(model, base, raw, clients)), added(stages), signed_time,
                 Effect(paper_us))


ROOM = 25  # percent of a range's ends


def between(low_us, high_us, other, base, model, raw):
    """`other` takes from `low_us` to `high_us` more than `base`: not less, and not more."""
    least, most = low_us * (1 - ROOM / 100), high_us * (1 + ROOM / 100)
    return Claim(f"{other} adds {low_us / 1000:g} to {high_us / 1000:g} ms to {base}, {model}, {form(raw)} (confirmed: "
                 f"from {time_text(least)} to {time_text(most)}, {ROOM} % beyond either end)",
                 (Cell(model, other, raw), Cell(model, base, raw)), added(()), signed_time, Range(least, most, True),
                 beside=times)


def shares(paper, model, raw, stages, what):
    """`paper`: {transport: percent}. Judged is the smallest step between two neighbours in the paper's order."""
    names = sorted(paper, key=paper.get)
    step = min(paper[b] - paper[a] for a, b in zip(names, names[1:]))
    said = ", ".join(f"{name} {value} %" for name, value in paper.items())

    def seen(rows):
        return {name: share(row, stages) for name, row in zip(names, rows) if share(row, stages) is not None}

    def steps(known):
        """{(lower, upper): points}"""
        return {(a, b): known[b] - known[a] for a, b in zip(known, list(known)[1:])}

    def measure(rows):
        known = seen(rows)
        return min(steps(known).values()) if len(known) > 1 else None

    def beside(*rows):
        return f" ({', '.join(f'{name} {value:.0f} %' for name, value in reversed(seen(rows).items()))})"

    def why(*rows):
        found = steps(seen(rows))
        return reasons.of_shares(*(rows[names.index(name)] for name in min(found, key=found.get)))
    return Claim(f"{what} of {model}, {form(raw)}, 1 client: {said} (the smallest step: {step} points)",
                 tuple(Cell(model, name, raw) for name in names), measure, points, Effect(step), why, 2, beside)


def growth(paper, transport, model, stages, what, raw=True):
    """From 1 to 16 clients a share grows; `paper`: (percent, percent)."""
    def measure(rows):
        ends = [share(row, stages) for row in rows]
        return None if None in ends else ends[1] - ends[0]

    def beside(*rows):
        return " ({:.0f} → {:.0f} %)".format(*(share(row, stages) for row in rows))
    return Claim(f"{what}, {transport}: {paper[0]} → {paper[1]} % from 1 to 16 clients",
                 tuple(Cell(model, transport, raw, clients) for clients in (CLIENTS[0], CLIENTS[-1])), measure, points,
                 Effect(paper[1] - paper[0]), reasons.of_growth, beside=beside)


def overhead(paper, model, raw):
    """The least that any of the paper's transports adds to local processing, in percent."""
    def best(rows):
        return min((row for row in rows[1:] if row), key=lambda row: row["total_mean"])

    def measure(rows):
        if rows[0] is None or not any(rows[1:]):
            return None
        return difference(best(rows)["total_mean"], rows[0]["total_mean"])
    return Claim(f"{model}, {form(raw)}: at least {paper} % over local (confirmed: within a factor of two)",
                 tuple(Cell(model, name, raw) for name in ("local", "zmq", "rdma", "gdr")), measure, percent,
                 Range(paper / 2, paper * 2, True), lambda *rows: reasons.of_pair(best(rows), rows[0]), 2,
                 lambda *rows: f" ({best(rows)['transport']})")


def more_cpu(paper, other, base, model, raw):
    def measure(rows):
        spent = [cpu_of(row) for row in rows]
        return None if None in spent or not spent[1] else difference(*spent)

    def beside(*rows):
        return " ({} against {})".format(*(time_text(cpu_of(row)) for row in rows))
    return Claim(f"{other} takes {percent(paper)} CPU time against {base}, {model}, {form(raw)}",
                 (Cell(model, other, raw), Cell(model, base, raw)), measure, percent, Effect(paper), reasons.of_cpu,
                 beside=beside)


SAME = f"(confirmed: at most {reasons.SAME:g} % more or less)"
AS_LONG = Range(-reasons.SAME, reasons.SAME)


def as_long_as(other, base, model, raw=True, clients=CLIENTS[-1]):
    return compared(f"{other} takes as long as {base} with {clients_text(clients)}, {model} {SAME}",
                    (Cell(model, other, raw, clients), Cell(model, base, raw, clients)), AS_LONG)


def cov_text(rows, column):
    return f" (CoV {', '.join(f'{reasons.name_of(row)} {row[column]:.2f}' for row in rows if row)})"


def most_varied(loser, others, model):
    def most(rows):
        return max((row for row in rows[1:] if row), key=lambda row: row["total_cov"] or 0.0)

    def measure(rows):
        if rows[0] is None or any(row and row["total_cov"] is None for row in rows):
            return None
        return rows[0]["total_cov"] - most(rows)["total_cov"]
    return Claim(f"{loser} varies most", tuple(Cell(model, name, True) for name in (loser, *others)), measure,
                 spread_text, POSITIVE, lambda *rows: reasons.of_spread(rows[0], most(rows)), 2,
                 lambda *rows: cov_text(rows, "total_cov"))


def one_stream(paper, model):
    return compared(f"one stream {percent(paper)} against 16, gdr, 16 clients",
                    tuple(Cell(model, "gdr", True, 16, count) for count in (1, 16)), Effect(paper))


def wider(said, cells, test, why):
    """The CoV of inference is larger in the second cell."""
    def measure(rows):
        spread = [row["inference_cov"] for row in rows]
        return None if None in spread else spread[1] - spread[0]
    return Claim(said, cells, measure, spread_text, test, why,
                 beside=lambda *rows: " (CoV {:.2f} → {:.2f})".format(*(row["inference_cov"] for row in rows)))


def variation(paper, model):
    """`paper`: (gdr, rdma)."""
    return wider(f"CoV of processing with 16 clients: gdr {paper[0]}, rdma {paper[1]}",
                 tuple(Cell(model, name, True, 16, 16) for name in ("gdr", "rdma")), Effect(paper[1] - paper[0]),
                 reasons.of_spread)


def wider_with_clients(model):
    return wider("inference times are the less predictable, the more clients there are",
                 tuple(Cell(model, "local", False, clients) for clients in (CLIENTS[0], CLIENTS[-1])), POSITIVE,
                 reasons.of_growth)


PLACE = 70  # percent of the normal class' time


def priority(transport, keeps):
    """With 8 and 16 clients the high class has its place, or not."""
    def measure(rows):
        if not all(row["high_mean"] and row["normal_mean"] for row in rows):
            return None
        return max(100 * row["high_mean"] / row["normal_mean"] for row in rows)

    def beside(*rows):
        return " ({})".format(", ".join(f"{row.cell.clients} clients: {time_text(row['high_mean'])} against "
                                        f"{time_text(row['normal_mean'])}" for row in rows))
    said = "keeps its place (54 ms, much below the others)" if keeps else "loses it from 8 clients on"
    return Claim(f"{transport}: the client of high priority {said} (a place: less than {PLACE} % of the others' time)",
                 tuple(Cell("yolo_v4", transport, False, clients, priority_clients=1) for clients in (8, 16)), measure,
                 lambda value: f"{value:.0f} %", Range(high=PLACE) if keeps else Range(low=PLACE),
                 lambda *rows: reasons.of_one(rows[-1]), beside=beside)


def sharing_order(transport, better, worse, same=False):
    said = f"{better} takes as long as {worse} {SAME}" if same \
        else f"{better} takes no longer than {worse} (confirmed: at most {reasons.SAME:g} % more)"
    return compared(f"{transport}, 16 clients: {said}",
                    tuple(Cell("efficientnet_b0", transport, True, 16, sharing=name) for name in (better, worse)),
                    AS_LONG if same else Range(high=reasons.SAME))


CLAIMS = {
    "F5": [change(value, transport, "zmq", "resnet50", raw) for transport, values in
           (("gdr", (-20.3, -23.2)), ("rdma", (-11.4, -15.2))) for raw, value in zip((True, False), values)]
    + [between(*ends, transport, "local", "resnet50", raw) for transport, ends in
       (("gdr", (270, 530)), ("zmq", (1200, 1500))) for raw in (True, False)],
    "F6": [more(730, "zmq moves raw requests and answers in 0.73 ms more than rdma", "zmq", "rdma", "resnet50", True,
                ("request", "response")),
           more(610, "the same preprocessed: 0.61 ms", "zmq", "rdma", "resnet50", False, ("request", "response")),
           more(300, "rdma copies for 0.3 ms that gdr does not, raw", "rdma", "gdr", "resnet50", True, ("copy",)),
           more(200, "the same preprocessed: 0.2 ms", "rdma", "gdr", "resnet50", False, ("copy",))],
    "F7": [overhead(80.8, "mobilenet_v3", True), overhead(48.1, "mobilenet_v3", False),
           overhead(4.5, "wide_resnet101", True), overhead(2, "wide_resnet101", False)],
    "F8": [shares({"zmq": 62, "rdma": 42, "gdr": 30}, "mobilenet_v3", True, MOVEMENT, "data movement"),
           shares({"zmq": 60, "rdma": 32, "gdr": 23}, "deeplab_v3", True, MOVEMENT, "data movement")],
    "F9": [more_cpu(100, "zmq", "gdr", "deeplab_v3", True)],
    "F10": [change(-23, "zmq/rdma", "zmq/zmq", "mobilenet_v3", True),
            change(-57, "zmq/gdr", "zmq/zmq", "mobilenet_v3", True),
            most_varied("zmq/zmq", ("zmq/rdma", "zmq/gdr", "rdma/rdma", "rdma/gdr"), "mobilenet_v3")],
    "F11": [more(-4700, "gdr saves 4.7 ms against zmq with 16 clients, MobileNetV3", "gdr", "zmq", "mobilenet_v3",
                 True, (), 16),
            more(-160000, "gdr saves 160 ms against zmq with 16 clients, DeepLabV3", "gdr", "zmq", "deeplab_v3", True,
                 (), 16),
            as_long_as("rdma", "zmq", "mobilenet_v3"), as_long_as("rdma", "zmq", "deeplab_v3")],
    "F12": [growth(ends, transport, "mobilenet_v3", PROCESSING, "processing") for transport, ends in
            (("zmq", (38, 62)), ("rdma", (58, 72)), ("gdr", (70, 92)))],
    "F13": [growth(ends, transport, "deeplab_v3", ("copy",), "copy") for transport, ends in
            (("zmq", (7, 36)), ("rdma", (12, 28)))],
    "F14": [change(-27, "zmq/gdr", "zmq/zmq", "mobilenet_v3", True, 16),
            as_long_as("zmq/gdr", "rdma/gdr", "mobilenet_v3")],
    "F15": [one_stream(33, "resnet50"), variation((0.11, 0.21), "resnet50")],
    "F16": [priority("gdr", True), priority("rdma", False)],
    "F17": [sharing_order(transport, "mps", "contexts") for transport in ("gdr", "rdma")]
    + [sharing_order("gdr", "streams", "mps", same=True)],
    "G2": [wider_with_clients("mobilenet_v3")],
    "G6": [change(-50, "gpu", "rdma", "super_resolution", False), change(-50, "gpu", "rdma", "resnet50", False)],
    "G7": [more_cpu(50, "rdma", "gpu", "resnet50", False)],
}
