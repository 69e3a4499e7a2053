"""An embedding cut along the vocabulary: each rank keeps some rows, one all-reduce joins them.

Notebook 06. The embedding is often the largest matrix of a model: V·D numbers, for a vocabulary of
V tokens and a width of D. Cut along the vocabulary, every rank keeps about V/N of its rows, and
nobody ever holds the whole. All ranks of the group get the *same* tokens. Of those, a rank can look
up only the ones whose rows it has; for all others it puts in zeros. In the sum over the ranks each
token then has its row from its one owner, and zeros from everybody else:

    tokens                2        7        4             V = 9, N = 2
    rank 0, rows 0–4      row 2    zeros    row 4
    rank 1, rows 5–8      zeros    row 7    zeros
    sum                   row 2    row 7    row 4         the same on both ranks

Rules
- The cut is that of `torch.tensor_split` along dim 0: V need not divide by N. The first V mod N
  ranks of the group have one row more than the others; where V < N, the last ranks have no row at
  all, and still take part in every all-reduce.
- `weight` is this rank's rows of `full`, as the module's only parameter. It is a copy: a view
  would keep the memory of the whole matrix alive.
- `forward` takes tokens of any shape, and leaves them as they are.
- It costs one all-reduce of the output forward, 2(N-1)/N·S bytes, and nothing backward: all ranks
  go on with the same output, so each gets the whole gradient of it already, and needs the part for
  its own rows only. Each rank ends with `weight.grad` = its rows of the gradient that one process
  would have.

`reduce_from_group` is this all-reduce with the right backward; you may also write your own, with
`all_reduce` of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

import torch
from torch import nn

from course_lib.comm import Group, reduce_from_group


class VocabParallelEmbedding(nn.Module):
    """An embedding of which this rank has some rows.

    Args:
        full: the whole embedding (V, D), the same on every rank; without padding_idx and max_norm.
        group: the ranks.

    Attributes:
        weight: this rank's rows of `full.weight`; the only parameter.
    """

    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        raise NotImplementedError("vocab_parallel_embedding: keep this rank's rows")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The tokens' rows.

        Args:
            tokens: int64 [...], the same on every rank.

        Returns:
            [..., D], the same on every rank.
        """
        raise NotImplementedError("vocab_parallel_embedding: own rows, zeros for the others, one all-reduce")
