"""One process's attention, head by head: what ranks that have some of the heads must bring back.

Paper: Vaswani et al., "Attention Is All You Need" (2017), section 3.2.1, and Ainslie et al., "GQA:
Training Generalized Multi-Query Transformer Models" (2023), section 2.2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

PARTS = ("query", "key", "value", "output")
Tensors = dict[str, torch.Tensor]


def attend(
    q_BHTC: torch.Tensor,
    k_BHTC: torch.Tensor,
    v_BHTC: torch.Tensor,
    *,
    causal: bool = True,
    scale: float = 0.0,
) -> torch.Tensor:
    """Softmax attention, from matrix products; `scale` is 1/√C unless given."""
    scores = q_BHTC @ k_BHTC.mT * (scale or q_BHTC.shape[-1] ** -0.5)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1) @ v_BHTC


class Whole:
    """The same attention in one process, rank by rank: the parts' outputs and gradients add up.

    Args:
        case: what the driver was given.
    """

    def __init__(self, case: dict[str, Any]) -> None:
        self.case, self.size = case, case["size"]
        self.heads, self.kv_heads = case["heads"], case["kv_heads"]
        self.width = len(case["qkv"]) // (self.heads + 2 * self.kv_heads)
        self.shared = max(1, self.size // self.kv_heads)
        rows = [n * self.width for n in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (part.clone().requires_grad_() for part in case["qkv"].split(rows))
        output = case["output"].clone().requires_grad_()
        self.weights: Tensors = {"query": q, "key": k, "value": v, "output": output}
        self.known: dict[int, list[Tensors]] = {}
        self.name = f"(H={self.heads}, K={self.kv_heads}, N={self.size})"

    def part(
        self,
        x: torch.Tensor,
        x_kv: torch.Tensor,
        index: int,
        *,
        causal: bool = True,
        scale: float = 0.0,
        turned: bool = False,
    ) -> torch.Tensor:
        """The summand of the output that one rank's query heads make; with slips if asked."""
        q, k, v = (
            linear(source, self.weights[name]).unflatten(2, (-1, self.width)).transpose(1, 2)
            for source, name in ((x, "query"), (x_kv, "key"), (x_kv, "value"))
        )
        each = self.heads // self.size
        mine = torch.arange(index * each, (index + 1) * each)
        pairs = mine * self.kv_heads // self.heads
        if turned:  # the rank's query heads go through its key-value heads in turns
            pairs = pairs[0] + torch.arange(each) % max(1, self.kv_heads // self.size)
        out = attend(q[:, mine], k[:, pairs], v[:, pairs], causal=causal, scale=scale)
        own = out.transpose(1, 2).flatten(2)
        return linear(own, self.weights["output"].chunk(self.size, 1)[index])

    def output(self, number: int, **slip: Any) -> torch.Tensor:
        """The whole output for input `number`."""
        x = self.case["xs"][number]
        parts = [self.part(x, x, index, **slip) for index in range(self.size)]
        return torch.stack(parts).sum(0).detach()

    def summands(self, number: int) -> list[Tensors]:
        """Each rank's summand of every gradient, whole in shape; of x by its two ways."""
        found = self.known.setdefault(number, [])
        for index in range(len(found), self.size):
            x, x_kv = (self.case["xs"][number].clone().requires_grad_() for _ in range(2))
            loss = (self.part(x, x_kv, index) * self.case["slopes"][number]).sum()
            leaves = {"x": x, "x_kv": x_kv, **self.weights}
            grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
            found.append(dict(zip(leaves, grads, strict=True)))
        return found

    def cut(self, name: str, whole: torch.Tensor, index: int) -> torch.Tensor:
        """One rank's part of a weight, or of its gradient."""
        if name in ("query", "output"):
            return whole.chunk(self.size, int(name == "output"))[index]
        pieces = min(self.kv_heads, self.size)
        return whole.chunk(pieces)[index * pieces // self.size]
