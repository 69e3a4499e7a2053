"""A fair cut of a causal sequence: each rank gets an early chunk and the opposite late one.

Notebook 07. In causal attention the query at position p sees p+1 keys. If the sequence is cut into
n contiguous parts, the last rank has almost twice the average work and the first one hardly any.
Since all ranks wait for the slowest in every hop of a ring, half of the time is lost. So cut it
into 2n chunks, and deal them out forwards and then backwards:

    chunk     0  1  2  3  4  5  6  7          n = 4
    rank      0  1  2  3  3  2  1  0

Rank i gets chunk i and chunk 2n-1-i, in this order. (Llama 3 was trained like this.) The cheap
queries of one chunk make up for the expensive ones of the other, equally on every rank.

A shard is then no longer contiguous in the sequence. Code that computes with it must know where in
the *whole* sequence each of its elements is, for the rotary embedding and the mask: `positions`.

Rules
- 2n need not divide the length T along `dim`. The chunks are those of `torch.tensor_split`: the
  first T % 2n chunks are one longer than the others. Some are empty if T < 2n.
- `x` may have any shape, dtype and memory order, and must not be changed; `dim` may be negative.
  Nothing is sent: these are plain functions, and gradients flow through them.
- `zigzag_join` gets only the shards. Chunk 2n-1-i is as long as chunk i or one shorter, so the
  length of a shard determines where its second chunk begins.
"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cuts out one rank's part of a sequence.

    Args:
        x: any shape; the sequence is along `dim`.
        dim: the dim of the sequence.
        n: the number of ranks that share it.
        index: the rank whose part is wanted, 0 to n-1.

    Returns:
        shard: chunks `index` and 2n-1-`index` of x, concatenated along `dim`.
        positions: the position in the whole sequence of each place of the shard along `dim`; int64,
            one dimension.
    """

    # BEGIN SOLUTION: cut
    def both(tensor: torch.Tensor, along: int) -> torch.Tensor:
        chunks = tensor.tensor_split(2 * n, along)
        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)

    shard = both(x, dim)
    positions = both(torch.arange(x.shape[dim], device=x.device), 0)  # mutate: same
    return shard, positions
    # END SOLUTION


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """Restores the whole sequence: the inverse of `zigzag_split`.

    Args:
        shards: all n of them, in the order of their indices.
        dim: the dim of the sequence.

    Returns:
        The tensor that was cut.
    """
    # BEGIN SOLUTION: join
    halves = [shard.tensor_split(2, dim) for shard in shards]
    early, late = [half[0] for half in halves], [half[1] for half in reversed(halves)]
    return torch.cat(early + late, dim)
    # END SOLUTION
