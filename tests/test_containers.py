"""The containers' files say what the rest of the repository says; no container is built here."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LINES = re.sub(r"\\\n\s*", "", DOCKERFILE).splitlines()  # one instruction a line
DEVCONTAINERS = sorted((ROOT / ".devcontainer").rglob("devcontainer.json"))


def instructions(word: str) -> list[str]:
    return [line.removeprefix(word + " ") for line in LINES if line.startswith(word + " ")]


@pytest.fixture(params=DEVCONTAINERS, ids=lambda path: path.parent.name)
def devcontainer(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    return request.param, json.loads(request.param.read_text())


def test_the_python_is_one_that_the_course_runs_on() -> None:
    (base,) = re.findall(r"ARG BASE=python:(\d+)\.(\d+)-slim", DOCKERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (oldest,) = re.findall(r">=(\d+)\.(\d+)", project["requires-python"])
    assert tuple(map(int, base)) >= tuple(map(int, oldest))
    assert f'"{".".join(base)}"' in (ROOT / ".github/workflows/test.yml").read_text()


def test_versions_come_from_the_pinned_files_alone() -> None:
    """A version in two places is soon two versions."""
    assert "==" not in DOCKERFILE and not re.search(r"torch[-_ ]?\d", DOCKERFILE)
    pins = (ROOT / "constraints.txt").read_text()
    (torch_pin,) = re.findall(r"^torch==(\S+)$", pins, re.M)
    assert f"torch=={torch_pin}\n" in (ROOT / "requirements.txt").read_text()
    assert "python3 install.py --torch ${TORCH}" in instructions("RUN")


def test_what_it_copies_and_makes_is_there() -> None:
    for copied in instructions("COPY"):
        *names, _ = [word for word in copied.split() if not word.startswith("--")]
        assert all((ROOT / name).exists() for name in names), copied
    assert re.search(r"^\.venv/ready:", (ROOT / "Makefile").read_text(), re.M)
    (command,) = instructions("CMD")
    *words, notebook = json.loads(command)
    assert (ROOT / notebook).exists()
    (folder,) = instructions("WORKDIR")  # else links that lead out of notebooks/ are dead
    assert f"--ServerApp.root_dir={folder}" in words


def test_nobody_is_root_and_nothing_is_secret() -> None:
    users = [i for i, line in enumerate(LINES) if line.startswith("USER ")]
    commands = [
        i for i, line in enumerate(LINES) if line.startswith(("CMD", "RUN make", "RUN python3"))
    ]
    assert len(users) == 1 and users[0] < min(commands)
    assert instructions("USER") == ["learner"]
    given = " ".join(instructions("ARG") + instructions("ENV")).lower()
    assert not re.search("token|password|secret|key=", given)


def test_what_belongs_to_one_machine_stays_out() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", ".course"} <= set(ignored)
    needed = {"course_lib", "exercises", "notebooks", "Makefile", "README.md", "solutions"}
    assert not needed & set(ignored)


def test_a_devcontainer_is_this_container(devcontainer: tuple[Path, dict[str, Any]]) -> None:
    path, config = devcontainer
    built = path.parent / config["build"]["dockerfile"]
    assert built.resolve() == ROOT / "Dockerfile"
    assert (path.parent / config["build"]["context"]).resolve() == ROOT
    declared = {line.partition("=")[0] for line in instructions("ARG")}
    assert set(config["build"].get("args", {})) <= declared
    assert config["remoteUser"] in instructions("USER")
    assert config["workspaceFolder"] in instructions("WORKDIR")
    target = config["postCreateCommand"].removeprefix("make ")
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.M)


def test_only_the_one_for_cuda_asks_for_gpus() -> None:
    configs = {path.parent.name: json.loads(path.read_text()) for path in DEVCONTAINERS}
    assert set(configs) == {".devcontainer", "cuda"}
    assert "--gpus=all" in configs["cuda"]["runArgs"]
    assert "--gpus=all" not in configs[".devcontainer"]["runArgs"]
    assert all(any(a.startswith("--shm-size") for a in c["runArgs"]) for c in configs.values())
    assert configs["cuda"]["build"]["args"] == {"TORCH": "cuda"}
    assert "ARG TORCH=cpu" in LINES and "args" not in configs[".devcontainer"]["build"]
    volumes = [config["mounts"] for config in configs.values()]
    assert volumes[0] != volumes[1], "a build of torch for CPUs is none for GPUs"
