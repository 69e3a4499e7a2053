"""What the training program does by itself, as data: fused kernels, and what hides behind what.

Notebook: 15 Choosing a strategy (step_time).
Paper: Dao et al., "FlashAttention" (2022); Korthikanti et al. (2022), section 4; Rajbhandari et
al., "ZeRO" (2019), section 5, for the gradients that leave during the backward.
Costs nothing.
The production version is a dozen flags of a launch script, most of which change one of these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Software:
    """Choices of a program that a layout does not show.

    Attributes:
        flash: attention keeps no matrix of T×T, and leaves out what the mask hides.
        first: it is the first FlashAttention, or as slow as that.
        dropout: it has dropout after attention's softmax, attention and feed-forward.
        overlap: what runs beside computation: `tp`, `dp`, `pp`, and `wgrad`, where only the
            backward's sums over tp do, behind the gradients of the weights.
        activations: kernels of an activation that is not gated; squared ReLU takes two.
        grad_bytes: of a gradient when replicas add it up, 2 or 4.
    """

    flash: bool = True
    first: bool = False
    dropout: bool = False
    overlap: frozenset[str] = frozenset({"tp", "dp", "pp"})
    activations: int = 1
    grad_bytes: int = 2
