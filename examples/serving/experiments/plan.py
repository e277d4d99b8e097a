# SPDX-License-Identifier: Apache-2.0
"""In which order cells are measured, and which of them share a running server.

A round measures all cells once, group by group; in a group each transport takes its turn, so that what drifts
meanwhile (clocks, temperature) meets all of them alike. A server runs as long as its group."""
from dataclasses import dataclass

from matrix import ALL_MODELS, CLIENTS, DIRECT, PAIRS, SHARING

MODELS = ALL_MODELS + ("digits",)
ORDER = DIRECT + PAIRS


@dataclass(frozen=True)
class Server:
    """What is the same of all cells that a model server serves."""
    model: str
    transport: str
    streams: int = 0
    sharing: str = "streams"
    raw: bool = False  # GPU-resident: its requests have one form
    gpus: int = 0      # of two stages

    @property
    def processes(self):
        """Contexts: as many as there are clients at most. A client of N has one of the first N."""
        return 1 if self.sharing == "streams" else CLIENTS[-1]


def server_of(cell):
    """None: `local` has no server of its own."""
    transport = cell.transport.split("/")[-1]
    if transport == "local":
        return None
    return Server(cell.model, transport, cell.streams, cell.sharing, cell.raw and transport == "gpu",
                  cell.gpus)


def group_of(cell):
    """A GPU-resident service never leaves the GPU, and contexts share it by turns: each of them runs alone."""
    resident = cell.transport.split("/")[-1] == "gpu"
    alone = resident or cell.sharing != "streams"
    return (MODELS.index(cell.model), SHARING.index(cell.sharing), cell.streams, cell.gpus, resident,
            cell.transport if alone else "", resident and cell.raw)


def place_of(cell):
    return (*group_of(cell), "/" in cell.transport, not cell.raw, cell.clients, cell.priority_clients,
            ORDER.index(cell.transport), cell.by_host)


def ordered(cells):
    return sorted(cells, key=place_of)


def mates(cells):
    """The first of these ordered cells, and those of its group."""
    return [cell for cell in cells if group_of(cell) == group_of(cells[0])]
