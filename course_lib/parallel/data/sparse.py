"""Gradients with few rows, as of an embedding: the rows are gathered, and nothing else is sent.

Notebook: none; exercise BucketedDDP's refusals say what has no rows.
Source: `allreduce` of sparse tensors in torch's ProcessGroupGloo, which gathers in the same way.
Costs (N-1)·R·(8 + D·item) bytes a rank for a table of width D, R the most rows that a rank has,
where an all-reduce sends 2(N-1)/N of the whole table; and 8 bytes a rank that say how many.
The production version sums rows that several ranks have before they are all sent.
"""

from __future__ import annotations

import torch
from torch import nn

from course_lib.comm import Group, all_gather


def sparse_parameters(module: nn.Module) -> set[torch.Tensor]:
    """The tables of embeddings that were made with `sparse=True`."""
    tables = [m for m in module.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
    return {table.weight for table in tables if table.sparse}


def average_sparse(parameter: nn.Parameter, group: Group) -> None:
    """Replaces a sparse gradient by its mean over the ranks; without one, a rank gives no row.

    Args:
        parameter: a table [V, D]; its gradient is sparse in dim 0, or None.
        group: the ranks.
    """
    rows, values = _rows_of(parameter)
    counts = rows.new_empty(group.size)
    all_gather(counts, rows.new_tensor([len(rows)]), group)
    each = counts.tolist()
    all_rows, all_values = (_gathered(part, each, group) for part in (rows, values))
    parameter.grad = torch.sparse_coo_tensor(
        all_rows[None], all_values / group.size, parameter.shape, check_invariants=False
    ).coalesce()


def _rows_of(parameter: nn.Parameter) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows have a gradient, int64 [R], each once; and the gradients, [R, D]."""
    if parameter.grad is None:
        nothing = torch.empty(0, dtype=torch.int64, device=parameter.device)
        return nothing, parameter.detach()[:0]
    gradient = parameter.grad.coalesce()
    return gradient.indices()[0], gradient.values()


def _gathered(part: torch.Tensor, counts: list[int], group: Group) -> torch.Tensor:
    """All ranks' rows, of which each has its own number: padded to the most, gathered, and cut."""
    most = max(counts)
    padded = part.new_zeros(most, *part.shape[1:])
    padded[: len(part)] = part
    whole = part.new_empty(group.size * most, *part.shape[1:])
    all_gather(whole, padded, group)
    return torch.cat([rows[:n] for rows, n in zip(whole.split(most or 1), counts, strict=False)])
