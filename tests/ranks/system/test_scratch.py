"""Folders for temporary files: one's own at once, those of the dead at the next chance."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from course_lib.ranks.system.scratch import PREFIX, remove_tree, scratch_folder, sweep

ROOT = Path(__file__).resolve().parents[3]
HOLD = (
    "import time\nfrom course_lib.ranks.system.scratch import scratch_folder\n"
    "with scratch_folder() as folder:\n"
    "    (folder / 'file').write_text('x')\n    print(folder, flush=True)\n    time.sleep(600)\n"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process and of those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_gone_after_the_block_also_after_an_error(temporary: Path) -> None:
    files = set(os.listdir("/proc/self/fd")) if Path("/proc").exists() else set()
    with pytest.raises(ValueError, match="on purpose"), scratch_folder() as folder:
        (folder / "below").mkdir()
        (folder / "below" / "file").write_text("x")
        raise ValueError("on purpose")
    assert not list(temporary.iterdir())
    assert not files or len(os.listdir("/proc/self/fd")) <= len(files)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_the_dead_left_goes_and_what_the_living_have_stays(
    temporary: Path, number: int
) -> None:
    (temporary / "of somebody else").mkdir()
    (victim, left), (other, kept) = holder(), holder()
    try:
        victim.send_signal(number)
        victim.communicate()
        assert (left / "file").exists(), "who was killed removes nothing"
        with scratch_folder() as mine:
            assert not left.exists()
            assert {kept, mine} == set(temporary.glob(f"{PREFIX}*"))
    finally:
        other.kill()
        other.communicate()
    sweep()
    assert [path.name for path in temporary.iterdir()] == ["of somebody else"]


def test_the_preloaded_process_removes_what_its_killed_owner_left(temporary: Path) -> None:
    """Also if the owner is killed while it still imports."""
    text = HOLD.replace(
        "import time\n",
        "import time\nfrom course_lib.ranks import ForkServer\nserver = ForkServer()\n",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert folder.exists()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 90
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.exists()


def test_a_folder_of_any_depth_and_any_rights_is_removed(tmp_path: Path) -> None:
    before, folder = os.getcwd(), tmp_path / "deep"
    folder.mkdir()
    (folder / "closed").mkdir(mode=0)
    (folder / "link").symlink_to(tmp_path)
    os.chdir(folder)
    try:
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        Path("file").touch()
    finally:
        os.chdir(before)
    remove_tree(folder)
    assert not folder.exists() and tmp_path.exists()
