"""Context parallelism: the sequence is cut over the ranks; this says who holds which positions.

Notebook: 07 Sequence and context parallel (zigzag_split).
Paper: Liu et al., "Ring Attention" (2023); Grattafiori et al., "The Llama 3 Herd of Models" (2024),
section 3.3.2, for the 2N pieces of which a rank holds one from the front and one from the back.
Costs nothing on the wire: every rank cuts its own part of the tokens; attention sends (see below).
The production version also balances documents that are packed into one sequence.

Everything but attention treats tokens one by one, so it runs on a shard as it is. Attention mixes
them, and there are two ways: `ring_attention` sends keys and values round, `ulysses_attention`
changes from all heads of some tokens to some heads of all tokens, and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from course_lib.comm import CommError, Group
from course_lib.trace import chunk_sizes


@dataclass(frozen=True)
class Piece:
    """Consecutive positions of a sequence.

    Attributes:
        start: the first position.
        length: how many.
    """

    start: int
    length: int

    @property
    def stop(self) -> int:
        """One after the last position."""
        return self.start + self.length

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


@dataclass(frozen=True)
class SequenceLayout:
    """Which positions of a sequence each member of a group holds.

    Attributes:
        hands: each member's pieces, in the order in which it holds them.

    Raises:
        CommError: a position has no owner or two, or a member has none.
    """

    hands: tuple[tuple[Piece, ...], ...]

    def __post_init__(self) -> None:
        pieces = sorted((p for hand in self.hands for p in hand), key=lambda piece: piece.start)
        begins = [0, *(piece.stop for piece in pieces)]
        whole = all(p.start == begin < p.stop for p, begin in zip(pieces, begins, strict=False))
        if not (self.hands and all(self.hands) and whole):
            raise CommError(
                f"a sequence dealt out to {len(self.hands)} members",
                " and ".join(", ".join(map(str, hand)) or "nothing" for hand in self.hands),
                "every position from 0 on has one owner, and every member has at least one",
            )

    @classmethod
    def contiguous(cls, length: int, size: int) -> SequenceLayout:
        """Member i holds piece i of N. Simple, but a causal mask gives the last the most work.

        Args:
            length: T, tokens; the pieces are those of `torch.tensor_split`.
            size: N.

        Raises:
            CommError: fewer tokens than members.
        """
        return cls._deal(length, size, [(index,) for index in range(size)])

    @classmethod
    def zigzag(cls, length: int, size: int) -> SequenceLayout:
        """Member i holds pieces i and 2N-1-i of 2N: a cheap one from the front, a costly one.

        Args:
            length: T, tokens; the pieces are those of `torch.tensor_split`.
            size: N.

        Raises:
            CommError: fewer tokens than members.
        """
        return cls._deal(length, size, [(index, 2 * size - 1 - index) for index in range(size)])

    @classmethod
    def _deal(cls, length: int, size: int, hands: list[tuple[int, ...]]) -> SequenceLayout:
        """Cuts the sequence into as many pieces as the hands have, and deals them out."""
        if not 1 <= size <= length:
            raise CommError(
                f"a sequence of {length} tokens cut over {size} ranks",
                "fewer tokens than ranks" if size > 0 else "no rank",
                "every rank takes part in attention with at least one token of its own",
            )
        sizes = chunk_sizes(length, sum(map(len, hands)))
        pieces = [Piece(*pair) for pair in zip(accumulate(sizes, initial=0), sizes, strict=False)]
        return cls(tuple(tuple(pieces[p] for p in hand if pieces[p].length) for hand in hands))

    @property
    def size(self) -> int:
        """N, members."""
        return len(self.hands)

    @property
    def length(self) -> int:
        """T, tokens of the whole sequence."""
        return sum(map(self.count, range(self.size)))

    def count(self, index: int) -> int:
        """t, tokens of one member."""
        return sum(piece.length for piece in self.hands[index])

    def positions(self, index: int) -> torch.Tensor:
        """The positions that one member holds, int64 [t], in the order of its shard."""
        return torch.cat([torch.arange(piece.start, piece.stop) for piece in self.hands[index]])

    def local(self, index: int) -> list[tuple[Piece, slice]]:
        """One member's pieces, each with its place in the member's shard."""
        hand = self.hands[index]
        ends = accumulate(piece.length for piece in hand)
        return [(p, slice(end - p.length, end)) for p, end in zip(hand, ends, strict=True)]

    def order(self) -> torch.Tensor:
        """Where each position of the sequence is in the shards laid end to end, int64 [T]."""
        return torch.cat([self.positions(index) for index in range(self.size)]).argsort()


def shard_sequence(
    whole: torch.Tensor, dim: int, layout: SequenceLayout, index: int
) -> torch.Tensor:
    """One member's tokens, in the order of its pieces.

    Args:
        whole: has T tokens along `dim`: tokens, targets, positions, activations.
        dim: the sequence's; negative counts from the last.
        layout: who holds what.
        index: of the member.

    Returns:
        A tensor of its own, with t tokens along `dim`.

    Raises:
        CommError: `whole` does not have the layout's T tokens along `dim`.
    """
    if whole.shape[dim] != layout.length:
        raise CommError(
            f"the shard of member {index} of a sequence of {layout.length} tokens",
            f"a tensor of shape {tuple(whole.shape)}, with {whole.shape[dim]} along dim {dim}",
            "the layout was made for another length, or this is not the sequence's dim",
        )
    return torch.cat([whole.narrow(dim, p.start, p.length) for p in layout.hands[index]], dim)


def join_sequence(shards: Sequence[torch.Tensor], dim: int, layout: SequenceLayout) -> torch.Tensor:
    """The whole sequence from all members' shards: the inverse of `shard_sequence`.

    Args:
        shards: one a member, in the order of their index.
        dim: the sequence's.
        layout: who holds what.

    Raises:
        CommError: the shards are not the layout's.
    """
    found = [shard.shape[dim] for shard in shards]
    if found != [layout.count(index) for index in range(layout.size)]:
        raise CommError(
            f"a sequence of {layout.length} tokens joined along dim {dim}",
            f"shards of {found} tokens",
            f"the layout has {[layout.count(index) for index in range(layout.size)]}",
        )
    laid = torch.cat(list(shards), dim)
    return laid.index_select(dim, layout.order().to(laid.device))


def check_fit(
    way: str,
    q_BHtC: torch.Tensor,
    k_BKtC: torch.Tensor,
    v_BKtC: torch.Tensor,
    layout: SequenceLayout,
    group: Group,
) -> None:
    """Refuses what no attention over a group can be of, before anything is sent.

    Args:
        way: of attention, for errors.
        q_BHtC: queries.
        k_BKtC: keys.
        v_BKtC: values.
        layout: who holds which positions.
        group: the ranks.

    Raises:
        CommError: the tensors do not fit each other, the layout or the group.
    """
    q, k, v = q_BHtC, k_BKtC, v_BKtC
    asked = f"{way} over {group.size} ranks"
    found = (
        f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} on rank {group.rank}, "
        f"dtypes {q.dtype}, {k.dtype}, {v.dtype}"
    )
    if layout.size != group.size:
        raise CommError(
            asked, f"a layout for {layout.size} ranks", "each member holds one of its parts"
        )
    if not q.dim() == k.dim() == 4 or k.shape != v.shape or q.shape[::3] != k.shape[::3]:
        why = "q is [B, H, t, C], k and v are [B, K, t, C], in heads of the same width"
        raise CommError(asked, found, why)
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise CommError(asked, found, f"{k.shape[1]} key-value heads do not divide {q.shape[1]}")
    if len({q.dtype, k.dtype, v.dtype}) > 1 or not q.is_floating_point():
        raise CommError(asked, found, "all three must be floats of one dtype")
    tokens = layout.count(group.index)
    if not q.shape[2] == k.shape[2] == tokens:
        raise CommError(asked, found, f"by the layout, member {group.index} has {tokens} tokens")
