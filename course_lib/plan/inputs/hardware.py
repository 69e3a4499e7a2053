"""What a cluster is made of, as data: GPUs, the links inside a node and between nodes.

Notebook: 14 Profiling and debugging (roofline), 15 Choosing a strategy (step_time, plan).
Source: stas00/ml-engineering, compute/accelerator and network READMEs, for peaks, the matrix
multiplications that are reached of them, and bus bandwidths; NVIDIA/nccl, tuning.cc, for latencies;
what is from elsewhere says so beside it.
Costs nothing: every number is a constant with a source; calibration.py has what is fitted, and
hardware_file.py reads a machine of one's own. What a collective takes on it, and which links that
occupies, is `plan.time.network.transfer`.
The production version reads the machine's own numbers, as measure.py does in small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from course_lib.trace import Refusal

GB = 10**9
GIB = 2**30
TERA = 10**12


@dataclass(frozen=True)
class Gpu:
    """One accelerator.

    Attributes:
        name: as in `NODES`.
        peak: FLOP/s that the sheet promises for dense products, by precision.
        reached: FLOP/s of the fastest large product that was measured, by precision. It is a rate
            of products alone: the FLOP/s of a whole training step are less, since they contain
            all waiting already.
        memory: bytes.
        bandwidth: bytes/s of the memory, from the sheet.
        attention: parts of the 16-bit peak which fused attention reaches, forward and backward.
        units: multiprocessors; a product is cut into tiles which they share.
        tile: rows and columns of the tiles that the libraries' kernels for it use most.
        watts: the most that it draws, from the sheet; 0 if not known.
        second: the parts that FlashAttention-2 reaches, where a later one was written for this GPU;
            zeros where it is the one of `attention`.
    """

    name: str
    peak: Mapping[str, float]
    reached: Mapping[str, float]
    memory: float
    bandwidth: float
    attention: tuple[float, float]
    units: int
    tile: tuple[int, int]
    watts: float = 0.0
    second: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Link:
    """What a rank sends through.

    Attributes:
        alpha: seconds that a message takes however small it is.
        bandwidth: bytes/s and direction, as reached by long rings; inside a node of each GPU,
            between nodes of each adapter.
        switched: the same where the switch itself adds up, which only all_reduce uses (NVLink
            SHARP inside a node, SHARP between nodes); 0 where it cannot.
        direct: bytes/s between two GPUs that a wire of their own joins, where there is no switch
            through which any two may use all of `bandwidth`; 0 where there is one.
    """

    alpha: float
    bandwidth: float
    switched: float = 0.0
    direct: float = 0.0

    def among(self, ranks: float) -> float:
        """Bytes/s of each of `ranks` GPUs that send to one another and to nobody else."""
        wires = max(1, ranks - 1) * self.direct
        return min(self.bandwidth, wires) if self.direct else self.bandwidth

    def seconds(self, payload: float) -> float:
        """Seconds that a message of `payload` bytes takes from one rank to another."""
        return self.alpha + payload / self.among(2)


@dataclass(frozen=True)
class Node:
    """GPUs that NVLink joins, or a link like it, and how they reach other nodes.

    Attributes:
        gpu: what they are.
        size: how many: 8 on most machines, 72 in the rack of a GB200 NVL72.
        adapters: network adapters of the node, at most as many as its GPUs.
        inside: the link between its GPUs.
        between: one adapter's link to other nodes.
    """

    gpu: Gpu
    size: int
    adapters: int
    inside: Link
    between: Link


@dataclass(frozen=True)
class Cluster:
    """GPUs in nodes.

    Attributes:
        gpu: what they are.
        count: how many in all.
        node: how many in a node, which is what NVLink joins.
        inside: the link between GPUs of a node.
        between: one adapter's link to other nodes.
        adapters: of a node, at most as many as its GPUs; 0 means one for each of them.
    """

    gpu: Gpu
    count: int
    node: int
    inside: Link
    between: Link
    adapters: int = 0

    @property
    def nodes(self) -> int:
        """How many nodes there are; the last one may be smaller."""
        return -(-self.count // self.node)

    def leaving(self, gpus: float, adapters: float = 0.0) -> float:
        """Bytes/s with which GPUs of one node send to other nodes, all of them together.

        Args:
            gpus: how many of the node's GPUs take part.
            adapters: that are theirs; by default as many of the node's as their part of the GPUs,
                because the others send at the same time.
        """
        theirs = adapters or gpus * (self.adapters or self.node) / self.node
        return theirs * self.between.bandwidth

    def adapter(self, rank: int) -> int:
        """Number of the adapter, over all nodes, through which a GPU leaves its node."""
        node, place = divmod(rank, self.node)
        count = self.adapters or self.node
        return node * count + place * count // self.node


def _rates(fp32: float, half: float, fp8: float | None = None) -> Mapping[str, float]:
    """Rates by precision, from TFLOP/s; without fp8 units it is computed in 16 bits."""
    fp8 = half if fp8 is None else fp8
    table = {"fp32": fp32, "fp16": half, "bf16": half, "fp8": fp8}
    return MappingProxyType({key: rate * TERA for key, rate in table.items()})


# Peaks, the best products (there: MAMF) and memory from ml-engineering; fp32 is TF32's. Attention:
# Dao, "FlashAttention-2" (2023), figures 4 to 6, for the A100; Shah et al., "FlashAttention-3"
# (2024), figures 5 and 6, for the H100 (causal, width 128), which later ones share. Attention's
# parts on the B200, the GB200 and the MI300X are assumed. The H800 is an H100 with half of its
# links. Nobody has measured the MI300X's products of 8 bits there: the same part as in 16 is taken.
# FlashAttention-2 reaches 335 TFLOP/s of an H100 (its figure 7), whose newer instructions it does
# not use. The H100 of 96 GB at 500 watts is torchtitan's (its benchmarks/README.md).
# Watts: NVIDIA's and AMD's data sheets.
_PARTS, _HOPPER_2 = (0.60, 0.50), (0.34, 0.34)
_A100 = (_rates(156, 312), _rates(136, 271.2))
_H100 = (_rates(494, 989, 1979), _rates(397, 794.5, 1402.6))
_H200 = (_H100[0], _rates(397, 794.5, 1453.4))
_B200 = (_rates(1125, 2250, 4500), _rates(872, 1745, 3432.5))
_GB200 = (_rates(1250, 2500, 5000), _rates(911, 1822, 3615.6))
_MI300X = (_rates(653.7, 1307.4, 2614.9), _rates(334, 668.4, 1337))
_NARROW, _WIDE = (128, 128), (128, 256)
GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            Gpu("A100-40", *_A100, 40 * GIB, 1.555e12, _PARTS, 108, _NARROW, 400),
            Gpu("A100-80", *_A100, 80 * GIB, 2.0e12, _PARTS, 108, _NARROW, 400),
            Gpu("H100", *_H100, 80 * GIB, 3.35e12, _PARTS, 132, _WIDE, 700, _HOPPER_2),
            Gpu("H100-500W", *_H100, 96e9, 2.4e12, _PARTS, 132, _WIDE, 500, _HOPPER_2),
            Gpu("H800", *_H100, 80 * GIB, 3.35e12, _PARTS, 132, _WIDE, 700, _HOPPER_2),
            Gpu("H200", *_H200, 141e9, 4.8e12, _PARTS, 132, _WIDE, 700, _HOPPER_2),
            Gpu("B200", *_B200, 180e9, 8.0e12, _PARTS, 148, _WIDE, 1000, _HOPPER_2),
            Gpu("GB200", *_GB200, 186e9, 8.0e12, _PARTS, 148, _WIDE, 1200, _HOPPER_2),
            Gpu("MI300X", *_MI300X, 192e9, 5.3e12, _PARTS, 304, (256, 256), 750),
        )
    }
)

# Inside: α and β that fit nccl-tests' all_reduce of 8 A100 best, from 1 MiB to 16 GiB (in the same
# README; least squares of the relative error: median 8 %, worst 21 %), and of 8 H200 in the switch;
# an H200's ring reaches 366 of 450 GB/s, and the B200's and GB200's links are assumed to reach the
# same part. In the switch 8 GB200 of two trays reach 811 GB/s (lixueduan.com, "GB200 MNNVL", 2025).
# H800: 160 of 200 GB/s, DeepSeek-AI, "DeepSeek-V3" (2024), section 3.2.2. MI300X: no switch, seven
# wires a GPU of which each carries 48 of 64 GB/s (AMD, "Understanding RCCL Bandwidth", 2025).
# Between: adapters of 25 GB/s (HDR) or 50 GB/s (NDR), of which 0.92 carry payload (NCCL's own
# figure for its long rings), and NCCL's latency of a step. Each of the machines here has as many
# adapters as GPUs: a node of eight H100 sends 8 · 50 GB/s.
_BETWEEN_ALPHA = 14e-6
_HDR, _NDR = (Link(_BETWEEN_ALPHA, 0.92 * rate * GB) for rate in (25, 50))
_AMPERE, _HOPPER = Link(6.0e-6, 220 * GB), Link(3.6e-6, 366 * GB, 453 * GB)
NODE = 8
NODES: Mapping[str, Node] = MappingProxyType(
    {
        name: Node(GPUS[name], size, size, inside, between)
        for name, size, inside, between in (
            ("A100-40", NODE, _AMPERE, _HDR),
            ("A100-80", NODE, _AMPERE, _HDR),
            ("H100", NODE, _HOPPER, _NDR),
            ("H100-500W", NODE, _HOPPER, _NDR),
            ("H800", NODE, Link(3.6e-6, 160 * GB), _NDR),
            ("H200", NODE, _HOPPER, _NDR),
            ("B200", NODE, Link(3.6e-6, 732 * GB, 906 * GB), _NDR),
            ("GB200", 72, Link(3.6e-6, 732 * GB, 811 * GB), _NDR),
            ("MI300X", NODE, Link(6.0e-6, 7 * 48 * GB, direct=48 * GB), _NDR),
        )
    }
)
MOST_DIGITS = 40  # of a number of GPUs; `int` takes no text of thousands
SHORT = MappingProxyType({"A100": "A100-80", "GB200NVL72": "GB200"})


def cluster(name: str, count: int, nodes: Mapping[str, Node] = NODES) -> Cluster:
    """A cluster of `count` GPUs of a kind, in nodes as they are built.

    Args:
        name: of the GPU.
        count: how many.
        nodes: the machines that are known, by the name of their GPU.

    Raises:
        Refusal: no such GPU among them, or none of it.
    """
    if count < 1:
        raise Refusal(f"a cluster of {name}", f"{count} GPUs", "a cluster has at least one")
    if name not in nodes:
        why = "a prediction needs a GPU of that list, or a file with a machine's numbers"
        raise Refusal(f"{count} GPUs of the kind {name!r}", ", ".join(nodes), why)
    made = nodes[name]
    return Cluster(made.gpu, count, made.size, made.inside, made.between, made.adapters)


def parse_cluster(text: str, nodes: Mapping[str, Node] = NODES) -> Cluster:
    """The cluster that `512xH100` names, or `64x8xH100`: so many nodes of so many.

    `A100` alone is the one of 80 GB. A node that is asked for with fewer or more GPUs than it has
    keeps one adapter for as many of them.

    Args:
        text: the words.
        nodes: the machines that are known.

    Raises:
        Refusal: the text is not one number or two, and a GPU of the table, with x between them.
    """
    named = re.fullmatch(r"\s*(\d+)\s*x(?:\s*(\d+)\s*x)?\s*(\D.*?)\s*", text)
    if not named or any(len(number or "") > MOST_DIGITS for number in named.groups()[:2]):
        raise Refusal(
            f"the cluster {text!r}",
            "no number and GPU with an x between them",
            "write it as 512xH100, or as 64x8xH100 for 64 nodes of 8",
        )
    count, size, name = named.groups()
    short = name.upper().replace(" ", "")
    found = cluster(name if name in nodes else SHORT.get(short, short), int(count), nodes)
    return found if size is None else _in_nodes(found, int(size))


def _in_nodes(of_nodes: Cluster, size: int) -> Cluster:
    """As many nodes of `size` GPUs as the cluster has GPUs."""
    if size < 1:
        raise Refusal("nodes of 0 GPUs", "none", "a node has at least one GPU")
    adapters = max(1, size * of_nodes.adapters // of_nodes.node)
    return replace(of_nodes, count=of_nodes.count * size, node=size, adapters=adapters)
