"""What can be said of the notebooks without running them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from course_lib.plot.court.cold import CASES
from course_lib.plot.court.vote import CHOICES, VERDICTS

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if path.name[0].isdigit()]  # the others are appendices
COURT = ROOT / "notebooks" / "A1_claims_court.ipynb"
COLD = ROOT / "notebooks" / "A2_cold_cases.ipynb"
SECTIONS = ("Why", "Predict", "Prove", "Exercises", "Production", "In the wild", "Check your")


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.fixture(params=NOTEBOOKS, ids=lambda p: p.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda p: p.stem)
def test_goes_the_way_of_all_lessons(lesson: Path) -> None:
    text = "\n".join(source(cell) for cell in cells(lesson, "markdown"))
    assert text.startswith("# ")
    for word in ("You will be able to", "Before this", "Time", "cheat sheet", "Read on", *SECTIONS):
        assert word.lower() in text.lower(), f"no {word!r}"
    assert text.count("<details>") >= 3


def test_was_run_to_its_end_without_errors(notebook: Path) -> None:
    counts = [cell["execution_count"] for cell in cells(notebook, "code")]
    assert counts == list(range(1, len(counts) + 1))
    for cell in cells(notebook, "code"):
        for output in cell["outputs"]:
            assert output["output_type"] != "error", source(cell)
            assert output.get("name") != "stderr", source(cell)


def test_code_fits_the_page(notebook: Path) -> None:
    for cell in cells(notebook, "code"):
        for line in source(cell).splitlines():
            assert len(line) <= 90, line
        assert not source(cell).rstrip().endswith(";"), "nbval and the ranks would differ"


def test_a_cell_is_read_at_a_glance(notebook: Path) -> None:
    for cell in cells(notebook, "code"):
        lines = [line for line in source(cell).splitlines() if line.strip()]
        assert len(lines) <= 25, source(cell)


def test_words_that_stop_a_reader(notebook: Path) -> None:
    """Calques, which an editor has found more than once."""
    text = "\n".join(source(cell) for cell in cells(notebook, "markdown"))
    assert not (found := re.findall(r"\b(dear|dearer|dearest|anew|for ever)\b", text)), found


def test_a_lesson_displays_a_formula(notebook: Path) -> None:
    if notebook in LESSONS:
        text = "\n".join(source(cell) for cell in cells(notebook, "markdown"))
        assert text.count("$$") >= 2


def test_a_mesh_of_torch_is_where_the_tensors_are(notebook: Path) -> None:
    """Ranks may have GPUs, and the lessons' tensors stay on the CPU: a mesh on the GPU fails."""
    for cell in cells(notebook, "code"):
        assert "init_device_mesh(device.type" not in source(cell)


def test_an_answer_is_not_readable_above_its_field(notebook: Path) -> None:
    for cell in cells(notebook, "code"):
        if "plot.predict(" in source(cell):
            assert cell["metadata"].get("jupyter", {}).get("source_hidden"), source(cell)


def test_pictures_speak_and_stay_here(notebook: Path) -> None:
    text = notebook.read_text()
    assert not re.search(r'src=\\?"https?://', text), "a picture from another machine"
    for cell in cells(notebook, "code"):
        for output in cell["outputs"]:
            data = output.get("data", {})
            assert "image/png" not in data, "a PNG output has no alternative text"
            for tag in re.findall(r"<img[^>]*>", "".join(data.get("text/html", ""))):
                assert re.search(r'alt="[^"]{20,}"', tag), tag[:80]


def test_hardly_any_output_is_left_unchecked(notebook: Path) -> None:
    code = cells(notebook, "code")
    ignored = [c for c in code if "nbval-ignore-output" in c["metadata"].get("tags", [])]
    assert len(ignored) <= max(1, len(code) // 10)


def test_no_output_has_more_digits_than_every_processor_finds(notebook: Path) -> None:
    """The seventh digit of a loss is another one on a processor with other vector instructions."""
    for cell in cells(notebook, "code"):
        if "nbval-ignore-output" in cell["metadata"].get("tags", []):
            continue
        for output in cell["outputs"]:
            text = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
            for number in re.findall(r"(?<![\d.,])\d+\.\d+(?![\d.])", text):
                digits = number.removesuffix(".0").replace(".", "").lstrip("0")
                assert len(digits) <= 6, f"{number} in the output of\n{source(cell)}"


def test_links_lead_somewhere(notebook: Path) -> None:
    text = "\n".join(source(cell) for cell in cells(notebook, "markdown"))
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (notebook.parent / target).exists(), target


def test_no_trace_of_a_machine(notebook: Path) -> None:
    assert not re.search(r"/(home|root|Users|work|tmp)/", notebook.read_text())


def test_the_claims_court_tells_its_verdicts_only_in_folds() -> None:
    """A reader votes first; the page's verdicts and their sum are those that a vote is held to."""
    text = "\n\n".join(source(cell) for cell in cells(COURT, "markdown"))
    folds = re.findall(r"<details><summary>Verdict (\d+), .*?</details>", text, flags=re.S)
    assert [int(number) for number in folds] == list(VERDICTS)
    for number, verdict in VERDICTS.items():
        fold = re.search(rf"Verdict {number}, .*?\n\n\*\*(True|False|Only if)\b", text)
        assert fold and fold[1].lower() == verdict, number
    opened = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    assert "**True" not in opened and "**False" not in opened and "**Only if" not in opened
    told = re.search(r"(\w+) are true, (\w+) are false and (\w+) hold only under", opened)
    words = {4: "four", 9: "nine", 12: "twelve"}
    votes = list(VERDICTS.values())
    assert told and told.groups() == tuple(words[votes.count(choice)] for choice in CHOICES)


def test_a_vote_names_no_verdict_to_who_does_not_click() -> None:
    for cell in cells(COURT, "code"):
        for output in cell["outputs"]:
            still = "".join(output.get("data", {}).get("text/html", "")).partition("<script>")[0]
            assert "court says" not in still and "Verdict" not in still
    votes = [cell for cell in cells(COURT, "code") if "plot.vote(" in source(cell)]
    assert [source(cell) for cell in votes] == [f"plot.vote({n})" for n in VERDICTS]


def test_a_cold_case_is_committed_to_before_its_reveal() -> None:
    """No answer stands in the page's code, and each reveal comes folded below its field."""
    page = [source(cell) for cell in json.loads(COLD.read_text())["cells"]]
    fields = [place for place, text in enumerate(page) if text.startswith("plot.commit(")]
    reveals = [place for place, text in enumerate(page) if "<b>The reveal</b></summary>" in text]
    assert [page[place] for place in fields] == [f"plot.commit({case})" for case in CASES]
    assert len(reveals) == len(CASES)
    assert all(field < reveal for field, reveal in zip(fields, reveals, strict=True))
