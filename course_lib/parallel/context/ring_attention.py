"""Ring attention: queries stay, keys and values go round, and nobody holds more than two blocks.

Notebook: 07 Sequence and context parallel (ring_attention_forward, ring_attention_backward).
Paper: Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers" (2023), section 3.
Costs, S the bytes of the whole sequence's K and V: each rank sends (N-1)/N·S forward, the same
again backward, and in the backward as many elements of gradients, in float32 or wider.
The production version uses a flash kernel for a block, and on two streams hides every message.

Causal: a pair of pieces is skipped if all of the keys lie in the queries' future, computed without
a mask if all lie in the past, and masked if both are the same piece. The ledger has a span for each
pair computed, `attend hop 2 q0:32 k64:96`, and a mark for each that is not, `skip hop ...`; on the
way back they are called `attend back` and `skip back`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from course_lib.comm import Group, Work, irecv, isend
from course_lib.parallel.context.attention_tile import RunningSoftmax, TileGradients, wide
from course_lib.parallel.context.context_parallel import SequenceLayout, check_fit

# (which of the query's pieces, place of the keys in their block, whether to mask)
Tile = tuple[int, slice, bool]


def ring_attention(
    q_BHtC: torch.Tensor,
    k_BKtC: torch.Tensor,
    v_BKtC: torch.Tensor,
    layout: SequenceLayout,
    group: Group,
) -> torch.Tensor:
    """Causal attention of a sequence that is cut over a group.

    Args:
        q_BHtC: this member's queries, t of the sequence's T tokens.
        k_BKtC: its keys; K divides H, and they are not repeated before they travel.
        v_BKtC: its values, of the same shape and dtype.
        layout: who holds which positions.
        group: all members call this.

    Returns:
        The attention [B, H, t, C]. See above for the bytes.

    Raises:
        CommError: the tensors do not fit each other, the layout or the group.
    """
    check_fit("ring attention", q_BHtC, k_BKtC, v_BKtC, layout, group)
    return _RingAttention.apply(q_BHtC, k_BKtC, v_BKtC, layout, group)


class _RingAttention(torch.autograd.Function):
    """Every hop adds one block, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        q_BHtC: torch.Tensor,
        k_BKtC: torch.Tensor,
        v_BKtC: torch.Tensor,
        layout: SequenceLayout,
        group: Group,
    ) -> torch.Tensor:
        own_2BKtC = torch.stack((k_BKtC, v_BKtC))
        queries = [
            RunningSoftmax(q_BHtC[:, :, place], k_BKtC.shape[1])
            for _, place in layout.local(group.index)
        ]
        for hop, owner, block_2BKsC in _blocks(own_2BKtC, layout, group):
            for mine, keys, causal in _tiles(hop, owner, layout, group, ""):
                k_BKsC, v_BKsC = _part(block_2BKsC, keys)
                queries[mine].see(k_BKsC, v_BKsC, causal)
        outs, lses = zip(*(piece.result() for piece in queries), strict=True)
        out_BHtC = torch.cat(outs, 2).to(q_BHtC.dtype)
        ctx.save_for_backward(q_BHtC, own_2BKtC, out_BHtC, torch.cat(lses, 2))
        ctx.layout, ctx.group = layout, group
        return out_BHtC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHtC: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q_BHtC, own_2BKtC, out_BHtC, lse_BHt1 = ctx.saved_tensors
        layout, group = ctx.layout, ctx.group
        places = [place for _, place in layout.local(group.index)]
        pieces = [
            [t[:, :, place] for t in (q_BHtC, out_BHtC, lse_BHt1, grad_BHtC)] for place in places
        ]
        queries = [
            TileGradients(q, out, lse, grad, own_2BKtC.shape[2]) for q, out, lse, grad in pieces
        ]
        home = _WayHome(layout, group)
        for hop, owner, block_2BKsC in _blocks(own_2BKtC, layout, group):
            given = torch.zeros_like(block_2BKsC, dtype=wide(block_2BKsC.dtype))
            for mine, keys, causal in _tiles(hop, owner, layout, group, "back "):
                k_BKsC, v_BKsC = _part(block_2BKsC, keys)
                k_grad_BKsC, v_grad_BKsC = queries[mine].see(k_BKsC, v_BKsC, causal)
                given[0, :, :, keys] += k_grad_BKsC
                given[1, :, :, keys] += v_grad_BKsC
            home.add(hop, owner, given)
        q_grad_BHtC = torch.cat([piece.result() for piece in queries], 2).to(q_BHtC.dtype)
        return q_grad_BHtC, *home.arrived().to(own_2BKtC.dtype).unbind(), None, None


# --- what travels --------------------------------------------------------------------------------
def _blocks(
    own: torch.Tensor, layout: SequenceLayout, group: Group
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """Every member's block in turn, as (hop, index of its owner, block), one's own first.

    While a block is used, the next one is on its way: into the one of two buffers that is free.
    """
    most = max(own[:, :, :, :1].numel() * layout.count(index) for index in range(group.size))
    buffers = [own.new_empty(most) for _ in range(min(2, group.size - 1))]
    block = own
    for hop in range(group.size):
        owner, after = ((group.index - hop - behind) % group.size for behind in (0, 1))
        works, coming = [], block
        if hop < group.size - 1:
            shape = _shape(own, layout.count(after))
            coming = buffers[hop % 2][: shape.numel()].view(shape)
            works = [
                irecv(coming, group.previous, group, step=hop, chunk=after),
                isend(block, group.next, group, step=hop, chunk=owner),
            ]
        yield hop, owner, block
        for work in works:
            work.wait()
        block = coming


class _WayHome:
    """Gradients of keys and values, which go round with their block and end at its owner.

    Those for one's own block stay here, so that N-1 messages are enough: the first leaves one hop
    after its block came, and each is under way while the next block is computed with.

    Args:
        layout: who holds what.
        group: the ring.
    """

    def __init__(self, layout: SequenceLayout, group: Group) -> None:
        self.layout, self.group = layout, group
        self._own = torch.empty(0)
        self._carried: torch.Tensor | None = None
        self._works: list[Work] = []

    def add(self, hop: int, owner: int, given: torch.Tensor) -> None:
        """Adds what this rank gives to `owner`'s block to what others gave, and sends it on."""
        if hop == 0:
            self._own = given
            return
        carried = self._wait()
        if carried is not None:
            given += carried
        group = self.group
        after = (owner - 1) % group.size
        self._carried = given.new_empty(_shape(given, self.layout.count(after)))
        self._works = [
            irecv(self._carried, group.previous, group, step=hop, chunk=after),
            isend(given, group.next, group, step=hop, chunk=owner),
        ]

    def arrived(self) -> torch.Tensor:
        """The whole gradient of this rank's keys and values, [2, B, K, t, C]."""
        carried = self._wait()
        return self._own if carried is None else self._own.add_(carried)

    def _wait(self) -> torch.Tensor | None:
        """What was received; returns once it is here and what was sent has left."""
        for work in self._works:
            work.wait()
        carried, self._carried, self._works = self._carried, None, []
        return carried


def _shape(block: torch.Tensor, tokens: int) -> torch.Size:
    """The shape of a block [2, B, K, s, C] with another number of tokens."""
    return torch.Size((*block.shape[:3], tokens, block.shape[4]))


def _part(block_2BKsC: torch.Tensor, keys: slice) -> Sequence[torch.Tensor]:
    """Keys and values of one piece of a block, in the wide dtype."""
    return block_2BKsC[:, :, :, keys].to(wide(block_2BKsC.dtype)).unbind()


# --- what is computed ----------------------------------------------------------------------------
def _tiles(hop: int, owner: int, layout: SequenceLayout, group: Group, way: str) -> Iterator[Tile]:
    """The pairs of this rank's pieces and the owner's that are not in the future, each in a span.

    A piece is wholly before another, wholly after it, or the same.
    """
    ledger = group.ledger
    for mine, (query, _) in enumerate(layout.local(group.index)):
        for key, place in layout.local(owner):
            name = f"{way}hop {hop} q{query} k{key}"
            if key.start > query.start:
                ledger.mark(f"skip {name}")
                continue
            with ledger.span(f"attend {name}"):
                yield mine, place, key == query
