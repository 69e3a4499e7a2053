"""install.py: which torch it takes, what it does with a broken environment, what it says."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "install.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("asked", "system", "gpu", "build"),
    [
        ("auto", "linux", False, "cpu"),
        ("auto", "linux", True, "cuda"),
        ("cuda", "linux", False, "cuda"),
        ("cpu", "linux", True, "cpu"),
        ("auto", "darwin", False, "cpu"),
        ("cuda", "darwin", False, "cpu"),
    ],
)
def test_which_build(install: ModuleType, asked: str, system: str, gpu: bool, build: str) -> None:
    assert install.build_for(asked, system, gpu) == build


@pytest.mark.parametrize(("code", "gpu"), [(None, False), (0, True), (9, False)])
def test_a_gpu_is_found_without_torch(
    install: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int | None,
    gpu: bool,
) -> None:
    if code is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.has_gpu(tmp_path) is gpu
    (tmp_path / "nvidia0").touch()
    assert install.has_gpu(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is one build")
def test_where_torch_comes_from(
    install: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pip that knows the build, one that does not, and then uv that gets it or does not."""
    pin = install.pins()["torch"]
    python = tmp_path / "python"
    monkeypatch.setenv("HERE", f"2.0, {pin.partition('==')[2]}+cpu")
    python.write_text('#!/bin/sh\necho "Available versions: $HERE"\n')
    python.chmod(0o755)
    assert install.torch_from(str(python), "cpu") == f"{pin}+cpu"
    python.write_text("#!/bin/sh\nexit 1\n")
    assert install.torch_from(str(python), "cpu") == pin
    assert install.torch_from(str(python), "cuda") == pin.replace("==", "===")
    monkeypatch.setattr(install, "has_gpu", lambda: False)
    for code, last in ((0, "uv pip install"), (2, "--force-reinstall --no-deps")):
        python.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
            f'case "$*" in *" uv pip "*) exit {code};; *index*) exit 1;; esac\n'
        )
        install.get_torch(str(python), "auto")
        asked = (tmp_path / "asked").read_text().splitlines()[-1]
        assert f"{last} " in asked and f" {pin}" in asked
        assert ("cannot be reached" in capsys.readouterr().out) == bool(code)


@pytest.mark.slow
def test_an_environment_is_made_once_and_made_again_when_broken(
    install: ModuleType, tmp_path: Path
) -> None:
    venv = tmp_path / "env"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(tmp_path / "a Python that is gone")
    (venv / "half").touch()
    python = install.make_environment(venv, broken=False)
    assert install.works(python, "import pip") and not (venv / "half").exists()
    (venv / "mine").touch()
    install.make_environment(venv, broken=False)
    assert (venv / "mine").exists(), "one that works is left alone"
    install.make_environment(venv, broken=True)
    assert install.works(python, "import pip") and not (venv / "mine").exists()


@pytest.mark.slow
def test_what_fails_is_not_ready_and_the_next_try_begins_anew(tmp_path: Path) -> None:
    """Without an index, nothing can be installed."""
    for name in ("install.py", "requirements.txt", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    env = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "install.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1 and "pip failed, as said above" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / ".venv" / "unfinished").exists()
    assert not (tmp_path / ".venv" / "ready").exists()


def test_torch_is_kept_only_where_there_is_one(
    install: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    install.get_torch(sys.executable, "keep")
    assert "is there" in capsys.readouterr().out
    with pytest.raises(install.Failed, match="it has none"):
        install.get_torch("false", "keep")


def test_make_asks_again_only_for_another_build(tmp_path: Path) -> None:
    """`make TORCH=cuda lab` after `make lab` must not answer that all is up to date."""
    for name in ("Makefile", "requirements.txt", "constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / ".venv").mkdir()
    ready = tmp_path / ".venv" / "ready"

    def told(there: str, *words: str) -> str:
        ready.write_text(there + "\n")
        done = subprocess.run(
            ["make", "-n", ".venv/ready", *words], cwd=tmp_path, capture_output=True, text=True
        )
        return done.stdout

    for there in ("auto", "cpu"):
        assert "install.py" not in told(there)
        assert "install.py" not in told(there, f"TORCH={there}")
        assert "install.py --torch cuda" in told(there, "TORCH=cuda")
