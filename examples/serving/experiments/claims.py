# SPDX-License-Identifier: Apache-2.0
"""What the papers say of their figures, beside what was measured here."""
from dataclasses import dataclass
from typing import Callable

from matrix import CLIENTS, Cell
from results import STAGES
from svg_shapes import time_text

MOVEMENT = ("request", "copy", "response")
PROCESSING = ("preprocessing", "inference")
HOLDS, WEAKER, FAILS, UNKNOWN = "holds", "holds, but weaker", "does not hold", "not measured"


class View:
    """Rows by what a cell is."""
    def __init__(self, rows):
        self.rows = {key: row for key, row in rows.items() if row.good}

    def row(self, model, transport, raw, clients=1, **more):
        return self.rows.get(Cell(model, transport, raw, clients, **more).key)

    def value(self, column, model, transport, raw, clients=1, **more):
        row = self.row(model, transport, raw, clients, **more)
        return None if row is None else row[column]


@dataclass(frozen=True)
class Claim:
    """`check` says (what is seen here, verdict) of a View."""
    paper: str
    check: Callable


def stage_means(row):
    return {stage: row[f"{stage}_mean"] or 0.0 for stage in STAGES}


def share(row, stages):
    """Percent of the total; None without one."""
    if row is None or not row["total_mean"]:
        return None
    means = stage_means(row)
    return 100 * sum(means[stage] for stage in stages) / row["total_mean"]


def signed_time(microseconds):
    return f"{'+' if microseconds >= 0 else '−'}{time_text(abs(microseconds))}"


def differences(row, base):
    """The stages in which they differ most: "request −0.4 ms, copy +0.1 ms"."""
    ours, theirs = stage_means(row), stage_means(base)
    changes = sorted(((ours[stage] - theirs[stage], stage) for stage in STAGES), key=lambda one: -abs(one[0]))
    return ", ".join(f"{stage} {signed_time(change)}" for change, stage in changes[:3] if abs(change) >= 0.05)


def verdict(here, paper):
    """Of two changes in the same unit: the same direction, and at least half as large."""
    if here * paper <= 0:
        return FAILS
    return HOLDS if abs(here) >= abs(paper) / 2 else WEAKER


def percent(value):
    return f"{'+' if value >= 0 else '−'}{abs(value):.1f} %"


def change(paper, other, base, model, raw, clients=1, **more):
    """`other` takes `paper` percent more than `base`; a negative number: less."""
    kind = "raw" if raw else "preprocessed"
    said = f"{other} {percent(paper)} against {base}, {model}, {kind}, {clients} client{'s' if clients > 1 else ''}"

    def check(view):
        one, two = view.row(model, other, raw, clients, **more), view.row(model, base, raw, clients, **more)
        if one is None or two is None or not two["total_mean"]:
            return "", UNKNOWN
        here = 100 * (one["total_mean"] / two["total_mean"] - 1)
        seen = f"{percent(here)} ({time_text(one['total_mean'])} against {time_text(two['total_mean'])})"
        why = differences(one, two)
        return seen + (f"; stages: {why}" if why else ""), verdict(here, paper)
    return Claim(said, check)


def difference(paper_us, said, other, base, model, raw, stages, clients=1):
    """`other` spends `paper_us` more than `base` in these stages."""
    def check(view):
        one, two = view.row(model, other, raw, clients), view.row(model, base, raw, clients)
        if one is None or two is None:
            return "", UNKNOWN
        if stages == ("total",):
            here = one["total_mean"] - two["total_mean"]
        else:
            here = sum(stage_means(one)[stage] - stage_means(two)[stage] for stage in stages)
        return f"{signed_time(here)}", verdict(here, paper_us)
    return Claim(said, check)


def shares(paper, model, raw, stages, what, clients=1):
    """`paper`: {transport: percent}."""
    said = ", ".join(f"{transport} {value} %" for transport, value in paper.items())
    label = f"{what} of {model}, {'raw' if raw else 'preprocessed'}, {clients} client{'s' if clients > 1 else ''}: "

    def check(view):
        seen = {transport: share(view.row(model, transport, raw, clients), stages) for transport in paper}
        known = {transport: value for transport, value in seen.items() if value is not None}
        if len(known) < 2:
            return "", UNKNOWN
        by_paper = sorted(known, key=paper.get)
        same_order = all(known[a] <= known[b] for a, b in zip(by_paper, by_paper[1:]))
        return ", ".join(f"{name} {value:.0f} %" for name, value in known.items()), HOLDS if same_order else FAILS
    return Claim(label + said + " (holds: the same order)", check)


def growth(paper, transport, model, stages, what, raw=True):
    """From 1 to 16 clients a share grows; `paper`: (percent, percent)."""
    def check(view):
        ends = [share(view.row(model, transport, raw, clients), stages) for clients in (CLIENTS[0], CLIENTS[-1])]
        if None in ends:
            return "", UNKNOWN
        return f"{ends[0]:.0f} → {ends[1]:.0f} %", verdict(ends[1] - ends[0], paper[1] - paper[0])
    return Claim(f"{what}, {transport}: {paper[0]} → {paper[1]} % from 1 to 16 clients", check)


def overhead(paper, model, raw):
    """The least that any transport adds to local processing, in percent."""
    def check(view):
        base = view.value("total_mean", model, "local", raw)
        seen = {name: view.value("total_mean", model, name, raw) for name in ("tcp", "rdma", "gdr")}
        known = {name: value for name, value in seen.items() if value is not None}
        if not base or not known:
            return "", UNKNOWN
        best = min(known, key=known.get)
        here = 100 * (known[best] / base - 1)
        near = paper / 2 <= here <= paper * 2
        return f"{here:.1f} % ({best})", HOLDS if near else FAILS
    return Claim(f"{model}, {'raw' if raw else 'preprocessed'}: at least {paper} % over local (holds: within a factor "
                 "of two)", check)


def cpu_of(row):
    parts = [row[name] for name in ("server_user", "server_kernel", "client_user", "client_kernel")]
    return None if None in parts else sum(parts)


def more_cpu(paper, other, base, model, raw):
    def check(view):
        pair = [view.row(model, name, raw) for name in (other, base)]
        spent = [None if row is None else cpu_of(row) for row in pair]
        if None in spent or not spent[1]:
            return "", UNKNOWN
        here = 100 * (spent[0] / spent[1] - 1)
        return f"{percent(here)} ({time_text(spent[0])} against {time_text(spent[1])})", verdict(here, paper)
    return Claim(f"{other} takes {percent(paper)} CPU time against {base}, {model}, "
                 f"{'raw' if raw else 'preprocessed'}", check)


def equal_at_many(other, base, model, raw=True, within=10, clients=CLIENTS[-1]):
    def check(view):
        pair = [view.value("total_mean", model, name, raw, clients) for name in (other, base)]
        if None in pair or not pair[1]:
            return "", UNKNOWN
        here = 100 * (pair[0] / pair[1] - 1)
        return percent(here), HOLDS if abs(here) <= within else FAILS
    return Claim(f"{other} is no better than {base} with {clients} clients, {model} (holds: within {within} %)", check)


def most_varied(loser, others, model):
    def check(view):
        seen = {name: view.value("total_cov", model, name, True) for name in (loser,) + others}
        known = {name: value for name, value in seen.items() if value is not None}
        if loser not in known or len(known) < 2:
            return "", UNKNOWN
        said = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
        return f"CoV {said}", HOLDS if known[loser] >= max(known.values()) else FAILS
    return Claim(f"{loser} varies most", check)


def one_stream(paper, model):
    def check(view):
        pair = [view.value("total_mean", model, "gdr", True, 16, streams=count) for count in (1, 16)]
        if None in pair or not pair[1]:
            return "", UNKNOWN
        here = 100 * (pair[0] / pair[1] - 1)
        return percent(here), verdict(here, paper)
    return Claim(f"one stream {percent(paper)} against 16, gdr, 16 clients", check)


def variation(paper, model):
    """`paper`: (gdr, rdma)."""
    def check(view):
        pair = [view.value("inference_cov", model, name, True, 16, streams=16) for name in ("gdr", "rdma")]
        if None in pair:
            return "", UNKNOWN
        return f"gdr {pair[0]:.2f}, rdma {pair[1]:.2f}", HOLDS if pair[0] < pair[1] else FAILS
    return Claim(f"CoV of processing with 16 clients: gdr {paper[0]}, rdma {paper[1]} (holds: gdr the lower)", check)


def priority(transport, keeps):
    """With 8 and 16 clients the high class takes less than 70 % of the normal one's time, or not."""
    def check(view):
        parts = []
        for clients in (8, 16):
            row = view.row("yolo_v4", transport, False, clients, priority_clients=1)
            if row is None or not row["high_mean"] or not row["normal_mean"]:
                return "", UNKNOWN
            parts.append((clients, row["high_mean"], row["normal_mean"]))
        kept = all(high < 0.7 * normal for _, high, normal in parts)
        said = ", ".join(f"{count} clients: {time_text(high)} against {time_text(normal)}"
                         for count, high, normal in parts)
        return said, HOLDS if kept == keeps else FAILS
    said = "keeps its place (54 ms, much below the others)" if keeps else "loses it from 8 clients on"
    return Claim(f"{transport}: the client of high priority {said}", check)


def sharing_order(transport, better, worse, within=0):
    def check(view):
        pair = [view.value("total_mean", "efficientnet_b0", transport, True, 16, sharing=name)
                for name in (better, worse)]
        if None in pair or not pair[1]:
            return "", UNKNOWN
        here = 100 * (pair[0] / pair[1] - 1)
        good = abs(here) <= within if within else here <= 0
        return percent(here), HOLDS if good else FAILS
    said = f"{better} ≈ {worse} (holds: within {within} %)" if within else f"{better} takes no longer than {worse}"
    return Claim(f"{transport}, 16 clients: {said}", check)


def wider_with_clients(model):
    def check(view):
        rows = [view.row(model, "local", False, clients) for clients in (CLIENTS[0], CLIENTS[-1])]
        if None in rows:
            return "", UNKNOWN
        spread = [row["inference_cov"] for row in rows]
        return f"CoV {spread[0]:.2f} → {spread[1]:.2f}", HOLDS if spread[1] > spread[0] else FAILS
    return Claim("inference times are the less predictable, the more clients there are", check)


CLAIMS = {
    "F5": [change(value, transport, "tcp", "resnet50", raw) for transport, values in
           (("gdr", (-20.3, -23.2)), ("rdma", (-11.4, -15.2))) for raw, value in zip((True, False), values)]
    + [difference(530, "gdr adds 0.27 to 0.53 ms to local, raw", "gdr", "local", "resnet50", True, ("total",)),
       difference(1500, "tcp adds 1.2 to 1.5 ms to local, raw", "tcp", "local", "resnet50", True, ("total",))],
    "F6": [difference(730, "tcp moves raw requests and answers in 0.73 ms more than rdma", "tcp", "rdma", "resnet50",
                      True, ("request", "response")),
           difference(610, "the same preprocessed: 0.61 ms", "tcp", "rdma", "resnet50", False,
                      ("request", "response")),
           difference(300, "rdma copies for 0.3 ms that gdr does not, raw", "rdma", "gdr", "resnet50", True,
                      ("copy",)),
           difference(200, "the same preprocessed: 0.2 ms", "rdma", "gdr", "resnet50", False, ("copy",))],
    "F7": [overhead(80.8, "mobilenet_v3", True), overhead(48.1, "mobilenet_v3", False),
           overhead(4.5, "wide_resnet101", True), overhead(2, "wide_resnet101", False)],
    "F8": [shares({"tcp": 62, "rdma": 42, "gdr": 30}, "mobilenet_v3", True, MOVEMENT, "data movement"),
           shares({"tcp": 60, "rdma": 32, "gdr": 23}, "deeplab_v3", True, MOVEMENT, "data movement")],
    "F9": [more_cpu(100, "tcp", "gdr", "deeplab_v3", True)],
    "F10": [change(-23, "tcp/rdma", "tcp/tcp", "mobilenet_v3", True),
            change(-57, "tcp/gdr", "tcp/tcp", "mobilenet_v3", True),
            most_varied("tcp/tcp", ("tcp/rdma", "tcp/gdr", "rdma/rdma", "rdma/gdr"), "mobilenet_v3")],
    "F11": [difference(-4700, "gdr saves 4.7 ms against tcp with 16 clients, MobileNetV3", "gdr", "tcp",
                       "mobilenet_v3", True, ("total",), 16),
            difference(-160000, "gdr saves 160 ms against tcp with 16 clients, DeepLabV3", "gdr", "tcp",
                       "deeplab_v3", True, ("total",), 16),
            equal_at_many("rdma", "tcp", "mobilenet_v3"), equal_at_many("rdma", "tcp", "deeplab_v3")],
    "F12": [growth(ends, transport, "mobilenet_v3", PROCESSING, "processing") for transport, ends in
            (("tcp", (38, 62)), ("rdma", (58, 72)), ("gdr", (70, 92)))],
    "F13": [growth(ends, transport, "deeplab_v3", ("copy",), "copy") for transport, ends in
            (("tcp", (7, 36)), ("rdma", (12, 28)))],
    "F14": [change(-27, "tcp/gdr", "tcp/tcp", "mobilenet_v3", True, 16),
            equal_at_many("tcp/gdr", "rdma/gdr", "mobilenet_v3")],
    "F15": [one_stream(33, "resnet50"), variation((0.11, 0.21), "resnet50")],
    "F16": [priority("gdr", True), priority("rdma", False)],
    "F17": [sharing_order(transport, "mps", "contexts") for transport in ("gdr", "rdma")]
    + [sharing_order("gdr", "streams", "mps", within=10)],
    "G1": [],
    "G2": [wider_with_clients("mobilenet_v3")],
    "G6": [change(-50, "gpu", "rdma", "super_resolution", False), change(-50, "gpu", "rdma", "resnet50", False)],
    "G7": [more_cpu(50, "rdma", "gpu", "resnet50", False)],
}
