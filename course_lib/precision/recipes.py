"""Which scale a tensor gets: from its largest number now, or in earlier steps, or block by block.

Notebook: 09 Mixed precision and FP8 (fp8_linear, delayed_scaling, blockwise_scaling,
nvfp4_quantize).
Paper: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), section 4; DeepSeek-AI,
"DeepSeek-V3" (2024), section 3.3.2 and figure 7; NVIDIA, "Pretraining Large Language Models with
NVFP4" (2025), section 4.
Costs: current and block scaling send nothing; delayed scaling one all-reduce MAX of 4 bytes for
each tensor that is scaled, a step: 2(N-1)/N·4·3L bytes a rank for L linear layers.
The production version (Transformer Engine) writes both layouts of a tensor in one fused kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch

from course_lib.comm import CommError, Group, all_reduce
from course_lib.precision.formats import E4M3FN, E5M2, Format
from course_lib.precision.hadamard import hadamard, rotate
from course_lib.precision.scaling import (
    Scaled,
    block_amax,
    quantize,
    quantize_now,
    scale_for,
    whole,
)
from course_lib.precision.small_blocks import mx_quantize, nvfp4_quantize

# Every tensor enters two of the three products of a layer: in one its rows are summed over, in the
# other its columns. A scaler gives it in both forms: [R, C], and transposed, [C, R].
Scaler = Callable[[torch.Tensor], tuple[Scaled, Scaled]]


class Scalers(NamedTuple):
    """How one linear layer scales its input [T, K], weight [N, K] and output's gradient [T, N]."""

    input: Scaler
    weight: Scaler
    gradient: Scaler


class Recipe(Protocol):
    """Gives each layer its scalers."""

    def scalers(self) -> Scalers:
        """Scalers of one more layer."""


@dataclass(frozen=True)
class CurrentScaling:
    """One scale a tensor, of its own largest number: exact, at one more pass over the tensor.

    Attributes:
        gradients: their format; E5M2 has the range that they need, and less precision.
    """

    gradients: Format = E5M2

    def scalers(self) -> Scalers:
        """Scalers of one more layer."""
        forward = partial(_by_tensor, format=E4M3FN)
        return Scalers(forward, forward, partial(_by_tensor, format=self.gradients))


@dataclass(frozen=True)
class BlockScaling:
    """One scale for each stretch of activations in a row, and for each square of a weight.

    One outlier then costs its own block precision, not the whole tensor; and as all are close to
    their scale, E4M3 has enough range for gradients too. Runs go along the dim that is summed over,
    so the transposed form of an activation is quantized again.

    Attributes:
        size: of a run, and of the side of a square.
        gradients: their format.
    """

    size: int = 128
    gradients: Format = E4M3FN

    def scalers(self) -> Scalers:
        """Scalers of one more layer."""
        return Scalers(
            partial(_by_run, format=E4M3FN, size=self.size),
            partial(_by_square, format=E4M3FN, size=self.size),
            partial(_by_run, format=self.gradients, size=self.size),
        )


@dataclass(frozen=True)
class MxScaling:
    """MX blocks of 32 along the dim that is summed over; every tensor is quantized twice.

    With 4 bits a weight's two forms are rounded differently, and the backward is not quite that of
    the forward. With 8 bits only subnormal numbers differ: another power of two leaves a mantissa
    as it is.

    Attributes:
        format: E4M3FN or E2M1.
        round_up: the scale; see `mx_quantize`.
        stochastic: rounds gradients stochastically, so that they have the right mean.
    """

    format: Format = E4M3FN
    round_up: bool = True
    stochastic: bool = False

    def scalers(self) -> Scalers:
        """Scalers of one more layer."""
        plain = partial(mx_quantize, format=self.format, round_up=self.round_up)
        gradient = _with_noise(plain) if self.stochastic else plain
        return Scalers(_both(plain), _both(plain), _both(gradient))


@dataclass(frozen=True)
class Nvfp4Scaling:
    """NVFP4: runs of 16 for activations and gradients, squares of 16 for weights.

    The squares give a weight's two forms the same numbers.

    Attributes:
        stochastic: rounds gradients stochastically, so that they have the right mean.
        rotated: turns both matrices of the weight's gradient by one random Hadamard matrix.
        seed: of its signs; the same on all ranks.
    """

    stochastic: bool = True
    rotated: bool = True
    seed: int = 0

    def scalers(self) -> Scalers:
        """Scalers of one more layer."""
        rounds = _with_noise(nvfp4_quantize) if self.stochastic else nvfp4_quantize
        generator = torch.Generator().manual_seed(self.seed)
        signs = torch.randint(0, 2, (16,), generator=generator) * 2.0 - 1
        matrix = hadamard(16, signs) if self.rotated else None
        return Scalers(_both(nvfp4_quantize, matrix), _weight_squares, _both(rounds, matrix))


class DelayedScaling:
    """One scale a tensor, of the largest number in the steps before: known before it is computed.

    A tensor that grows beyond it is clipped. Call `step` after each training step, on all ranks
    of the group: it makes their histories the same. Before its first step a tensor is scaled by
    its own largest number.

    Args:
        group: the ranks that must have the same scales; this rank alone if None.
        length: steps that are remembered.
        gradients: their format.
    """

    def __init__(
        self, group: Group | None = None, length: int = 16, gradients: Format = E5M2
    ) -> None:
        self.group, self.length, self.gradients = group, length, gradients
        self.histories: list[AmaxHistory] = []

    def scalers(self) -> Scalers:
        """Scalers of one more layer; all ranks must ask for their layers in the same order."""
        formats = (E4M3FN, E4M3FN, self.gradients)
        made = [AmaxHistory(format, self.length) for format in formats]
        self.histories += made
        return Scalers(*made)

    def step(self) -> None:
        """Ends a step: what was seen in it, on any rank, enters the histories.

        Collective: one all-reduce MAX of 4 bytes for each tensor.
        """
        seen = [history.seen for history in self.histories]
        if not seen:
            return
        device = self.group.device if self.group else seen[0].device
        # A maximum over ranks may lose NaN, which says as much as infinity: overflow.
        largest = torch.stack([amax.to(device) for amax in seen]).nan_to_num(torch.inf, torch.inf)
        if self.group:
            all_reduce(largest, self.group, "max")
        for history, amax in zip(self.histories, largest.tolist(), strict=True):
            history.push(amax)

    def state_dict(self) -> dict[str, Any]:
        """The histories as plain numbers. Without them a resumed run would scale differently."""
        return {"amax": [list(history.past) for history in self.histories]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes the histories of a run of the same layers.

        Raises:
            CommError: the state is of another number of tensors.
        """
        if len(state["amax"]) != len(self.histories):
            raise CommError(
                f"load the histories of {len(state['amax'])} tensors",
                f"{len(self.histories)} tensors are scaled here",
                "replace the model's layers first, in the way in which the saved run had them",
            )
        for history, past in zip(self.histories, state["amax"], strict=True):
            history.past.clear()
            history.past.extend(past)


class AmaxHistory:
    """Scales one tensor of one layer by what it was in the last steps.

    Args:
        format: what it is rounded to.
        length: steps that are remembered.

    Attributes:
        past: the largest magnitude in each of the last steps, over all ranks.
        seen: the largest magnitude in this step so far, on this rank; a float32 scalar.
    """

    def __init__(self, format: Format, length: int) -> None:
        self.format = format
        self.past: deque[float] = deque(maxlen=length)
        self.seen = torch.zeros(())

    def __call__(self, x_RC: torch.Tensor) -> tuple[Scaled, Scaled]:
        """Both forms of a matrix. Micro-batches of one step get the same scale."""
        amax = block_amax(x_RC, whole(x_RC))
        if amax.numel():
            self.seen = torch.maximum(self.seen.to(amax.device), amax[0, 0])
        largest = max(self.past, default=0.0)
        # Infinity and NaN are not clipped but spread, as with any other scale.
        known = torch.where(amax.isfinite(), largest, amax) if largest else amax
        scaled = quantize(x_RC, self.format, scale_for(known, self.format), whole(x_RC))
        return scaled, scaled.t()

    def push(self, amax: float) -> None:
        """Ends a step. An overflow says nothing about the range of the next: it is left out."""
        if amax < float("inf"):
            self.past.append(amax)
        self.seen = torch.zeros_like(self.seen)


def _by_tensor(x_RC: torch.Tensor, format: Format) -> tuple[Scaled, Scaled]:
    scaled = quantize_now(x_RC, format)
    return scaled, scaled.t()


def _by_square(x_RC: torch.Tensor, format: Format, size: int) -> tuple[Scaled, Scaled]:
    scaled = quantize_now(x_RC, format, (size, size))
    return scaled, scaled.t()


def _by_run(x_RC: torch.Tensor, format: Format, size: int) -> tuple[Scaled, Scaled]:
    block = (1, size)
    return quantize_now(x_RC, format, block), quantize_now(x_RC.t(), format, block)


def _both(
    quantizes: Callable[[torch.Tensor], Scaled], matrix: torch.Tensor | None = None
) -> Scaler:
    """Quantizes each form along its rows; the transposed one is rotated first, if asked."""

    def scaler(x_RC: torch.Tensor) -> tuple[Scaled, Scaled]:
        x_CR = x_RC.t() if matrix is None else rotate(x_RC.t(), matrix.to(x_RC.device))
        return quantizes(x_RC), quantizes(x_CR)

    return scaler


def _with_noise(quantizes: Callable[..., Scaled]) -> Callable[[torch.Tensor], Scaled]:
    return lambda x_RC: quantizes(x_RC, noise=torch.rand(x_RC.shape, device=x_RC.device))


def _weight_squares(x_RC: torch.Tensor) -> tuple[Scaled, Scaled]:
    scaled = nvfp4_quantize(x_RC, (16, 16))
    return scaled, scaled.t()
