"""Muon where every rank has a piece of every matrix: one owner makes each update.

Notebook: 19 Optimizers that see matrices (owner_muon).
Source: Liu et al., "Muon is Scalable for LLM Training" (2025), section 2.3; Ahn et al., "Dion"
(2025).
Costs a step: two all-to-alls, together at most 2(N-1)/N·S/N bytes sent by each rank, S the bytes
of the matrices. Momentum stays cut, S/N; the owned matrices are whole while their update is made.
The production version (Dion's repository) overlaps the exchange of one batch of matrices with the
iteration of another.

An update of a piece is not the piece of the update, so element-wise wrappers refuse Muon. Momentum
and the last addition are element-wise, though: only what lies between them needs whole matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel.matrix.muon import Muon
from course_lib.parallel.matrix.newton_schulz import newton_schulz, newton_schulz_flops
from course_lib.parallel.matrix.owners import Cut, Exchange, choose_owners


class OwnerMuon(Muon):
    """Muon over parameters that FSDP has cut: the same weights as on one process.

    Args:
        params: cut matrices, the same on every rank, in the same order.
        cuts: how they are cut: `cuts()` of the FSDP.
        group: the ranks that have the pieces.
        options: of `Muon`.

    Attributes:
        joins_pieces: that it knows what it has are pieces, which FSDP asks before a step.

    Raises:
        CommError: a parameter is not among the cuts, or no matrix.
    """

    joins_pieces = True

    def __init__(
        self, params: Iterable[Any], cuts: Mapping[nn.Parameter, Cut], group: Group, **options: Any
    ) -> None:
        self.cuts, self.group = cuts, group
        super().__init__(params, **options)

    def shape_of(self, parameter: nn.Parameter) -> Sequence[int]:
        """(rows, columns) of the matrix that the parameter is a piece of."""
        if parameter not in self.cuts:
            raise CommError(
                f"OwnerMuon over {self.group}",
                f"a parameter of {parameter.numel()} elements that is not among the cuts",
                "pass cuts() of the FSDP that has it; parameters that are kept whole go to Muon",
            )
        return self.cuts[parameter].shape

    def orthogonal(
        self, parameters: Sequence[nn.Parameter], directions: Sequence[torch.Tensor], steps: int
    ) -> list[torch.Tensor]:
        """Each direction whole on its owner, made orthogonal there, and cut again."""
        if not directions:
            return []
        cuts = [self.cuts[parameter] for parameter in parameters]
        owners = choose_owners([newton_schulz_flops(c.shape) for c in cuts], self.group.size)
        exchange = Exchange(cuts, owners, self.group)
        whole = exchange.to_owners(directions)
        made = {number: newton_schulz(matrix, steps) for number, matrix in whole.items()}
        return exchange.back(made, directions)
