"""The buttons of the claims court and of the cold cases."""

from __future__ import annotations

from typing import Any

from course_lib.plot import commit, vote


def test_a_vote_is_held_to_the_verdict_and_counted_once(browser: Any) -> None:
    page = browser.new_page()
    page.set_content("<!doctype html><body>" + "".join(vote(n)._repr_html_() for n in (1, 2)))
    first, second = page.locator(".cp-vote").all()
    first.get_by_role("button", name="false", exact=True).click()  # 2 · 7/8 is not 87.5 %
    second.get_by_role("button", name="true", exact=True).click()  # not with two micro-batches
    said = page.get_by_role("status").all_inner_texts()
    assert said == [
        "You said: false. So does the court. Agreed so far: 1 of 1.",
        "You said: true. The court says otherwise. Agreed so far: 1 of 2.",
    ]
    assert first.get_by_role("button", name="true", exact=True).is_disabled()
    page.close()


def test_a_wrong_cause_shows_its_evidence_and_another_may_be_chosen(browser: Any) -> None:
    page = browser.new_page()
    page.set_content("<!doctype html><body>" + commit(1)._repr_html_())
    page.get_by_role("button", name="1", exact=True).click()
    wrong = page.get_by_role("status").inner_text()
    assert wrong == "You said: 1. Evidence 3: it is there without a network."
    page.get_by_role("button", name="3", exact=True).click()
    assert page.get_by_role("status").inner_text() == "You said: 3. So does the evidence."
    assert page.locator("details[open]").count() == 1
    page.close()
