"""table.py: the rows of bench/compare: what is measured, against what, and the bar."""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20
NODE = "2 ranks, 1 node, allreduce fp32, "
NET = "2 nodes x 1 rank over TCP loopback, allreduce, reduce-scatter, allgather, fp32, hdtMemAlloc memory, "
ACROSS = {"nodes": 2, "local": 1, "memory": "hdt",
          "collectives": ("allreduce", "reduce_scatter", "allgather")}


@dataclass(frozen=True)
class RatioRow:
    """Time of the peer / time of HDT; the figure is the least over sizes and collectives."""

    name: str
    work: str
    against: str
    peer: str
    least: float
    sizes: tuple  # first and last, in bytes; doubled from one to the other
    nodes: int = 1
    local: int = 2
    memory: str = "host"
    collectives: tuple = ("allreduce",)
    # HDT's type and the peer's: where they differ, both move the same number of elements.
    types: tuple = ("float32", "float32")
    unit: str = "x faster"
    # Iterations a round, at most: for a peer that takes milliseconds for the smallest call.
    most_iterations: int = 1000
    # Untimed calls of each size besides those of the warm-up.
    first_calls: int = 0

    @property
    def engines(self):
        """Those of hdt-commbench that are measured."""
        return "hdt", self.peer

    def bar(self):
        return f">= {self.shown(self.least)}"

    def shown(self, ratio):
        if self.unit == "%":
            return f"{100 * ratio:.0f} %"
        if self.unit == "x its time":
            return f"{1 / ratio:.2f} x its time"
        return f"{ratio:.2f} x faster"

    def met(self, ratio):
        return ratio >= self.least


class TimeRow(RatioRow):
    """A bar on how many times the peer's time HDT may take."""

    def bar(self):
        return f"<= {1 / self.least:.2f} x its time"


@dataclass(frozen=True)
class BestRow(RatioRow):
    """Against the fastest of several peers at each size, each measured by a program of its own."""

    peers: tuple = ()  # keys of peers.PEERS
    # A turn is a new process. HDT's tuner takes four calls of each of two protocols for its choice.
    first_calls: int = 10

    @property
    def engines(self):
        return ("hdt",)


ALL_PEERS = ("openmpi", "mpich", "openmpi5", "torch")


def best_rows(ranks):
    """HDT against the best of all peers, for so many ranks on one node. No size is less than an element for
    each rank."""
    prefix = "node-best" if ranks == 2 else f"node{ranks}-best"
    work = f"{ranks} ranks, 1 node, allreduce, reduce-scatter, allgather, fp32, "
    common = {"local": ranks, "collectives": ACROSS["collectives"], "peers": ALL_PEERS}
    least = 4 * ranks
    return (
        BestRow(f"{prefix}-small", f"{work}hdtMemAlloc memory, {least} B to 64 KiB", "the best peer", "", 1,
                (least, 64 * KIB), memory="hdt", **common),
        BestRow(f"{prefix}-large", f"{work}hdtMemAlloc memory, 128 KiB to 64 MiB", "the best peer", "", 1,
                (128 * KIB, 64 * MIB), memory="hdt", **common),
        BestRow(f"{prefix}-ordinary", f"{work}ordinary memory, 128 KiB to 64 MiB", "the best peer", "", 1,
                (128 * KIB, 64 * MIB), **common),
    )


@dataclass(frozen=True)
class CostRow:
    """What a daemon costs, below a limit."""

    name: str
    work: str
    limit: float
    unit: str
    against: str = "-"

    def bar(self):
        return f"< {self.limit:g} {self.unit}"

    def shown(self, value):
        return f"{value:.2f} {self.unit}"

    def met(self, value):
        return value < self.limit


ROWS = (
    RatioRow("node-large", NODE + "hdtMemAlloc memory, 16 MiB to 256 MiB", "Open MPI", "mpi", 3.5,
             (16 * MIB, 256 * MIB), memory="hdt"),
    RatioRow("node-middle", NODE + "hdtMemAlloc memory, 1 MiB to 8 MiB", "Open MPI", "mpi", 2, (MIB, 8 * MIB),
             memory="hdt"),
    RatioRow("node-small", NODE + "hdtMemAlloc memory, 8 B to 64 KiB", "Open MPI", "mpi", 1, (8, 64 * KIB),
             memory="hdt"),
    RatioRow("node-ordinary", NODE + "ordinary memory, 1 MiB to 256 MiB", "Open MPI", "mpi", 1.5,
             (MIB, 256 * MIB)),
    RatioRow("node-bound", NODE + "hdtMemAlloc memory, 64 MiB", "memcpy bound", "raw", 0.7,
             (64 * MIB, 64 * MIB), memory="hdt", unit="%"),
    RatioRow("net-gloo", NET + "1 MiB to 64 MiB", "Gloo", "gloo", 2, (MIB, 64 * MIB), **ACROSS),
    RatioRow("net-mpi-large", NET + "16 MiB to 64 MiB", "Open MPI TCP", "mpi", 1.5, (16 * MIB, 64 * MIB),
             **ACROSS),
    RatioRow("net-mpi-middle", NET + "64 KiB to 8 MiB", "Open MPI TCP", "mpi", 1, (64 * KIB, 8 * MIB),
             **ACROSS),
    RatioRow("net-bound", NET + "64 MiB", "raw sockets", "raw", 0.9, (64 * MIB, 64 * MIB), **ACROSS,
             unit="%"),
    RatioRow("net-gloo-small", NET + "8 B to 4 KiB", "Gloo", "gloo", 1, (8, 4 * KIB), **ACROSS,
             most_iterations=60),
    TimeRow("net-mpi-tiny", NET + "8 B", "Open MPI TCP", "mpi", 1 / 2.5, (8, 8), **ACROSS, unit="x its time"),
    RatioRow("four-bf16", "4 ranks (2 nodes x 2), allreduce bf16, 16 MiB", "Open MPI fp32, same count", "mpi",
             3, (16 * MIB, 16 * MIB), nodes=2, local=2, memory="hdt", types=("bfloat16", "float32")),
    CostRow("idle-cpu", "daemon CPU, idle for 10 s with 8 sessions open", 10, "ms"),
    CostRow("group-memory", "daemon memory per further group of 8 ranks, over 1,000 groups", 256, "KiB"),
    BestRow("node-torch", "2 ranks, 1 node, allreduce, allgather, fp32, ordinary memory, 8 B to 64 MiB",
            "PyTorch's Gloo", "", 2, (8, 64 * MIB), collectives=("allreduce", "allgather"),
            peers=("torch",)),
    *best_rows(2),
    *best_rows(4),
    BestRow("net-best", NET + "64 KiB to 64 MiB", "the best peer over TCP", "", 1, (64 * KIB, 64 * MIB),
            **ACROSS, peers=ALL_PEERS),
)
