"""What a rank tells the judge goes its way, whatever an answer sets on its ledger."""

from __future__ import annotations

import pytest

from course_lib.grade.rank.told_ledger import ToldLedger


@pytest.mark.parametrize("name", ["mark", "add_span", "tell"])
def test_no_attribute_takes_the_place_of_what_tells(name: str) -> None:
    ledger, told, kept = ToldLedger(0), list[str](), list[str]()
    ledger.tell = told.append
    with pytest.raises(AttributeError, match="stays as it is"):
        setattr(ledger, name, kept.append)
    vars(ledger)[name] = kept.append
    ledger.mark("backward over")
    ledger.add_span("step", 0.0)
    assert (told, kept) == (["backward over", "step"], [])


def test_each_ledger_tells_its_own() -> None:
    one, other = ToldLedger(0), ToldLedger(1)
    told: list[str] = []
    one.tell = told.append
    other.mark("of the other")
    one.mark("of the one")
    assert told == ["of the one"]
    assert other.tell is None
