#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shapes of the pictures that this repository draws, as SVG text: bars of stacked parts, and curves."""
import math
from xml.sax.saxutils import escape

INK, FAINT, GRID = "#222222", "#666666", "#dddddd"
# Colour-blind safe (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#222222"]
WIDTH, LEFT, RIGHT, TOP, BAR, STEP = 820, 230, 110, 84, 22, 32
HEIGHT = 420


def tick_step(longest):
    """A step of 1, 2 or 5 times a power of ten that makes three to nine ticks."""
    rough = longest / 8
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def time_text(microseconds):
    if microseconds >= 1000:
        return f"{microseconds / 1000:.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.3g} s"
    return f"{microseconds:.3g} µs"


def size_text(size):
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"


def percent_text(value):
    return f"{value:.3g} %"


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
    return [text(24, 28, title, size=17, weight="bold"), text(24, 47, subtitle, size=12, colour=FAINT)]


def legend(names, x=LEFT, y=57):
    """`names`: (name, colour)."""
    out = []
    for name, colour in names:
        out += [rectangle(x, y, 12, 12, colour), text(x + 17, y + 11, name, size=12)]
        x += 40 + 6.6 * len(name)
    return out


def bars(title, subtitle, rows, unit=time_text):
    """`rows`: (name, [(part, colour, value)], text at the end); the parts of a row lie end to end."""
    longest = max((sum(value for _, _, value in parts) for _, parts, _ in rows), default=0) or 1.0
    span, bottom = WIDTH - LEFT - RIGHT, TOP + STEP * len(rows)
    names = {part: colour for _, parts, _ in rows for part, colour, value in parts if value > 0}
    body = titles(title, subtitle) + (legend(names.items()) if len(names) > 1 else [])
    step = tick_step(longest)
    for i in range(int(longest / step * (1 + 1e-9)) + 1):
        x = LEFT + i * step / longest * span
        body += [line(x, TOP - 8, x, bottom), text(x, bottom + 18, unit(i * step) if i else "0", "middle", 12, FAINT)]
    for i, (name, parts, end) in enumerate(rows):
        x, y = LEFT, TOP + i * STEP
        body.append(text(LEFT - 10, y + 16, name, "end"))
        for part, colour, value in parts:
            if value > 0:
                body.append(rectangle(x, y, value / longest * span, BAR, colour, f"{part} {unit(value)}"))
                x += value / longest * span
        body.append(text(x + 6, y + 16, end, size=12, weight="bold"))
    return svg(WIDTH, bottom + 34, body + [line(LEFT, TOP - 8, LEFT, bottom, INK)])


def curves(title, subtitle, lines, x_name, unit=time_text):
    """`lines`: {name: [(x, y)]}, both axes linear and from 0."""
    points = [point for each in lines.values() for point in each]
    widest = max((x for x, _ in points), default=0) or 1.0
    highest = max((y for _, y in points), default=0) or 1.0
    left, right, top, bottom = 90, WIDTH - 230, 70, HEIGHT - 56
    at_x = lambda x: left + x / widest * (right - left)
    at_y = lambda y: bottom - y / highest * (bottom - top)
    body = titles(title, subtitle)
    step = tick_step(highest)
    for i in range(int(highest / step * (1 + 1e-9)) + 1):
        y = at_y(i * step)
        body += [line(left, y, right, y), text(left - 8, y + 4, unit(i * step) if i else "0", "end", 12, FAINT)]
    all_x = sorted({x for x, _ in points})
    for x in all_x if len(all_x) < 12 else [widest * i / 4 for i in range(5)]:
        body.append(text(at_x(x), bottom + 18, f"{x:.4g}", "middle", 12, FAINT))
    body.append(text((left + right) / 2, bottom + 40, x_name, "middle", 12, FAINT))
    for i, (name, each) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        dashes = ' stroke-dasharray="6 3"' if i >= len(COLOURS) else ""
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in each)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        body += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}">'
                 f"<title>{escape(name)}, {x:g}: {escape(unit(y))}</title></circle>" for x, y in each]
        body += legend([(name, colour)], right + 16, top + 20 * i)
    return svg(WIDTH, HEIGHT, body + [line(left, bottom, right, bottom, INK)])
