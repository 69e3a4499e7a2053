"""An embedding cut along the vocabulary: each rank keeps some rows, one all-reduce joins them.

Notebook 06. The embedding is often the largest matrix of a model: V·D numbers, for a vocabulary of
V tokens and a width of D. It is cut along the vocabulary: every rank keeps about V/N of its rows,
and no rank ever holds all of it. All ranks of the group get the *same* tokens. A rank looks up
those whose rows it has, and puts in zeros for all others. In the sum over the ranks, each token
then has its row from the rank that owns it, and zeros from the other ranks:

    tokens                2        7        4             V = 9, N = 2
    rank 0, rows 0–4      row 2    zeros    row 4
    rank 1, rows 5–8      zeros    row 7    zeros
    sum                   row 2    row 7    row 4         the same on both ranks

Rules
- The rows are cut as `torch.tensor_split` cuts along dim 0; N need not divide V. The first V mod N
  ranks of the group have one row more than the others. If V < N, the last ranks have no row at all,
  and still take part in every all-reduce.
- `weight` is this rank's rows of `full`, and the module's only parameter. It is a copy: a view
  would keep the memory of the whole matrix alive.
- `forward` takes tokens of any shape, and must not change them. The output has the dtype of
  `weight`.
- The forward makes one all-reduce of the output, in which each rank sends 2(N-1)/N·S bytes. The
  backward sends nothing: all ranks go on with the same output, so each already gets its whole
  gradient, and uses only the part for its own rows. In the end, `weight.grad` is this rank's rows
  of the gradient that one process would have.

`reduce_from_group` is this all-reduce with the right backward; you may also write your own, with
`all_reduce` of `course_lib.comm`.
"""

import torch
from torch import nn

from course_lib.comm import Group, reduce_from_group


class VocabParallelEmbedding(nn.Module):
    """An embedding of which this rank has some rows.

    Args:
        full: the whole embedding [V, D], the same on every rank, with no padding_idx or max_norm.
        group: the ranks.

    Attributes:
        weight: this rank's rows of `full.weight`; the only parameter.
    """

    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        # BEGIN SOLUTION: keep this rank's rows
        parts = full.weight.detach().tensor_split(group.size)  # mutate: same
        self.group = group  # mutate: same
        self.first = sum(len(part) for part in parts[: group.index])  # mutate: same
        self.weight = nn.Parameter(parts[group.index].clone())
        # END SOLUTION

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Looks up the tokens' rows.

        Args:
            tokens: int64 [...], the same on every rank.

        Returns:
            [..., D], the same on every rank.
        """
        # BEGIN SOLUTION: own rows, zeros for the others, one all-reduce
        local = tokens - self.first
        mine = (local >= 0) & (local < len(self.weight))  # mutate: same
        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
        rows[mine] = self.weight[local[mine]]
        return reduce_from_group(rows, self.group)
        # END SOLUTION
