"""Shapes of well-known models, held against the parameters that their authors count."""

from __future__ import annotations

import pytest

from course_lib.model import parameter_count
from course_lib.plan.inputs.models import MODELS, model


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_the_published_ones(name: str) -> None:
    known = MODELS[name]
    digits = len(known.billions.partition(".")[2])
    assert f"{parameter_count(known.config) / 1e9:.{digits}f}" == known.billions
    assert known.source


def test_active_parameters_of_experts() -> None:
    """Mixtral says 12.9 and 39 billion a token."""
    active = {name: parameter_count(model(name), active=True) / 1e9 for name in MODELS}
    assert active["mixtral-8x7b"] == pytest.approx(12.9, abs=0.05)
    assert active["mixtral-8x22b"] == pytest.approx(39, abs=0.5)
    assert active["llama3-8b"] == parameter_count(model("llama3-8b")) / 1e9


def test_an_unknown_model() -> None:
    with pytest.raises(ValueError, match="llama3-70b"):
        model("llama9")
