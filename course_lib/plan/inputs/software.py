"""What a layout does not show of a training program: its kernels, and what runs beside what.

Notebook: 15 Choosing a strategy (step_time).
Paper: Rajbhandari et al., "ZeRO" (2020), section 5, for gradients that leave during the backward.
Costs nothing.
The production version is a dozen flags of a launch script, most of which change one of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plan.inputs.recipe import MEGATRON, Recipe


@dataclass(frozen=True)
class Software:
    """Choices of a program that a layout does not show.

    Attributes:
        recipe: which kernels it has. Memory is predicted from the same recipe. Time depends on its
            `flash` and `dropout` only.
        attention: which generation its fused attention is of: 3 is the fastest that there is for
            the GPU, 2 FlashAttention-2, 1 the first one, or one written in Triton.
        eager: every element-wise operation is a kernel of its own, as in PyTorch without a
            compiler.
        early_stop: what is computed again stops when all that the backward needs is there, so that
            a block's last product is spared, as in PyTorch's checkpoint without re-entrance.
        overlap: what runs beside computation: `tp`, `dp`, `pp`, and `wgrad`, which hides the
            backward's sums over tp, and only those, behind the gradients of the weights.
        activations: how many kernels an activation takes that is not gated; squared ReLU takes two.
        grad_bytes: bytes of a gradient when replicas add it up, 2 or 4.
    """

    recipe: Recipe = MEGATRON
    attention: int = 3
    eager: bool = False
    early_stop: bool = False
    overlap: frozenset[str] = frozenset({"tp", "dp", "pp"})
    activations: int = 1
    grad_bytes: int = 2
