"""A backward of weights that Zero1 or Zero2 has updated meanwhile is refused, as torch does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from course_lib.parallel.zero.zero1 import Zero1
from course_lib.parallel.zero.zero2 import Zero2


@pytest.mark.parametrize("kind", [Zero1, Zero2])
def test_a_forward_from_before_the_step_has_no_backward_after_it(ranks: Any, kind: Any) -> None:
    def run(group: Any) -> str:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        optimizer = kind(model.parameters(), torch.optim.SGD, group, lr=1.0)
        early, late = (model(torch.ones(1, 3)).square().sum() for _ in range(2))
        early.backward()
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            late.backward()
        return "said"

    assert ranks(run, 2) == ["said"] * 2
