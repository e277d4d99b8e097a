# SPDX-License-Identifier: Apache-2.0
"""Compares what was measured over several links."""
from claims import View
from late import too_many
from matrix import FREE
from pictures import links as picture_of
from reasons import SAME, TRANSFERS, difference, largest, percent, share, signed_time, stage_changes
from svg_shapes import time_text


def of_rows(rows):
    """All links, in the order of the rows."""
    return list(dict.fromkeys(row["link"] for row in rows if row["link"]))


def pairs(cells, slow, fast):
    """[(row over the slow link, row over the fast one)] of the cells that were measured over both."""
    found = [(slow.of(cell), fast.of(cell)) for cell in cells if not cell.links <= FREE]
    return [pair for pair in found if None not in pair]


def transports_of(both):
    return list(dict.fromkeys(slow.cell.transport for slow, _ in both))


def sentence(transport, both, first, other):
    """What the other link changes for one client, in the mean of all models."""
    mine = [pair for pair in both if pair[0].cell.transport == transport and pair[0].cell.clients == 1]
    judged = [pair for pair in mine if not any(too_many(row) for row in pair)]
    if not mine:
        return ""
    if not judged:
        return f"- {transport}: not judged: in all {len(mine)} cells the emulation was too slow for a link."
    changes = [difference(fast["total_mean"], slow["total_mean"]) for slow, fast in judged]
    mean = sum(changes) / len(changes)
    moved = [sum(share(row, TRANSFERS) for row in rows) / len(judged) for rows in zip(*judged)]
    late = f"; {len(mine) - len(judged)} more are late" if len(judged) < len(mine) else ""
    said = "takes as long" if abs(mean) <= SAME / 2 else f"takes {percent(mean)}"
    return f"- {transport}: a request {said} over {other} as against {first}, in the mean of {len(judged)} cells " \
           f"with one client; requests and responses take {moved[1]:.0f} % of it, over {first} {moved[0]:.0f} %{late}."


def line(slow, fast):
    cell = slow.cell
    late = ", ".join(f"{row['late_percent']:.1f} % late over {row['link']}" for row in (slow, fast) if too_many(row))
    return (cell.model, cell.transport, "raw" if cell.raw else "tensors", cell.clients, time_text(slow["total_mean"]),
            time_text(fast["total_mean"]), percent(difference(fast["total_mean"], slow["total_mean"])),
            largest(stage_changes(fast, slow), signed_time, 0.05), late)


def picture_text(both, folder, name):
    """Of the first model: one client, without a gateway."""
    simple = [pair for pair in both if pair[0].cell.clients == 1 and "/" not in pair[0]["transport"]]
    shown = [(row["link"], row) for pair in simple if pair[0]["model"] == simple[0][0]["model"] for row in pair]
    if not shown:
        return []
    title = f"{simple[0][0]['model']} over both links, one client"
    (folder / name).write_text(picture_of(title, shown), encoding="utf-8")
    return [f"![{title}]({name})", ""]


def text(cells, rows, links, table, folder):
    """A section for each further link; nothing with one link."""
    out = []
    for number, other in enumerate(links[1:], 1):
        both = pairs(cells, View(rows, links[0]), View(rows, other))
        if not both:
            continue
        out += [f"## {links[0]} and {other}", ""]
        out += picture_text(both, folder, f"links-{number}.svg")
        said = [sentence(transport, both, links[0], other) for transport in transports_of(both)]
        out += [each for each in said if each] + [""]
        titles = ("model", "transport", "request", "clients", links[0], other, "change", "stages", "notes")
        out += ["<details><summary>All cells</summary>", ""] + table(titles, [line(*pair) for pair in both])
        out += ["</details>", ""]
    return out
