#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what posting costs, from what `gpu_post_bench --json` wrote: post_plot.py FILE.json FOLDER.

Two SVGs: the time of a request by who posts it, and the bits that requests are worth by their payload."""
import argparse
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stage_plot import Malformed, read_rows
from svg_shapes import COLOURS, FAINT, INK, MARGIN, SAMPLE, line, rectangle, stroke, svg, text, widest

WIDTH, TOP, BAR, STEP = 900, 84, 18, 26
HEIGHT = 460
CARRIED = ", carried"
NUMBERS = ["queues", "batch", "payload_bytes", "ns_per_request", "requests_per_s", "gbit_per_s"]
WORDS = ["poster", "memory", "order", "device"]


def check_row(row, number):
    if not isinstance(row, dict):
        raise Malformed(f"row {number}: no object")
    for key in WORDS:
        if not isinstance(row.get(key), str):
            raise Malformed(f"row {number}: {key} is no text")
    for key in NUMBERS:
        value = row.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise Malformed(f"row {number}: {key} is {value!r}, not a number above 0")
    if not isinstance(row.get("carried"), bool) or not isinstance(row.get("emulated"), bool):
        raise Malformed(f"row {number}: carried or emulated is not true or false")
    return row


def wire(row):
    if row["device"] == "none":
        return ""
    return ", emulated device" if row["emulated"] else ", device"


def bar_name(row):
    """Who posts how: one bar of the first plot."""
    each = f"{row['batch']} a doorbell"
    queues = f" × {row['queues']}" if row["queues"] > 1 else ""
    memory = ", GPU memory" if row["memory"] == "GPU" else ""
    order = "" if row["order"] in ("two fences", "libmlx5's") else f", {row['order']}"
    return f"{row['poster']}{queues}, {each}{memory}{order}{wire(row)}"


def bars_of(rows):
    """(name, ns) of the first row of each name, at the payload that most rows have; slowest first."""
    sizes = [(row["payload_bytes"], row["carried"]) for row in rows]
    common = max(set(sizes), key=lambda size: (sizes.count(size), -size[0]))
    found = {}
    for row in rows:
        if (row["payload_bytes"], row["carried"]) == common:
            found.setdefault(bar_name(row), row["ns_per_request"])
    return common[0], sorted(found.items(), key=lambda item: -item[1])


def decades(low, high):
    """Powers of ten from below the least to above the most; at least one decade."""
    first = math.floor(math.log10(low))
    return first, max(math.ceil(math.log10(high)), first + 1)


def at(value, first, last, begin, end):
    """Where on a logarithmic axis."""
    return begin + (math.log10(value) - first) / (last - first) * (end - begin)


def power_text(power):
    return f"{10 ** power:,}" if power >= 0 else f"{10.0 ** power:g}"


def figure_text(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def size_text(size):
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"


def plot_times(rows):
    payload, bars = bars_of(rows)
    first, last = decades(min(ns for _, ns in bars), max(ns for _, ns in bars))
    first -= 1 if min(ns for _, ns in bars) <= 10.0 ** first * 1.2 else 0
    left = MARGIN + widest((name for name, _ in bars), 12) + 10
    right = WIDTH - 6 - widest((figure_text(ns) for _, ns in bars), 12, bold=True) - MARGIN
    bottom = TOP + STEP * len(bars)
    body = [text(24, 28, f"Posting a request of {size_text(payload)}: ns, of one poster", size=17, weight="bold"),
            text(24, 47, "logarithmic; bars that name no device post into rings that no adapter reads",
                 size=12, colour=FAINT)]
    for power in range(first, last + 1):
        x = at(10.0 ** power, first, last, left, right)
        body.append(line(x, TOP - 8, x, bottom))
        body.append(text(x, bottom + 18, power_text(power), "middle", 12, FAINT))
    for i, (name, ns) in enumerate(bars):
        y = TOP + i * STEP
        x = at(ns, first, last, left, right)
        unsound = "UNSOUND" in name
        body.append(text(left - 10, y + 13, name, "end", 12, FAINT if unsound else INK))
        body.append(rectangle(left, y, x - left, BAR, "#c8c8c8" if unsound else COLOURS[0], f"{name}: {ns:.1f} ns"))
        body.append(text(x + 6, y + 13, figure_text(ns), size=12, weight="bold"))
    return svg(WIDTH, bottom + 34, body)


def curve_name(row):
    queues = f" × {row['queues']}" if row["queues"] > 1 else ""
    return f"{row['poster']}{queues}, {row['batch']} a doorbell{CARRIED if row['carried'] else ''}{wire(row)}"


def curves_of(rows):
    """{name: [(payload, Gb/s)]} of rows in host memory, in the library's order, with two payloads or more."""
    found = {}
    for row in rows:
        if row["memory"] == "host" and row["order"] == "two fences":
            found.setdefault(curve_name(row), {})[row["payload_bytes"]] = row["gbit_per_s"]
    return {name: sorted(points.items()) for name, points in found.items() if len(points) > 1}


def plot_rates(rows):
    curves = curves_of(rows)
    if not curves:
        return None
    sizes = [size for points in curves.values() for size, _ in points]
    rates = [rate for points in curves.values() for _, rate in points]
    x_first, x_last = math.log10(min(sizes)), math.log10(max(sizes))
    y_first, y_last = decades(min(rates), max(rates))
    left, top, bottom = 70, 70, HEIGHT - 44
    right = WIDTH - 12 - SAMPLE - 6 - widest(curves, 12) - MARGIN
    body = [text(24, 28, "Gb/s that the requests are worth, by payload", size=17, weight="bold"),
            text(24, 47, "both axes logarithmic; the bits that requests name or carry, which travel over no wire",
                 size=12, colour=FAINT)]
    for power in range(y_first, y_last + 1):
        y = at(10.0 ** power, y_first, y_last, bottom, top)
        body.append(line(left, y, right, y))
        body.append(text(left - 8, y + 4, power_text(power), "end", 12, FAINT))
    for size in sorted(set(sizes)):
        x = at(size, x_first, x_last, left, right)
        body.append(text(x, bottom + 18, size_text(size), "middle", 12, FAINT))
    colours = {}
    for i, (name, points) in enumerate(curves.items()):
        # What is carried is dashed, in the colour of the same that is named.
        colour = colours.setdefault(name.replace(CARRIED, ""), COLOURS[len(colours) % len(COLOURS)])
        places = [(at(size, x_first, x_last, left, right), at(rate, y_first, y_last, bottom, top))
                  for size, rate in points]
        dashes = ' stroke-dasharray="6 4"' if CARRIED in name else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        y = top + 22 * i + 7
        body += [stroke(right + 12, y, right + 12 + SAMPLE, y, colour, dashes),
                 text(right + 18 + SAMPLE, y + 4, name, size=12)]
    return svg(WIDTH, max(HEIGHT, top + 22 * len(curves) + 20), body)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="JSON of gpu_post_bench; - is standard input")
    parser.add_argument("folder", type=Path, help="where the plots go; made if it is not there")
    chosen = parser.parse_args(arguments)
    try:
        rows = read_rows(sys.stdin.read() if chosen.file == "-" else Path(chosen.file).read_text(encoding="utf-8"),
                         check_row)
        chosen.folder.mkdir(parents=True, exist_ok=True)
        for name, drawn in (("post-times.svg", plot_times(rows)), ("post-rates.svg", plot_rates(rows))):
            if drawn is None:
                continue
            (chosen.folder / name).write_text(drawn, encoding="utf-8")
            print(chosen.folder / name)
    except (Malformed, OSError, UnicodeDecodeError) as error:
        print(f"post_plot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
