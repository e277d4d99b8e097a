# SPDX-License-Identifier: Apache-2.0
"""What a report says of modelled links, and compares of several."""
import late as lateness
from claims import View
from late import WORST, too_many
from matrix import FREE
from pictures import links as picture_of
from reasons import SAME, TRANSFERS, difference, largest, percent, share, signed_time, stage_changes
from rounds import estimate
from svg_shapes import time_text


PAPER_RATE = "25Gb/s"  # of Hanafy et al.


def tag(link):
    """In the names of pictures, so that reports of several links stand in one manual: "100G"."""
    return link.split(",")[0].removesuffix("b/s")


def rate_text(link):
    return f"{tag(link)[:-1]} {tag(link)[-1]}b/s"


def title(links):
    """After a heading; empty without a link."""
    rates = dict.fromkeys(rate_text(link) for link in links if link)
    return f", at {' and '.join(rates)}" if rates else ""


def paper_text(link):
    """Where the figures' link is not the paper's; else empty."""
    if not link or link.split(",")[0] == PAPER_RATE:
        return ""
    return f" Hanafy et al. had a link of {rate_text(PAPER_RATE)}, and this one has {rate_text(link)}: a claim about " \
        "the time of transfers may be smaller here without being wrong."


def late_text(rows, links):
    """How many cells over these links the emulation was too slow for; empty: no cell has a link."""
    over = [row for row in rows if row["link"] and row["link"] in links and row.good]
    late = sum(1 for row in over if too_many(row))
    return f"In {late} of {len(over)} cells over a modelled link more than {WORST:g} % of the messages were late." \
        if over else ""


def of_rows(rows):
    """All links, in the order of the rows."""
    return list(dict.fromkeys(row["link"] for row in rows if row["link"]))


def pairs(cells, slow, fast):
    """[(row over the slow link, row over the fast one)] of the cells that were measured over both."""
    found = [(slow.of(cell), fast.of(cell)) for cell in cells if not cell.links <= FREE]
    return [pair for pair in found if None not in pair]


def transports_of(both):
    return list(dict.fromkeys(slow.cell.transport for slow, _ in both))


def mean_change(rows):
    """By how many percent the first, third … of these cells take longer than the second, fourth …, in the mean."""
    def measure(means):
        changes = [difference(one["total_mean"], base["total_mean"]) for one, base in zip(means[::2], means[1::2])]
        return sum(changes) / len(changes)
    return estimate(measure, rows)


def sentence(transport, both, first, other):
    """What the other link changes for one client, in the mean of all models."""
    mine = [pair for pair in both if pair[0].cell.transport == transport and pair[0].cell.clients == 1]
    judged = [pair for pair in mine if not any(too_many(row) for row in pair)]
    if not mine:
        return ""
    if not judged:
        return f"- {transport}: not judged: in all {len(mine)} cells the emulation was too slow for a link."
    found = mean_change([row for slow, fast in judged for row in (fast, slow)])
    if found is None:
        return f"- {transport}: no round has all of these cells."
    moved = [sum(share(row, TRANSFERS) for row in rows) / len(judged) for rows in zip(*judged)]
    late = f"; {len(mine) - len(judged)} more are late" if len(judged) < len(mine) else ""
    same = "as long" if abs(found.value) <= SAME / 2 else percent(found.value)
    said = f"takes {same}{found.interval_text(percent)}"
    return f"- {transport}: a request {said} over {other} as against {first}, in the mean of {len(judged)} cells " \
           f"with one client; requests and responses take {moved[1]:.0f} % of it, over {first} {moved[0]:.0f} %{late}."


def line(slow, fast):
    cell = slow.cell
    late = ", ".join(f"{lateness.text(row)} over {row['link']}" for row in (slow, fast) if too_many(row))
    return (cell.model, cell.transport, "raw" if cell.raw else "tensors", cell.clients, time_text(slow["total_mean"]),
            time_text(fast["total_mean"]), percent(difference(fast["total_mean"], slow["total_mean"])),
            largest(stage_changes(fast, slow), signed_time, 0.05), late)


def picture_text(both, folder, name):
    """Of the first model: one client, without a gateway."""
    simple = [pair for pair in both if pair[0].cell.clients == 1 and "/" not in pair[0]["transport"]]
    shown = [(row["link"], row) for pair in simple if pair[0]["model"] == simple[0][0]["model"] for row in pair]
    if not shown:
        return []
    heading = f"{simple[0][0]['model']} over both links, one client"
    (folder / name).write_text(picture_of(heading, shown), encoding="utf-8")
    return [f"![{heading}]({name})", ""]


def text(cells, rows, links, table, folder):
    """A section for each further link; nothing with one link."""
    out = []
    for number, other in enumerate(links[1:], 1):
        both = pairs(cells, View(rows, links[0]), View(rows, other))
        if not both:
            continue
        out += [f"## {links[0]} and {other}", ""]
        out += picture_text(both, folder, f"links-{number}-{tag(links[0])}-{tag(other)}.svg")
        said = [sentence(transport, both, links[0], other) for transport in transports_of(both)]
        out += [each for each in said if each] + [""]
        titles = ("model", "transport", "request", "clients", links[0], other, "change", "stages", "notes")
        out += ["<details><summary>All cells</summary>", ""] + table(titles, [line(*pair) for pair in both])
        out += ["</details>", ""]
    return out
