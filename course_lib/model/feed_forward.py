"""The feed-forward network: two or three matrices that every token goes through alone.

Notebook: 02 Data parallel; 06 Tensor parallel cuts it, 12 Expert parallel has many of them.
Paper: Shazeer, "GLU Variants Improve Transformer" (2020).
Costs 6·D·F operations a token forward if gated, else 4·D·F; no communication.
The production version fuses the product of gate and up with what follows into one kernel.

Shapes: ... any, D hidden, F inner width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.model.config import ModelConfig


class FeedForward(nn.Module):
    """SwiGLU, or a GELU network of two matrices.

    Args:
        config: D, F and which of the two.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.ffn, bias=False) if config.gated else None
        self.up = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., D] to the same."""
        up = self.up(x)
        inner = F.gelu(up) if self.gate is None else F.silu(self.gate(x)) * up
        return self.down(inner)
