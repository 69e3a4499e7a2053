"""Curves of training runs as a page, from their logs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from course_lib.grade.cli import main
from course_lib.plot.runs.run_curves import read_runs, run_curves


def run(folder: Path, steps: int, **more: float) -> Path:
    folder.mkdir(parents=True)
    rows = [{"step": n, "loss": 5 / n, "norm": 1.0, **more} for n in range(1, steps + 1)]
    rows[-1]["validation"] = 2.5
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "log.jsonl").write_text(lines + '{"step": 99, "lo')
    return folder


def test_one_page_of_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = run(tmp_path / "one", 5, mfu=0.25), run(tmp_path / "two<b>", 9)
    out = tmp_path / "page.html"
    assert main(["runs", str(one), str(two), "--out", str(out)]) == 0
    assert "4 pictures of 2 runs" in capsys.readouterr().out
    page = out.read_text()
    assert page.count("<img ") == 4 and "two&lt;b&gt;" in page and "two<b>" not in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "<script" not in page
    for picture in run_curves(read_runs([one, two])):
        ElementTree.fromstring(picture.svg)
        assert picture.alt


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    folder = run(tmp_path / "r", 3)
    text = (folder / "log.jsonl").read_text().replace("5.0", "NaN")
    (folder / "log.jsonl").write_text(text)
    loss = run_curves(read_runs([folder]))[0]
    assert "2.5 at step 2" in loss.alt


def test_equal_names_are_told_apart(tmp_path: Path) -> None:
    names = read_runs([run(tmp_path / "a" / "r", 2), run(tmp_path / "b" / "r", 2)])
    assert len(names) == 2


def test_a_folder_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 2
    assert "no step in" in capsys.readouterr().err
