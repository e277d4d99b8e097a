# SPDX-License-Identifier: Apache-2.0
"""The first page of a report: what was measured, on what, and what it shows."""
import links as links_of
from claims import CLAIMS, VERDICTS
from late import too_many
from matrix import CLIENTS, NETWORK, VERBS, Cell
from pictures import count
from reasons import percent
from rounds import ENOUGH

PAPERS = ("gdr", "rdma")  # what the papers compare with their TCP, which is:
BASE = "zmq"
WHAT = "Hanafy et al. (IWQoS 2023) and Girondi et al. (EdgeSys 2024) served models over TCP, over RDMA, and over " \
    "RDMA into GPU memory; here their experiments are repeated. The TCP of Hanafy et al. is ZeroMQ, here `zmq`. " \
    "`tcp` and `shm` are transports that they did not have; `gpu` is a service that runs on the GPU alone."


def where_text(machine, links):
    using = [f"`{name}`" for name in machine.transports if name in VERBS]
    adapter = "softnic, an emulated one" if machine.emulated else "one of this machine"
    said = [f"Measured on {machine.gpu or 'a machine without a GPU'} ({machine.cpu}, {machine.cores} cores).",
            using and f"The adapter of {', '.join(using)} is {adapter}.",
            any(links) and f"The link is a model ({' and '.join(links)}).",
            machine.emulated and not any(links) and "Without a model of a link (`--link`) their times are the "
            "emulation's: no claim about them is judged.",
            "Clients and servers share a host, so no request meets a network's driver, interrupt or wire."]
    return " ".join(filter(None, said))


class Changes:
    """How much longer raw requests take than over `zmq`, in the mean of the models."""
    def __init__(self, view, models, clients):
        self.found = {name: self.of(view, name, models, clients) for name in NETWORK
                      if name not in {BASE} | view.baseless}

    def of(self, view, transport, models, clients):
        """(Estimate, models, of which late), or nothing."""
        pairs = [tuple(view.of(Cell(model, name, True, clients)) for name in (transport, BASE)) for model in models]
        pairs = [pair for pair in pairs if None not in pair]
        found = links_of.mean_change([row for pair in pairs for row in pair]) if pairs else None
        return (found, len(pairs), sum(any(map(too_many, pair)) for pair in pairs)) if found else None

    def text(self, names):
        """As "gdr −20.0 % [−21.0 %, −19.0 %]"; empty: there are none."""
        known = [name for name in names if self.found.get(name)]
        most = max((self.found[name][1] for name in known), default=0)
        return ", ".join(self.one(name, most) for name in known)

    def one(self, name, most):
        found, models, late = self.found[name]
        notes = [f"of {models} models"] * (models < most) + [f"late in {late} of {models}"] * bool(late)
        return f"{name} {found.text(percent)}" + (f" ({', '.join(notes)})" if notes else "")

    @property
    def models(self):
        return count(max((each[1] for each in self.found.values() if each), default=0), "model")


def sentences(view, models):
    """What it shows, in three sentences at most."""
    one, many = (Changes(view, models, clients) for clients in (CLIENTS[0], CLIENTS[-1]))
    others = [name for name in NETWORK if name not in PAPERS]
    out = []
    if said := one.text(PAPERS):
        out.append(f"The papers' comparison, against {BASE} with one client, raw requests, in the mean of "
                   f"{one.models}: {said}.")
    if said := one.text(others):
        out.append(f"What the papers did not compare, likewise: {said}{gain_text(one)}.")
    if said := many.text(PAPERS + tuple(others)):
        out.append(f"With {count(CLIENTS[-1], 'client')}, in the mean of {many.models}: {said}.")
    return out or [f"There are no figures of {BASE} and another transport to compare."]


def gain_text(changes):
    """How much of the time that gdr saves a good socket transport saves as well."""
    tcp, gdr = (changes.found.get(name) for name in ("tcp", "gdr"))
    if not tcp or not gdr or gdr[1] != tcp[1] or gdr[0].high >= 0:
        return ""
    return f"; tcp alone saves {100 * max(0.0, tcp[0].value / gdr[0].value):.0f} % of what gdr saves"


def verdicts_text(figures, view):
    found = [claim.check(view).verdict for figure in figures for claim in CLAIMS.get(figure.id, [])]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in VERDICTS)
    return f"Of {len(found)} claims: {counts}. A verdict needs {ENOUGH} rounds and a 95 % interval that settles it. " \
        "A change is confirmed if the interval excludes zero and the change has the paper's direction and at least " \
        "half of its size; claims of other kinds say what they need."


def page(overview, figures, view, links, machine):
    """What comes above its picture, and what below."""
    return [WHAT, "", where_text(machine, links) + links_of.paper_text(view.link), ""] \
        + [f"- {said}" for said in sentences(view, overview.models)] + [""], [verdicts_text(figures, view), ""]
