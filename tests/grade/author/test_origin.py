"""The address of a copy: the same wherever it stands, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.grade.author import origin
from course_lib.trace import Refusal

OLD = "https://github.com/OWNER/REPO"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pyproject.toml").write_text(f'[project.urls]\nRepository = "{OLD}"\n')
    (tmp_path / "README.md").write_text(
        "https://colab.research.google.com/github/OWNER/REPO/blob/main/a.ipynb\n"
        "https://mybinder.org/v2/gh/OWNER/REPO/HEAD?urlpath=lab\n"
        "say OWNER/REPO; github.com/OWNER/REPOSITORY\n"
    )
    (tmp_path / "notebooks" / "00_a.ipynb").write_text(f"git clone {OLD} course")
    (tmp_path / "docs" / "a.md").write_text("nothing of it")
    return tmp_path


@pytest.mark.parametrize(
    "given",
    ["ada/course.x", "https://github.com/ada/course.x.git", "git@github.com:ada/course.x.git"],
)
def test_one_address_everywhere(copy: Path, given: str) -> None:
    changed = [path.name for path in origin.move(copy, given)]
    assert changed == ["README.md", "00_a.ipynb", "pyproject.toml"]
    readme = (copy / "README.md").read_text()
    assert "/github/ada/course.x/blob" in readme and "/gh/ada/course.x/HEAD" in readme
    assert "say OWNER/REPO; github.com/OWNER/REPOSITORY" in readme
    assert "https://github.com/ada/course.x course" in (copy / "notebooks/00_a.ipynb").read_text()
    assert origin.move(copy, "ada/course.x") == []
    assert origin.move(copy, "bob/mine") and "bob/mine" in (copy / "pyproject.toml").read_text()


@pytest.mark.parametrize("given", ["", "https://example.org/ada/course", None])
def test_an_address_elsewhere_is_refused(copy: Path, given: str | None) -> None:
    before = (copy / "README.md").read_text()
    with pytest.raises(Refusal, match="no repository on GitHub"):
        origin.move(copy, given)
    assert (copy / "README.md").read_text() == before
