"""The installed package by itself: what it carries, what works, and what it says it has not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "course_lib"
if importlib.util.find_spec("setuptools") is None:
    pytest.skip("setuptools, which builds the wheel, is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves its work where it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(LIBRARY, folder / "course_lib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    subprocess.run(
        [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('.')"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip unpacks it, into a folder of packages."""
    folder = tmp_path_factory.mktemp("env") / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def alone(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with the installed package, in a folder that is no course."""
    folder = site.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=240
    )


def test_the_wheel_carries_every_file_of_the_library(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    there = {
        str(path.relative_to(ROOT)) for path in LIBRARY.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }  # fmt: skip
    assert there <= names, sorted(there - names)
    slurm = "course_lib/train/command/other_tools/slurm.sbatch"
    assert {"course_lib/plan/data/runs.csv", slurm} <= names
    assert not [name for name in names if not name.startswith(("course_lib/", "course_lib-"))]


def test_its_metadata_says_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    text = archive.read(name).decode()
    assert "Requires-Dist: torch<" in text and "Requires-Python: >=3.11" in text
    assert "Provides-Extra: lab" in text and "Provides-Extra: test" in text


@pytest.mark.slow
def test_plan_doctor_and_training_work(site: Path) -> None:
    course = ("-m", "course_lib.grade.cli")
    plan = alone(
        site, *course, "plan", "--model", "llama3-8b", "--gpus", "8xH100", "--global-batch", "64"
    )
    assert plan.returncode == 0 and "tp" in plan.stdout.lower(), plan.stderr
    doctor = alone(site, *course, "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "tested with these" in doctor.stdout and "without lessons and exercises" in doctor.stdout
    train = alone(
        site,
        "-m",
        "course_lib.train.run",
        "--check",
        "--pp",
        "2",
        "--dp",
        "2",
        "--folder",
        "runs/x",
    )
    assert train.returncode == 0, train.stdout + train.stderr


@pytest.mark.parametrize(
    "words", [("list",), ("progress",), ("grade", "ring_all_reduce"), ("hint", "zero1"), ("watch",)]
)
def test_what_needs_exercises_says_where_they_are(site: Path, words: tuple[str, ...]) -> None:
    refused = alone(site, "-m", "course_lib.grade.cli", *words)
    assert refused.returncode == 2 and refused.stdout == ""
    asked, found, why = refused.stderr.splitlines()
    assert "exercises" in asked and "installed by itself" in found and "git clone http" in why


def test_nothing_is_written_beside_installed_packages(site: Path) -> None:
    alone(site, "-m", "course_lib.grade.cli", "hint", "ring_all_reduce")
    rooms = {path.name for path in site.iterdir()}
    assert {name for name in rooms if not name.startswith("course_lib")} == set()
    assert not list((site.parent / "elsewhere").rglob(".course"))


@pytest.mark.slow
def test_ranks_run_in_a_notebook(site: Path) -> None:
    cell = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'course_lib')\n"
        "shell.run_cell_magic('ranks', '2', 'print(group.size)')\n"
        "shell.run_line_magic('progress', '')\n"
    )
    ran = alone(site, "-c", cell)
    assert "ranks 0–1 │ 2" in ran.stdout, ran.stdout + ran.stderr
    assert "git clone http" in ran.stdout
