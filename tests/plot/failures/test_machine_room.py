"""The machine room: what befell whom is in the words, and an empty record is refused."""

from __future__ import annotations

import pytest

from course_lib.plot import machine_room
from course_lib.trace import Refusal


def test_faults_and_steps_are_in_the_words() -> None:
    spells = [(0, 0.0, 9.0, "works"), (1, 0.0, 2.0, "works"), (1, 2.0, 4.5, "freeze"),
              (1, 4.5, 5.0, "heals"), (1, 5.0, 9.0, "works")]  # fmt: skip
    picture = machine_room(spells, [(1.0, 2), (3.0, 1), (9.0, 2)])
    assert "Rank 1: frozen from 2.0 s to 4.5 s." in picture.alt
    assert "3 steps counted 5 batches" in picture.alt and picture.measured
    assert "the longest took 6.0 s" in picture.alt
    with pytest.raises(Refusal):
        machine_room([], [])
