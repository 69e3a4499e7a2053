"""The arithmetic of the `browser` benchmark; nothing is measured here."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from benchmarks.notebook import browser, lab
from benchmarks.notebook.browser import (
    HOLD,
    PEER,
    held_rows,
    lost,
    move_rows,
    never_painted,
    to_and_fro,
)
from course_lib.trace import Refusal


def test_every_slider_goes_to_the_right_and_back() -> None:
    right, left = "ArrowRight", "ArrowLeft"
    moves = list(islice(to_and_fro((("m", 2), ("p", 1))), 8))
    assert moves == [("m", right), ("m", right), ("m", left), ("m", left), ("p", right),
                     ("p", left), ("m", right), ("m", right)]  # fmt: skip


def test_lost_keys_and_frames_are_counted() -> None:
    assert lost([2, 3, 3, 4], before=1) == 1
    assert lost([1, 2], before=1) == 1
    assert lost([2, 1, 2], before=1) == 0
    assert never_painted([2, 3, 4], painted=[1, 1, 2, 4]) == 1
    assert never_painted([2, 3], painted=[1, 2, 2, 3, 3]) == 0


def log(**other: Any) -> dict[str, Any]:
    return {
        "keys": [0.0, 33.0, 66.0], "asked": [2, 3, 4], "painted": [1, 2, 3, 4], "changed": 70.0,
        "before": 1, "sent": 3, "right": True,
    } | other  # fmt: skip


def test_a_held_key_is_told_by_what_it_lost() -> None:
    found = {
        HOLD.name: log(painted=[1, 4]),
        "explorer mesh": log(keys=[0.0, 66.0], asked=[2, 3], right=False, changed=116.0),
        PEER.name: log(changed=266.0),
    }
    frames, keys, late = held_rows(found)
    assert (frames.what, frames.ours, frames.unit) == ("held key stepper", 2, "frames")
    assert (keys.what, keys.ours) == ("held key explorer mesh", 2)  # a key, and the last picture
    assert (late.what, late.ours, late.peer) == ("after a held key explorer mesh", 50.0, 200.0)
    assert all(row.bench == "browser" for row in (frames, keys, late))


def test_moves_have_a_median_and_a_p95_beside_the_peers() -> None:
    movers = [mover.name for mover in (*browser.STEPPERS, *browser.EXPLORERS)]
    times = [float(n) for n in range(1, 102)]
    rows = list(move_rows(dict.fromkeys(movers, times) | {PEER.name: [2 * t for t in times]}))
    assert [row.what for row in rows[:2]] == [f"{movers[0]}_ms_p50", f"{movers[0]}_ms_p95"]
    assert {(row.ours, row.peer, row.ratio) for row in rows} == {
        (51.0, 102.0, 0.5), (96.0, 192.0, 0.5),
    }  # fmt: skip
    assert len(rows) == 2 * len(movers)


def test_a_browser_that_is_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_CHROMIUM", "no-such-browser")
    with pytest.raises(Refusal, match="asked: the browser no-such-browser"):
        lab.browser_path()


def test_without_a_browser_there_are_no_rows_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Any:
        raise lab.Missing("no browser here")

    monkeypatch.setattr(browser, "chromium", none)
    assert list(browser.rows()) == []
    assert "browser: not measured: no browser here" in capsys.readouterr().err
