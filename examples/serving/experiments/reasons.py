# SPDX-License-Identifier: Apache-2.0
"""Why two cells differ, or do not: sentences that are made of their stages."""
from results import STAGES
from svg_shapes import time_text

TRANSFERS = ("request", "response")
RESIDENT = "GPU-resident (not broken down)"
MOST = 50.0         # percent of the total: what takes as much dominates
SAME = 10.0         # percent: what differs by less is equal
IDLE_GPU = 70.0     # percent: a GPU that works for less of the time waits for something
SHOWN = 3           # stages in a sentence
LEAST_POINTS = 2.0  # of a share that has changed
OVERLAP = 2.0       # percent: stages that add up to more beyond the total count some of the time twice


def stage_means(row):
    return {stage: row[f"{stage}_mean"] or 0.0 for stage in STAGES}


def broken_down(row):
    """A GPU-resident service computes without the host, which could mark stages: it has no inference."""
    return bool(row["inference_mean"])


def overlap(row):
    """By how many percent of the total its stages add up to more; less than 0: the rest."""
    return difference(sum(stage_means(row).values()), row["total_mean"])


def share(row, stages):
    """Percent of the total; None without one, or where the stages are not known."""
    if row is None or not row["total_mean"] or (not broken_down(row) and not set(stages) <= set(TRANSFERS)):
        return None
    means = stage_means(row)
    return 100 * sum(means[stage] for stage in stages) / row["total_mean"]


def percent(value):
    return f"{'+' if value >= 0 else '−'}{abs(value):.1f} %"


def points(value):
    return f"{'+' if value >= 0 else '−'}{abs(value):.0f} points"


def signed_time(microseconds):
    return f"{'+' if microseconds >= 0 else '−'}{time_text(abs(microseconds))}"


def difference(one, base):
    """In percent of `base`."""
    return 100 * (one / base - 1) if base else 0.0


def name_of(row):
    cell = row.cell
    parts = [cell.transport]
    if cell.streams:
        parts.append(f"{cell.streams} stream{'s' if cell.streams > 1 else ''}")
    if cell.sharing != "streams":
        parts.append(cell.sharing)
    if cell.gpus:
        parts.append(cell.stages_text)
    return ", ".join(parts)


def largest(changes, text, least):
    """The largest of {name: change}, as "copy +0.2 ms, request −12 µs"; empty: none is as large as `least`."""
    ordered = sorted(changes.items(), key=lambda one: -abs(one[1]))
    return ", ".join(f"{name} {text(change)}" for name, change in ordered[:SHOWN] if abs(change) >= least)


def stage_changes(one, base):
    """By which stages `one` differs, in µs; those that are not known of both are one, the rest."""
    ours, theirs = stage_means(one), stage_means(base)
    known = [stage for stage in STAGES if stage in TRANSFERS or (broken_down(one) and broken_down(base))]
    changes = {stage: ours[stage] - theirs[stage] for stage in known}
    rest = one["total_mean"] - base["total_mean"] - sum(changes.values())
    return changes | {"rest" if broken_down(one) and broken_down(base) else RESIDENT: rest}


def link_text(one, base):
    """Where requests and responses take most of both; else empty."""
    shares = [share(row, TRANSFERS) for row in (one, base)]
    return f"requests and responses take {shares[0]:.0f} % and {shares[1]:.0f} %" if min(shares) >= MOST else ""


def inference_text(one, base):
    """Where inference takes most of both; else empty."""
    if not broken_down(one) or not broken_down(base):
        return ""
    shares = [share(row, ("inference",)) for row in (one, base)]
    if min(shares) < MOST:
        return ""
    change = difference(one["inference_mean"], base["inference_mean"])
    same = "is equal" if abs(change) <= SAME else f"differs by {percent(change)}, which is not the transport's doing"
    return f"inference takes {shares[0]:.0f} % and {shares[1]:.0f} % and {same}" + idle_text(one, base)


def idle_text(one, base):
    used = [row["gpu_utilisation"] for row in (one, base)]
    if None in used or max(used) >= IDLE_GPU:
        return ""
    return f", while the GPU works for {used[0]:.0f} % and {used[1]:.0f} % of the time"


def of_pair(one, base):
    """Why the totals of these differ as they do."""
    changes = largest(stage_changes(one, base), signed_time, 0.05) or "all stages are equal"
    return "; ".join(filter(None, [f"{name_of(one)} against {name_of(base)}: {changes}",
                                   link_text(one, base) or inference_text(one, base)]))


def of_shares(one, base, labels=None):
    """Which stages' shares differ."""
    labels = labels or (name_of(one), name_of(base))
    known = [stage for stage in STAGES if share(one, (stage,)) is not None and share(base, (stage,)) is not None]
    changes = {stage: share(one, (stage,)) - share(base, (stage,)) for stage in known}
    said = largest(changes, points, LEAST_POINTS) or "all stages have the same share"
    return f"{labels[0]} against {labels[1]}: {said}"


def of_growth(few, many):
    return of_shares(many, few, (f"{many.cell.clients} clients", f"{few.cell.clients}"))


def of_spread(one, base):
    """Of coefficients of variation: how much of them is inference's."""
    def said(row):
        part = share(row, ("inference",))
        if part is None:
            return f"{name_of(row)}: {RESIDENT}"
        return f"{name_of(row)}: inference takes {part:.0f} %, CoV {row['inference_cov'] or 0:.2f}"
    return "; ".join(said(row) for row in (one, base))


CPU_PARTS = {"server_user": "server's user", "server_kernel": "server's OS", "client_user": "client's user",
             "client_kernel": "client's OS"}


def cpu_of(row):
    parts = [row[name] for name in CPU_PARTS]
    return None if None in parts else sum(parts)


def of_cpu(one, base):
    said = largest({name: one[key] - base[key] for key, name in CPU_PARTS.items()}, signed_time, 0.05)
    return f"{name_of(one)} against {name_of(base)}: " + (f"{said} time" if said else "all parts are equal")


def of_one(row):
    """Where the time of one cell goes."""
    means = {stage: share(row, (stage,)) for stage in STAGES}
    ordered = sorted(((value, stage) for stage, value in means.items() if value is not None), reverse=True)
    said = ", ".join(f"{stage} {value:.0f} %" for value, stage in ordered[:SHOWN])
    used = row["gpu_utilisation"]
    return f"with {row.cell.clients} clients {said} of the total" \
        + ("" if used is None else f"; the GPU works for {used:.0f} % of the time")
