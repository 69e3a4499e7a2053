"""The shipped text is what its manifest says, and the same bytes on every Python."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from course_lib.data import library_text, load_corpus
from course_lib.data.pack_text import OF_A_BUILD, VERSION, pack

READER = """
import hashlib, runpy, sys
files = runpy.run_path(sys.argv[1])["library_files"]()
print(hashlib.sha256(b"".join(text for _, text in files)).hexdigest())
"""


def test_the_text_is_what_the_manifest_says() -> None:
    about = library_text.manifest()
    files = dict(library_text.library_files())
    assert {name: len(text) for name, text in files.items()} == about["files"]
    assert hashlib.sha256(b"".join(files.values())).hexdigest() == about["sha256"]
    assert about["python"] == VERSION
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in (library_text.FOLDER / "LICENSE.txt").read_text()


def test_the_text_names_no_folder_of_the_machine_that_packed_it() -> None:
    for name, text in library_text.library_files():
        assert not any(mark in text for mark in (b"/.pyenv", b"/tmp/python-build")), name


@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_other_pythons_read_the_same_bytes(python: str) -> None:
    """A bare one will do: neither torch nor this course is installed there."""
    env = {**os.environ, "PYENV_VERSION": python.removeprefix("python")}  # for pyenv's shims
    command = [python, "-I", "-c", READER, library_text.__file__]
    if shutil.which(python) is None:
        pytest.skip(f"there is no {python} here")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    if done.returncode == 127:
        pytest.skip(f"{python} is a shim without a Python behind it")
    assert done.stdout.strip() == library_text.manifest()["sha256"], done.stderr


def test_it_can_be_packed_again_from_a_checkout(tmp_path: Path) -> None:
    """A checkout has the folders that are left out, and lacks what a build makes."""
    checkout, packed = tmp_path / "Lib", tmp_path / "packed"
    packed.mkdir()
    for name, text in library_text.library_files():
        if name not in OF_A_BUILD:
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes(text)
    (checkout / "test").mkdir()
    (checkout / "test" / "test_os.py").write_text("left_out = True")
    assert pack(checkout, packed) == library_text.manifest()["sha256"]
    assert library_text.manifest(packed) == library_text.manifest()
    assert dict(library_text.library_files(packed)) == dict(library_text.library_files())


def test_a_limit_reads_the_beginning_of_the_same_text() -> None:
    some, whole = load_corpus(limit=1 << 20), load_corpus()
    assert some.files < whole.files == len(library_text.manifest()["files"])
    assert torch.equal(some.train, whole.train[: some.train.numel()])
