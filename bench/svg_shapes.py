#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shapes of the pictures that this repository draws, as SVG text: bars of stacked parts, and curves."""
import math
from xml.sax.saxutils import escape

INK, FAINT, GRID = "#222222", "#666666", "#dddddd"
# Colour-blind safe (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#222222"]
WIDTH, MARGIN, TOP, BAR, STEP = 820, 24, 84, 22, 32
HEIGHT = 420
SAMPLE, LEGEND_STEP = 22, 18  # of a legend: the width of a sample, and the distance of its lines


def tick_step(longest):
    """A step of 1, 2 or 5 times a power of ten that makes three to nine ticks."""
    rough = longest / 8
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def time_text(microseconds):
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= 0.9995 * factor:  # else three digits would say 1e+03
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def size_text(size):
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"


def percent_text(value):
    return f"{value:.3g} %"


def width_of(content, size, bold=False):
    """As wide as DejaVu Sans draws it, or a little wider: of the common fonts it is the widest."""
    narrow, wide = sum(each in " iljftrI.,:;'()[]/|-" for each in content), sum(each in "mwMW%×" for each in content)
    capitals = sum(each.isupper() and each not in "IMW" for each in content)
    ems = 0.42 * narrow + wide + 0.79 * capitals + 0.64 * (len(content) - narrow - wide - capitals)
    return ems * size * (1.12 if bold else 1)


def widest(contents, size, bold=False):
    return max((width_of(content, size, bold) for content in contents), default=0)


def text(x, y, content, anchor="start", size=13, colour=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" '
            f'font-weight="{weight}" stroke="white" stroke-width="4" paint-order="stroke">{escape(content)}</text>')


def rectangle(x, y, width, height, colour, title=""):
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{colour}">{inner}</rect>'


def line(x1, y1, x2, y2, colour=GRID):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def svg(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="Helvetica, Arial, sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(body) + "\n</svg>\n")


def titles(title, subtitle):
    return [text(MARGIN, 28, title, size=17, weight="bold"), text(MARGIN, 47, subtitle, size=12, colour=FAINT)]


def legend(names, x=MARGIN, y=57, right=WIDTH - MARGIN):
    """`names`: (name, colour). Returns the shapes, and how many lines they take."""
    out, at_x, lines = [], x, 1
    for name, colour in names:
        taken = 17 + width_of(name, 12)
        if at_x > x and at_x + taken > right:
            at_x, lines = x, lines + 1
        at_y = y + LEGEND_STEP * (lines - 1)
        out += [rectangle(at_x, at_y, 12, 12, colour), text(at_x + 17, at_y + 11, name, size=12)]
        at_x += taken + 16
    return out, lines


def interval(x1, y1, x2, y2):
    """A thin line with caps: where a measured value lies."""
    cap = (0, 3) if y1 == y2 else (3, 0)
    return [line(x1, y1, x2, y2, INK)] + [line(x - cap[0], y - cap[1], x + cap[0], y + cap[1], INK)
                                          for x, y in ((x1, y1), (x2, y2))]


def extent(row):
    """The largest value that is drawn of it."""
    _, parts, _, *ends = row
    return max([sum(value for _, _, value in parts), *(end for each in ends for end in each or ())])


def stack(row, left, y, height, scale, unit, size=12):
    """The parts of a row, its interval, and its text; `scale`: pixels of a unit."""
    name, parts, said, *ends = row
    middle = y + height / 2
    out, x = [text(left - 10, middle + 0.38 * size, name, "end", size)], left
    for part, colour, value in parts:
        if value > 0:
            out.append(rectangle(x, y, value * scale, height, colour, f"{part} {unit(value)}"))
            x += value * scale
    for low, high in filter(None, ends):
        out += interval(left + low * scale, middle, left + high * scale, middle)
    return out + [text(left + extent(row) * scale + 6, middle + 4, said, size=12, weight="bold")]


def legend_of(rows, y=57):
    """Of every colour in the rows; none for a single one. Returns as `legend`."""
    names = {part: colour for _, parts, *_ in rows for part, colour, value in parts if value > 0}
    return legend(names.items(), y=y) if len(names) > 1 else ([], 1)


def bars(title, subtitle, rows, unit=time_text):
    """`rows`: (name, [(part, colour, value)], text at the end), and maybe (low, high): an interval of the sum. The
    parts of a row lie end to end."""
    longest = max(map(extent, rows), default=0) or 1.0
    left = MARGIN + widest((row[0] for row in rows), 13) + 10
    span = WIDTH - left - 6 - widest((row[2] for row in rows), 12, bold=True) - MARGIN
    explained, lines = legend_of(rows)
    top = TOP + LEGEND_STEP * (lines - 1)
    bottom = top + STEP * len(rows)
    body = titles(title, subtitle) + explained
    step = tick_step(longest)
    for i in range(int(longest / step * (1 + 1e-9)) + 1):
        x = left + i * step / longest * span
        body += [line(x, top - 8, x, bottom), text(x, bottom + 18, unit(i * step) if i else "0", "middle", 12, FAINT)]
    for i, row in enumerate(rows):
        body += stack(row, left, top + i * STEP, BAR, span / longest, unit, 13)
    return svg(WIDTH, bottom + 34, body + [line(left, top - 8, left, bottom, INK)])


PANEL_BAR, PANEL_STEP = 12, 17


def panels(title, subtitle, groups, unit=time_text):
    """`groups`: (name, rows as those of `bars`); two panels stand beside each other, each with its own scale."""
    rows = [row for _, members in groups for row in members]
    explained, lines = legend_of(rows)
    width, y = (WIDTH - 3 * MARGIN) / 2, TOP + LEGEND_STEP * (lines - 1)
    left = widest((row[0] for row in rows), 12) + 10
    span = width - left - 6 - widest((row[2] for row in rows), 12, bold=True)
    body = titles(title, subtitle) + explained
    for pair in (groups[i:i + 2] for i in range(0, len(groups), 2)):
        for column, (name, members) in enumerate(pair):
            x = MARGIN + column * (width + MARGIN)
            scale = span / (max(map(extent, members), default=0) or 1.0)
            body.append(text(x, y + 12, name, size=13, weight="bold"))
            for i, row in enumerate(members):
                body += stack(row, x + left, y + 22 + i * PANEL_STEP, PANEL_BAR, scale, unit)
            body.append(line(x + left, y + 19, x + left, y + 20 + PANEL_STEP * len(members), INK))
        y += 22 + PANEL_STEP * max(len(members) for _, members in pair) + 16
    return svg(WIDTH, y, body)


def stroke(x1, y1, x2, y2, colour, dashes=""):
    """The sample of a curve in a legend."""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="3"{dashes}/>')


def curves(title, subtitle, lines, x_name, unit=time_text):
    """`lines`: {name: [(x, y)]}, both axes linear and from 0; a point may be (x, y, low, high) with its interval."""
    points = [point for each in lines.values() for point in each]
    longest = max((point[0] for point in points), default=0) or 1.0
    highest = max((max(point[1:]) for point in points), default=0) or 1.0
    left, top, bottom = 90, 70, HEIGHT - 56
    right = WIDTH - 16 - SAMPLE - 6 - widest(lines, 12) - MARGIN
    at_x = lambda x: left + x / longest * (right - left)
    at_y = lambda y: bottom - y / highest * (bottom - top)
    body = titles(title, subtitle)
    step = tick_step(highest)
    for i in range(int(highest / step * (1 + 1e-9)) + 1):
        y = at_y(i * step)
        body += [line(left, y, right, y), text(left - 8, y + 4, unit(i * step) if i else "0", "end", 12, FAINT)]
    all_x, step = sorted({point[0] for point in points}), tick_step(longest)
    for x in all_x if len(all_x) < 12 else [step * i for i in range(int(longest / step * (1 + 1e-9)) + 1)]:
        body.append(text(at_x(x), bottom + 18, f"{x:.4g}", "middle", 12, FAINT))
    body.append(text((left + right) / 2, bottom + 40, x_name, "middle", 12, FAINT))
    for i, (name, each) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        dashes = ' stroke-dasharray="6 3"' if i >= len(COLOURS) else ""
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y, *_ in each)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        for x, y, *ends in each:
            if ends:
                body += interval(at_x(x), at_y(ends[0]), at_x(x), at_y(ends[1]))
            body.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}">'
                        f"<title>{escape(name)}, {x:g}: {escape(unit(y))}</title></circle>")
        y = top + 20 * i
        body += [stroke(right + 16, y, right + 16 + SAMPLE, y, colour, dashes),
                 text(right + 22 + SAMPLE, y + 4, name, size=12)]
    return svg(WIDTH, HEIGHT, body + [line(left, bottom, right, bottom, INK)])
