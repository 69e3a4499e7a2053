"""What a cluster is made of, as data: GPUs, the links inside a node and between nodes.

Notebook: 14 Profiling and debugging (roofline), 15 Choosing a strategy (step_time, plan).
Source: stas00/ml-engineering, compute/accelerator and network READMEs, for peaks, the matrix
multiplications that are reached of them, and bus bandwidths; NVIDIA/nccl, tuning.cc, for latencies.
Costs nothing: every number is a constant with a source; calibration.py has what is fitted.
The production version reads the machine's own numbers, as measure.py does in small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from course_lib.trace import Refusal

GB = 10**9
GIB = 2**30
TERA = 10**12


@dataclass(frozen=True)
class Gpu:
    """One accelerator.

    Attributes:
        name: as in `GPUS`.
        peak: FLOP/s that the sheet promises for dense products, by precision.
        reached: FLOP/s of the fastest large product that was measured, by precision.
        memory: bytes.
        bandwidth: bytes/s of the memory, from the sheet.
        attention: parts of the 16-bit peak which fused attention reaches, forward and backward.
        units: multiprocessors; a product is cut into tiles which they share.
        tile: rows and columns of the tiles that the libraries' kernels for it use most.
    """

    name: str
    peak: Mapping[str, float]
    reached: Mapping[str, float]
    memory: float
    bandwidth: float
    attention: tuple[float, float]
    units: int
    tile: tuple[int, int]


@dataclass(frozen=True)
class Link:
    """What a rank sends through.

    Attributes:
        alpha: seconds that a message takes however small it is.
        bandwidth: bytes/s per GPU and direction, as reached by long rings.
        switched: the same where the switch itself adds up, which only all_reduce uses (NVLink
            SHARP); 0 where it cannot.
    """

    alpha: float
    bandwidth: float
    switched: float = 0.0

    def seconds(self, payload: float) -> float:
        """Seconds that a message of `payload` bytes takes."""
        return self.alpha + payload / self.bandwidth


@dataclass(frozen=True)
class Cluster:
    """GPUs in nodes.

    Attributes:
        gpu: what they are.
        count: how many in all.
        node: how many in a node.
        inside: the link between GPUs of a node.
        between: the link of a GPU to other nodes; each has its own.
    """

    gpu: Gpu
    count: int
    node: int
    inside: Link
    between: Link


def _rates(fp32: float, half: float, fp8: float | None = None) -> Mapping[str, float]:
    """Rates by precision, from TFLOP/s; without fp8 units it is computed in 16 bits."""
    fp8 = half if fp8 is None else fp8
    table = {"fp32": fp32, "fp16": half, "bf16": half, "fp8": fp8}
    return MappingProxyType({key: rate * TERA for key, rate in table.items()})


# Peaks, the best products (there: MAMF) and memory from ml-engineering; fp32 is TF32's. Attention:
# Dao, "FlashAttention-2" (2023), figures 4 to 6, for the A100; Shah et al., "FlashAttention-3"
# (2024), figures 5 and 6, for the H100 (causal, width 128), which later ones share. Attention's
# parts on the B200 are assumed.
_A100 = (_rates(156, 312), _rates(136, 271.2))
_H100 = (_rates(494, 989, 1979), _rates(397, 794.5, 1402.6))
GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            Gpu("A100-40", *_A100, 40 * GIB, 1.555e12, (0.60, 0.50), 108, (128, 128)),
            Gpu("A100-80", *_A100, 80 * GIB, 2.0e12, (0.60, 0.50), 108, (128, 128)),
            Gpu("H100", *_H100, 80 * GIB, 3.35e12, (0.60, 0.50), 132, (128, 256)),
            Gpu("H200", _H100[0], _rates(397, 794.5, 1453.4), 141e9, 4.8e12,
                (0.60, 0.50), 132, (128, 256)),
            Gpu("B200", _rates(1125, 2250, 4500), _rates(872, 1745, 3432.5), 180e9, 8.0e12,
                (0.60, 0.50), 148, (128, 256)),
        )
    }
)  # fmt: skip

# Inside: α and β that fit nccl-tests' all_reduce of 8 A100 best, from 1 MiB to 16 GiB (in the same
# README; least squares of the relative error: median 8 %, worst 21 %), and of 8 H200 in the switch;
# an H200's ring reaches 366 of 450 GB/s, and the B200's links are assumed to reach the same part.
# Between: one adapter a GPU (25 GB/s HDR, 50 GB/s NDR), of which 0.92 carry payload (NCCL's own
# figure for its long rings), and NCCL's latency of a step.
_BETWEEN_ALPHA = 14e-6
_HDR, _NDR = (Link(_BETWEEN_ALPHA, 0.92 * rate * GB) for rate in (25, 50))
_HOPPER = (Link(3.6e-6, 366 * GB, 453 * GB), _NDR)
LINKS: Mapping[str, tuple[Link, Link]] = MappingProxyType(
    {
        "A100-40": (Link(6.0e-6, 220 * GB), _HDR),
        "A100-80": (Link(6.0e-6, 220 * GB), _HDR),
        "H100": _HOPPER,
        "H200": _HOPPER,
        "B200": (Link(3.6e-6, 732 * GB, 906 * GB), _NDR),
    }
)
NODE = 8
MOST_DIGITS = 40  # of a number of GPUs; `int` takes no text of thousands


def cluster(name: str, count: int) -> Cluster:
    """A cluster of `count` GPUs of a kind, eight in a node.

    Raises:
        Refusal: no such GPU in the table, or none of them.
    """
    if name not in GPUS or count < 1:
        raise Refusal(
            f"{count} GPUs of the kind {name!r}",
            ", ".join(GPUS),
            "a prediction needs a known GPU, and at least one of it",
        )
    inside, between = LINKS[name]
    return Cluster(GPUS[name], count, NODE, inside, between)


def parse_cluster(text: str) -> Cluster:
    """The cluster that `512xH100` names; `A100` alone is the one of 80 GB.

    Raises:
        Refusal: the text is not a number, an x and a GPU of the table.
    """
    count, x, name = text.partition("x")
    if not x or not count.strip().isdecimal() or len(count) > MOST_DIGITS:
        raise Refusal(
            f"the cluster {text!r}",
            "no number and GPU with an x between them",
            "write it as 512xH100",
        )
    name = name.strip().upper()
    return cluster({"A100": "A100-80"}.get(name, name), int(count))
