# SPDX-License-Identifier: Apache-2.0
"""The experiments: what varies in each figure of the papers, and what is fixed.

Source: Hanafy et al., IWQoS 2023 (F5 … F17); Girondi et al., EdgeSys 2024 (G1, G2, G6, G7). The TCP of Hanafy et al. is
ZeroMQ, here `zmq`; `tcp` and `shm` are further columns."""
from dataclasses import asdict, dataclass, field, replace

# The models of Hanafy et al.; Girondi et al. have one more.
PAPER_MODELS = ("mobilenet_v3", "resnet50", "efficientnet_b0", "wide_resnet101", "yolo_v4", "deeplab_v3")
ALL_MODELS = PAPER_MODELS + ("super_resolution",)
FREE = {"local", "shm"}  # over no link
VERBS = {"rdma", "gdr", "gpu"}  # over an adapter, or an emulated one
NETWORK = ("tcp", "zmq", "shm", "rdma", "gdr", "gpu")
DIRECT = ("local",) + NETWORK
# Client to gateway, gateway to server.
PAIRS = ("rdma/gdr", "rdma/rdma", "zmq/gdr", "zmq/rdma", "zmq/zmq", "tcp/gdr", "tcp/tcp")
CLIENTS = (1, 2, 4, 8, 16)
STREAMS = (1, 2, 4, 8, 16)
SHARING = ("streams", "contexts", "mps")
GPUS_TEXT = {1: "one GPU", 2: "two GPUs"}  # of two stages


@dataclass(frozen=True)
class Cell:
    """One measurement: a server, maybe a gateway, and clients in a closed loop."""
    model: str
    transport: str          # "tcp", or "rdma/gdr" through the gateway
    raw: bool = False
    clients: int = 1
    streams: int = 0        # 0: one for each client
    sharing: str = "streams"
    priority_clients: int = 0
    gpus: int = 0           # not 0: clients preprocess, on the first of so many GPUs; the server infers on the last
    by_host: bool = False   # such clients send from the host

    @property
    def key(self):
        parts = [self.model, self.transport.replace("/", "+"), "raw" if self.raw else "tensors", f"{self.clients}c"]
        if self.streams:
            parts.append(f"{self.streams}s")
        if self.sharing != "streams":
            parts.append(self.sharing)
        if self.priority_clients:
            parts.append(f"{self.priority_clients}high")
        if self.gpus:
            parts.append(f"{self.gpus}gpus")
        if self.by_host:
            parts.append("host")
        return "-".join(parts)

    @property
    def links(self):
        """The transports that it needs."""
        return set(self.transport.split("/"))

    def link_of(self, link):
        """The link that it meets; empty: none."""
        return "" if self.gpus or self.links <= FREE else link

    @property
    def stages_text(self):
        """Where two stages are; empty: there is one."""
        return (GPUS_TEXT[self.gpus] if self.gpus else "") + (", by the host" if self.by_host else "")


@dataclass(frozen=True)
class Figure:
    """`models`, `transports` …: what varies. Every combination is a cell."""
    id: str
    title: str
    models: tuple = ("resnet50",)
    transports: tuple = DIRECT
    raw: tuple = (True, False)
    clients: tuple = (1,)
    streams: tuple = (0,)
    sharing: tuple = ("streams",)
    priority_clients: int = 0
    gpus: tuple = (0,)
    gpu_only: bool = False
    shows: str = ""

    def cells(self):
        return [Cell(model, transport, raw, clients, streams, sharing, self.priority_clients, gpus, by_host)
                for model in self.models for raw in self.raw for sharing in self.sharing for streams in self.streams
                for gpus in self.gpus for transport in self.transports
                for by_host in ((False, True) if gpus and transport == "shm" else (False,))  # others always are
                for clients in self.clients]


FIGURES = {figure.id: figure for figure in (
    Figure("overview", "All models and transports, raw requests", models=PAPER_MODELS, raw=(True,),
           clients=(CLIENTS[0], CLIENTS[-1]), shows="stages"),
    Figure("F5", "Total time of ResNet50, one client", shows="totals"),
    Figure("F6", "Where the time of ResNet50 goes, one client", shows="stages"),
    Figure("F7", "What a transport adds to local processing", models=PAPER_MODELS, shows="overhead"),
    Figure("F8", "Share of each stage", models=PAPER_MODELS, shows="shares"),
    Figure("F9", "CPU time of a request", models=PAPER_MODELS, shows="cpu"),
    Figure("F10", "MobileNetV3 through the gateway, one client", models=("mobilenet_v3",), transports=PAIRS,
           raw=(True,), shows="spread"),
    Figure("F11", "Total time by number of clients", models=("mobilenet_v3", "deeplab_v3"), transports=NETWORK,
           raw=(True,), clients=CLIENTS, shows="clients"),
    Figure("F12", "Share of each stage by number of clients, MobileNetV3", models=("mobilenet_v3",),
           transports=NETWORK, raw=(True,), clients=CLIENTS, shows="shares"),
    Figure("F13", "Share of each stage by number of clients, DeepLabV3", models=("deeplab_v3",), transports=NETWORK,
           raw=(True,), clients=CLIENTS, shows="shares"),
    Figure("F14", "Through the gateway, by number of clients, MobileNetV3", models=("mobilenet_v3",),
           transports=PAIRS, raw=(True,), clients=CLIENTS, shows="clients"),
    Figure("F15", "Streams that clients share, ResNet50", transports=("gdr", "rdma"), raw=(True,), clients=CLIENTS,
           streams=STREAMS, gpu_only=True, shows="streams"),
    Figure("F16", "One client of high priority, YoloV4", models=("yolo_v4",), transports=("gdr", "rdma"),
           raw=(False,), clients=CLIENTS[1:], priority_clients=1, gpu_only=True, shows="priority"),
    Figure("F17", "Streams, contexts and MPS, EfficientNetB0", models=("efficientnet_b0",),
           transports=("gdr", "rdma"), raw=(True,), clients=CLIENTS, sharing=SHARING, gpu_only=True,
           shows="sharing"),
    Figure("G1", "Bandwidth that a model asks for", models=PAPER_MODELS, transports=("local",), raw=(False,),
           shows="bandwidth"),
    Figure("G2", "Inference times by number of clients", models=("mobilenet_v3",), transports=("local",),
           raw=(False,), clients=CLIENTS, shows="distribution"),
    Figure("G6", "Handlers on the CPU against a GPU-resident service", models=("resnet50", "super_resolution"),
           transports=("rdma", "gdr", "gpu"), raw=(False,), gpu_only=True, shows="mediation"),
    Figure("G7", "CPU time of serving", models=("resnet50",), transports=("zmq", "tcp", "rdma", "gdr", "gpu"),
           raw=(False,), shows="cpu"),
    Figure("pipelines", "Preprocessing on one GPU, inference there or on another",
           models=("mobilenet_v3", "resnet50"), transports=("shm", "tcp", "zmq"), raw=(False,), gpus=(1, 2),
           gpu_only=True, shows="pipelines"),
)}


@dataclass
class Machine:
    """What can be run here."""
    transports: tuple = ("local", "tcp")
    gpu: str = ""                               # its name; empty: none
    gpus: int = 0
    models: dict = field(default_factory=dict)  # {name: kind}; kinds: builtin, synthetic, torchscript, aoti
    gateway: bool = False
    mps: bool = False
    emulated: bool = False                      # rdma, gdr and gpu run on softnic
    cpu: str = ""
    cores: int = 0

    @property
    def device(self):
        """What computes: rows of different ones are not compared."""
        return self.gpu or self.cpu

    def document(self):
        return asdict(self)

    @staticmethod
    def of(document):
        known = Machine().document()
        return Machine(**{key: tuple(value) if key == "transports" else value for key, value in document.items()
                          if key in known})


def why_not(cell, figure, machine):
    """Why the cell cannot be measured here; empty: it can."""
    if figure.gpu_only and not machine.gpu:
        return "needs a GPU"
    missing = sorted(cell.links - set(machine.transports))
    if missing:
        return f"no {', '.join(missing)} here"
    if "/" in cell.transport and not machine.gateway:
        return "no gateway was built"
    if cell.model not in machine.models:
        return f"no model {cell.model}"
    if cell.sharing == "mps" and not machine.mps:
        return "no nvidia-cuda-mps-control"
    if cell.gpus > machine.gpus:
        return f"needs {GPUS_TEXT[cell.gpus]}"
    return ""


def quick(figure):
    """Fewer models and clients, of the same figure."""
    models = tuple(name for name in figure.models if name in ("mobilenet_v3", "resnet50", "deeplab_v3"))
    return replace(figure, models=models or figure.models[:1], clients=tuple(n for n in figure.clients if n in (1, 4))
                   or figure.clients[:1], streams=figure.streams[::4] or figure.streams)


def stand_ins(figure, machine):
    """Where none of the figure's models is here, digits takes their place."""
    if any(model in machine.models for model in figure.models) or "digits" not in machine.models:
        return figure
    return replace(figure, models=("digits",), title=figure.title + " (with the digits network)")


def cells_of(figures, machine):
    """The cells of all figures, each once, in the figures' order; and {figure: {reason: how many}} for the others."""
    wanted, left_out = {}, {}
    for figure in figures:
        for cell in figure.cells():
            reason = why_not(cell, figure, machine)
            if reason:
                reasons = left_out.setdefault(figure.id, {})
                reasons[reason] = reasons.get(reason, 0) + 1
            else:
                wanted.setdefault(cell.key, cell)
    return list(wanted.values()), left_out
