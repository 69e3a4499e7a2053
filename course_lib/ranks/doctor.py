"""Whether the course can run here: what was found, and what to do about each problem."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import psutil
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from course_lib.comm import Group, all_reduce
from course_lib.comm.start import choose_backend, choose_device
from course_lib.ranks.hosts import hosts
from course_lib.ranks.hosts.recorded import core_count
from course_lib.ranks.pool.outcome import RanksError
from course_lib.ranks.pool.run import run_on_ranks
from course_lib.ranks.start import spares
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.ranks.start.launch import start_method
from course_lib.ranks.system.processes import LACKS
from course_lib.ranks.system.wall import lacks
from course_lib.trace import Refusal

OLDEST = (3, 11)
RANKS = 4  # of most lessons
ROOM = 2 << 30  # bytes of memory that four ranks and a notebook take, with something to spare
DISK = 1 << 30
COMPILERS = ("c++", "g++", "clang++")
PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
MARKS = {"ok": "✓", "note": "·", "problem": "✗"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: in a word or two.
        state: `ok`; `note`, if something is missing that lessons do without; `problem`.
        found: in a sentence.
        advice: what to do; "" if there is nothing to do.
    """

    what: str
    state: str
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Report:
    """All findings.

    Attributes:
        findings: in the order in which they were looked at.
    """

    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is in the way."""
        return all(finding.state != "problem" for finding in self.findings)

    def __repr__(self) -> str:
        lines = []
        for one in self.findings:
            lines.append(f"{MARKS[one.state]} {one.what:<14} {one.found}")
            if one.advice:
                lines.append(f"{'':<17}→ {one.advice}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{MARKS[one.state]}</td><td style='text-align:left'>{escape(one.what)}</td>"
            f"<td style='text-align:left'>{escape(one.found)}"
            f"{f'<br>→ {escape(one.advice)}' if one.advice else ''}</td></tr>"
            for one in self.findings
        )
        return f"<table>{rows}</table>"


def examine(root: Path | None, server: ForkServer | None = None) -> Report:
    """Looks at everything; nothing that it finds stops it.

    Args:
        root: the course's folder; None if there is only the installed package.
        server: a preloaded process to start two ranks from; None starts one, in seconds.
    """
    looks: tuple[Callable[[], Finding], ...] = (
        _python,
        lambda: versions(tested()),
        _devices,
        _cores,
        _memory,
        lambda: _disk(root) if root else _no_course(),
        lambda: _ranks(server),
        _limits,
        _wall,
        _hosts,
        _compiler,
    )
    return Report(tuple(look() for look in looks))


# --- the looks -----------------------------------------------------------------------------------
def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= OLDEST:
        return Finding("Python", "ok", found)
    needed = ".".join(map(str, OLDEST))
    return Finding("Python", "problem", found, f"make PYTHON=python{needed}, after `make clean`")


def tested() -> list[Requirement]:
    """Which versions the course was tested with: pyproject.toml says it, or what was built of it.

    The upper bound is the first version that was not.
    """
    if PROJECT.exists():
        lines = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    else:
        lines = importlib.metadata.requires("course-lib") or []
    return [need for need in map(Requirement, lines) if need.marker is None]


def versions(needs: Iterable[Requirement]) -> Finding:
    """What is installed, against what the course was tested with."""
    wrong, newer = [], []
    for need in needs:
        try:
            found = Version(importlib.metadata.version(need.name))
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is not installed")
            continue
        if not all(found in one for one in _bounds(need, ">=")):
            wrong.append(f"{need.name} {found} is older than what the course was tested with")
        elif not all(found in one for one in _bounds(need, "<")):
            newer.append(f"{need.name} {found}")
    if wrong:
        return Finding("packages", "problem", "; ".join(wrong),
                       "`make clean`, then `make lab`: it installs the right ones")  # fmt: skip
    if newer:
        return Finding(
            "packages", "note", f"newer than what was tested: {', '.join(newer)}",
            "if something fails, `make clean`, then `make lab`; outputs of notebooks may differ",
        )  # fmt: skip
    return Finding("packages", "ok", f"tested with these; torch {torch.__version__}")


def _bounds(need: Requirement, operator: str) -> list[SpecifierSet]:
    """One side of a range. `+cu130` does not count, and neither does being a pre-release."""
    return [SpecifierSet(str(one), prereleases=True)
            for one in need.specifier if one.operator == operator]  # fmt: skip


def _devices() -> Finding:
    try:
        device = choose_device(os.environ.get("COURSE_DEVICE", "auto"), 0, RANKS)
    except Refusal as error:
        found = f"{error.asked} is asked for: {error.found}"
        return Finding("devices", "problem", found, "unset COURSE_DEVICE, and it is chosen")
    backend = choose_backend(device, RANKS)
    gpus = torch.cuda.device_count()
    names = ", ".join(sorted({torch.cuda.get_device_name(n) for n in range(gpus)}))
    there = f"{gpus} × {names}" if gpus else "no GPU"
    through = "NCCL, and gloo for what is on the CPU" if "nccl" in backend else backend
    said = f"{there}; {RANKS} ranks compute on {device.type} and talk through {through}"
    if gpus and device.type == "cpu":
        return Finding(
            "devices", "note", said,
            f"fewer GPUs than ranks: COURSE_DEVICE=cuda shares them, %ranks {gpus} has one each",
        )  # fmt: skip
    return Finding("devices", "ok", said)


def _cores() -> Finding:
    count = core_count()
    said = f"{count} for {RANKS} ranks, each with one thread"
    if count == 1:
        return Finding("cores", "note", said, "everything works, and takes about twice as long")
    return Finding("cores", "ok", said)


def _memory() -> Finding:
    free = psutil.virtual_memory().available
    said = f"{free / 2**30:.1f} GiB free"
    if free < ROOM:
        return Finding("memory", "problem", said, "close other kernels; 2 GiB are needed")
    return Finding("memory", "ok", said)


def _disk(root: Path) -> Finding:
    """Whether progress can be kept, and checkpoints of lesson 11 have room."""
    try:
        with tempfile.TemporaryFile(dir=root):
            free = shutil.disk_usage(root).free
    except OSError as error:
        return Finding("folder", "problem", f"the course's own: {error.strerror}",
                       "copy the course to a folder that you may write to")  # fmt: skip
    said = f"{free / 2**30:.1f} GiB free where the course is"
    if free < DISK:
        return Finding("folder", "problem", said, "make room: checkpoints and traces need 1 GiB")
    return Finding("folder", "ok", said)


def _no_course() -> Finding:
    return Finding("folder", "note", "the package by itself, without lessons and exercises")


def _sum_of_indices(group: Group) -> float:
    """What two ranks say after one all-reduce."""
    mine = torch.tensor([float(group.index)], device=group.device)
    all_reduce(mine, group)
    return mine.item()


def _ranks(server: ForkServer | None) -> Finding:
    """Two real ranks, and one call."""
    try:
        found = run_on_ranks(_sum_of_indices, 2, server=server, timeout=30)
    except (RanksError, Refusal, OSError) as error:
        lines = [line for line in str(error).strip().splitlines() if not line.endswith(":")]
        return Finding(
            "ranks", "problem", lines[0] if lines else type(error).__name__,
            "if they cannot reach each other: export GLOO_SOCKET_IFNAME=lo (macOS: lo0)",
        )  # fmt: skip
    if found != [1.0, 1.0]:
        return Finding("ranks", "problem", f"0 + 1 is {found} on two ranks", "report this, please")
    said = "two processes started, and added 0 and 1"
    if start_method() == "spawn":
        said += "; each rank imports torch for itself, and so do up to"
        said += f" {spares.MOST} that wait ready (0.2 GiB each)"
    return Finding("ranks", "ok", said)


def _limits() -> Finding:
    """What holds an answer while it is graded."""
    if not LACKS:
        return Finding("limits", "ok", "the kernel limits an answer's time and memory")
    return Finding(
        "limits", "note",
        f"{LACKS}; of what an answer starts, a process that hides from it may stay",
    )  # fmt: skip


def _wall() -> Finding:
    """What keeps an answer that is graded from everything else."""
    missing = lacks()
    if not missing:
        return Finding("wall", "ok", "the kernel confines an answer: files, processes, network")
    return Finding(
        "wall", "note", f"this kernel does not keep an answer from {'; '.join(missing)}",
        "help with one's own answers is all right; give marks that count on Linux 6.12 or newer",
    )  # fmt: skip


def _hosts() -> Finding:
    reason = hosts.why_not()
    if reason is None:
        return Finding("slow links", "ok", "hosts can be emulated: %ranks 4 --hosts 2 --mbit 300")
    return Finding("slow links", "note", f"{reason}; lessons show recorded runs instead")


def compiler() -> str | None:
    """A C++ compiler that torch.compile can use; None if there is none."""
    return next((name for name in COMPILERS if shutil.which(name)), None)


def _compiler() -> Finding:
    there = compiler()
    if there:
        return Finding("C++ compiler", "ok", f"{there}, for torch.compile")
    return Finding("C++ compiler", "note", "none: torch.compile cannot be tried (lesson 14)")
