"""A fair cut of a causal sequence: each rank gets an early chunk and the late one opposite to it.

Notebook 07. In causal attention the query at position p sees p+1 keys. Cut the sequence in n parts
in a row, and the last rank has almost twice the average work, while the first one has hardly any;
since all wait for the slowest in every hop of a ring, half of the time is lost. So cut it into 2n
chunks, and deal them out there and back:

    chunk     0  1  2  3  4  5  6  7          n = 4
    rank      0  1  2  3  3  2  1  0

Rank i gets chunk i and chunk 2n-1-i, in this order, one after the other. (Llama 3 was trained so.)
The cheap queries of the one make up for the dear ones of the other, for every rank alike.

A shard is then no stretch of the sequence any more. Whoever computes with it must know where each
of its places lies in the *whole* sequence, for the rotary embedding and the mask: `positions`.

Rules
- The length T along `dim` need not divide by 2n. The chunks are those that `torch.tensor_split`
  gives: the first T % 2n chunks are one longer than the others. Some are empty if T < 2n.
- `x` has any shape, dtype and memory order, and stays as it is; `dim` may be negative. Nothing is
  sent: these are plain functions, and gradients flow through them.
- `zigzag_join` gets the shards alone. Chunk 2n-1-i is as long as chunk i or one shorter, so the
  shard's own length says where it was put together.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """One rank's part of a sequence.

    Args:
        x: any shape; the sequence lies along `dim`.
        dim: of the sequence.
        n: how many ranks share it.
        index: whose part, 0 to n-1.

    Returns:
        shard: chunks `index` and 2n-1-`index` of x, one after the other along `dim`.
        positions: where each place of the shard lies in the whole sequence, int64, one dimension.
    """

    raise NotImplementedError("zigzag_split: cut")


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """The whole sequence: the inverse of `zigzag_split`.

    Args:
        shards: all n of them, in the order of their indices.
        dim: of the sequence.

    Returns:
        The tensor that was cut.
    """
    raise NotImplementedError("zigzag_split: join")
