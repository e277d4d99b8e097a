#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws where the time of a request goes, from what `./run gpu-bench` wrote: stage_plot.py FILE.json FOLDER.

One SVG for each payload and number of clients, and for each network where rows name one, with a bar for each
backend and way, its stages stacked."""
import argparse
import json
import math
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from svg_shapes import FAINT, GRID, INK, legend, rectangle, size_text, svg, text, tick_step, time_text

# Colour-blind safe (Okabe and Ito); the rest of the total, no stage of its own, is grey.
STAGES = [
    ("request_us", "request", "#56b4e9"),
    ("copy_us", "copy", "#d55e00"),
    ("preprocessing_us", "preprocessing", "#e69f00"),
    ("inference_us", "inference", "#009e73"),
    ("response_us", "response", "#0072b2"),
]
REST = ("queue and rest", "#c8c8c8")
NUMBERS = [key for key, _, _ in STAGES] + ["total_us", "cpu_us_per_request"]
WORDS = ["network", "way"]  # which a row may have

LEFT, RIGHT, TOP, BAR, STEP = 150, 150, 84, 26, 46
WIDTH = 820
SPAN = WIDTH - LEFT - RIGHT


class Malformed(Exception):
    """The file is not what gpu-bench writes; the text says where."""


def check_row(row, number):
    """The row, its numbers being finite and not negative."""
    if not isinstance(row, dict) or not isinstance(row.get("backend"), str):
        raise Malformed(f"row {number}: without a backend")
    for key in ["payload_bytes", "clients"] + NUMBERS:
        value = row.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise Malformed(f"row {number}: {key} is {value!r}, not a number of at least 0")
    for key in WORDS:
        if not isinstance(row.get(key, ""), str):
            raise Malformed(f"row {number}: {key} is {row[key]!r}, not text")
    return row


def read_rows(text, check=check_row):
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise Malformed(f"no JSON: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise Malformed("not an array of rows")
    return [check(row, number) for number, row in enumerate(rows, 1)]


def groups(rows):
    """Rows of one plot: {(payload_bytes, clients, network): rows}, in the order of these three."""
    found = {}
    for row in rows:
        found.setdefault((row["payload_bytes"], row["clients"], row.get("network", "")), []).append(row)
    return dict(sorted(found.items()))


def segments(row):
    """(name, colour, microseconds) from left to right. The last is the rest of the total: medians need not add up."""
    parts = [(name, colour, row[key]) for key, name, colour in STAGES]
    return parts + [(*REST, max(0.0, row["total_us"] - sum(part[2] for part in parts)))]


def length_of(row):
    return sum(part[2] for part in segments(row))


def axis(longest, bottom):
    """Grid lines with their times, behind the bars."""
    step = tick_step(longest)
    out = []
    for i in range(int(longest / step * (1 + 1e-9)) + 1):
        x = LEFT + i * step / longest * SPAN
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="{GRID}"/>')
        out.append(text(x, bottom + 18, time_text(i * step) if i else "0", "middle", 12, FAINT))
    return out


def bar(row, y, longest):
    name = row["backend"] + (" (emulated)" if row.get("emulated") else "")
    way = row.get("way", "")
    out = [text(LEFT - 12, y + BAR / 2 + (0 if way else 5), name, "end", 14)]
    if way:
        out.append(text(LEFT - 12, y + BAR / 2 + 14, way, "end", 11, FAINT))
    x = LEFT
    for name, colour, microseconds in segments(row):
        width = microseconds / longest * SPAN
        if width > 0:
            out.append(rectangle(x, y, width, BAR, colour, f"{name} {time_text(microseconds)}"))
        x += width
    out.append(text(x + 8, y + BAR / 2, time_text(row["total_us"]), size=13, weight="bold"))
    out.append(text(x + 8, y + BAR / 2 + 14, f"CPU {time_text(row['cpu_us_per_request'])}", size=11, colour=FAINT))
    return out


def plot(payload, clients, rows, network=""):
    """The SVG's text. Rows without any time have bars of no length."""
    longest = max(length_of(row) for row in rows) or 1.0
    bottom = TOP + STEP * len(rows) - (STEP - BAR) + 8
    title = f"{size_text(payload)} requests, {clients:g} client{'' if clients == 1 else 's'}"
    body = [text(LEFT, 28, f"{network}: {title}" if network else title, size=17, weight="bold"),
            text(LEFT, 47, "time of a request by stage; at the bars: total, and CPU time per request", size=12,
                 colour=FAINT)]
    body += legend([(name, colour) for _, name, colour in STAGES] + [REST], LEFT)[0]
    body += axis(longest, bottom)
    for i, row in enumerate(rows):
        body += bar(row, TOP + i * STEP, longest)
    body.append(f'<line x1="{LEFT}" y1="{TOP - 8}" x2="{LEFT}" y2="{bottom}" stroke="{INK}"/>')
    height = bottom + 30
    return svg(WIDTH, height, body)


def file_name(payload, clients, network=""):
    """What a file's name should not have in it is left out of the network's."""
    safe = re.sub(r"[^a-z0-9_]+", "-", network.lower()).strip("-")
    return f"stages-{safe + '-' if safe else ''}{payload:.0f}-bytes-{clients:g}-clients.svg"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="JSON of ./run gpu-bench; - is standard input")
    parser.add_argument("folder", type=Path, help="where the plots go; made if it is not there")
    chosen = parser.parse_args(arguments)
    try:
        rows = read_rows(sys.stdin.read() if chosen.file == "-" else Path(chosen.file).read_text(encoding="utf-8"))
        chosen.folder.mkdir(parents=True, exist_ok=True)
        for (payload, clients, network), members in groups(rows).items():
            path = chosen.folder / file_name(payload, clients, network)
            path.write_text(plot(payload, clients, members, network), encoding="utf-8")
            print(path)
    except (Malformed, OSError, UnicodeDecodeError) as error:
        print(f"stage_plot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
