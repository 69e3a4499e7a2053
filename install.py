"""Sets the course up: in `.venv`, or for a notebook's kernel that has not got it.

    python3 install.py                  # what `make` does: .venv, with the pinned versions
    python3 install.py --torch cuda     # torch for GPUs where none was found; also: cpu, keep
    %run ../install.py --here           # the first cell of a lesson, in Colab, Kaggle, ...

The standard library alone: nothing else is there yet when this runs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
OLDEST = (3, 11)
PROBE = ("--retries", "0", "--timeout", "8")  # an index that does not answer costs seconds
NAME = re.compile(r"[\w.-]+")
PROGRESS = re.compile(r"Progress (\d+) of (\d+)")  # what `pip --progress-bar raw` prints
BUILDS = {
    "cpu": "the build for CPUs; `make TORCH=cuda lab` takes the other, with 3.6 GB for GPUs",
    "cuda": "the build for GPUs; `make TORCH=cpu lab` takes the other, 3.6 GB less",
}


class Failed(Exception):
    """The course cannot be set up; the text says what was asked, what was found, and why."""


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--torch", choices=("auto", *BUILDS, "keep"), default="auto")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--here", action="store_true", help="for the Python that runs this")
    args = parser.parse_args()
    try:
        check_python()
        serve_kernel() if args.here else set_up(args.venv, args.torch)
    except Failed as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. The same command starts again, with what was downloaded.")
        return 130
    return 0


def check_python() -> None:
    """Raises Failed if this Python is too old."""
    if sys.version_info < OLDEST:
        raise Failed(
            f"The course is to be set up with {sys.executable}\n"
            f"  that is Python {platform.python_version()}\n"
            "  it needs 3.11 or newer: `make PYTHON=python3.12 lab`, if that one is there"
        )


# --- which torch ---------------------------------------------------------------------------------
def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether NVIDIA's driver is there with a GPU; found without torch, which is not."""
    if any(devices.glob("nvidia[0-9]*")):
        return True
    asked = shutil.which("nvidia-smi")  # under WSL2 it is the only sign
    return bool(asked) and not subprocess.run([asked, "-L"], capture_output=True).returncode


def build_for(asked: str, system: str, gpu: bool) -> str:
    """Which build of torch is wanted: cpu or cuda. macOS has one, which counts as cpu."""
    if system == "darwin":
        return "cpu"
    return asked if asked in BUILDS else ("cuda" if gpu else "cpu")


def pins() -> dict[str, str]:
    """Package to requirement, of requirements.txt."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return {NAME.match(line)[0]: line for line in lines if NAME.match(line) and line[0] != "-"}


def torch_from(python: str, build: str) -> str:
    """The requirement that gives pip the wanted build of the pinned torch, where pip knows it."""
    pin = pins()["torch"]
    if sys.platform != "linux":  # there is one build, and PyPI has it
        return pin
    if build == "cuda":
        return pin.replace("==", "===")  # without a suffix, as PyPI's is
    ask = [python, "-m", "pip", "index", "versions", "torch", *PROBE]
    known = subprocess.run(ask, capture_output=True, text=True).stdout
    return f"{pin}+cpu" if f"{pin.partition('==')[2]}+cpu" in re.split(r"[\s,]+", known) else pin


def got_by_uv(python: str) -> bool:
    """Whether uv, which knows PyTorch's own index, has installed the build for CPUs."""
    run_pip(python, "uv", *locked())
    command = [python, "-m", "uv", "pip", "install", "--python", python, "--no-deps"]
    command += ["--torch-backend", "cpu", "--reinstall-package", "torch", pins()["torch"]]
    once = {**os.environ, "UV_HTTP_RETRIES": "0"}  # an index that does not answer costs seconds
    return not subprocess.run(command, env=once).returncode


def locked() -> list[str]:
    """What makes pip take the versions of constraints.txt."""
    return ["--constraint", str(ROOT / "constraints.txt")]


# --- .venv ---------------------------------------------------------------------------------------
def set_up(venv: Path, asked: str) -> None:
    """Makes the environment, or repairs it, and puts the pinned packages into it.

    `ready` in it holds what was asked of torch, and is there only if all went well.
    """
    begun = time.monotonic()
    ready, unfinished = venv / "ready", venv / "unfinished"
    python = make_environment(venv, broken=unfinished.exists())
    ready.unlink(missing_ok=True)
    unfinished.touch()
    run_pip(python, "pip", *locked())  # one that says how far a download is
    get_torch(python, asked)
    wanted = [line for name, line in pins().items() if asked != "keep" or name != "torch"]
    run_pip(python, *wanted, *locked())
    if (ROOT / "pyproject.toml").exists():  # else only what it needs, as in the Dockerfile
        run_pip(python, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    unfinished.unlink()
    ready.write_text(asked + "\n")
    size = sum(file.lstat().st_size for file in venv.rglob("*")) / 1e9
    print(f"Ready: {size:.1f} GB in {venv.name}, {time.monotonic() - begun:.0f} s.")


def get_torch(python: str, asked: str) -> None:
    """Installs torch alone, unless the one that is there will do.

    Raises:
        Failed: it is to be kept, and there is none.
    """
    build = build_for(asked, sys.platform, has_gpu())
    found = torch_in(python)
    pinned = found.partition("+")[0] == pins()["torch"].partition("==")[2]
    if asked == "keep" and not found:
        raise Failed(
            f"The torch of {python} is to be kept\n  it has none\n"
            f"  install yours first: {python} -m pip install torch ..."
        )
    if asked == "keep" or (pinned and (asked == "auto" or fits(found, build))):
        print(f"torch {found} is there.")
        return
    print(f"torch: {BUILDS[build]}.")
    requirement = torch_from(python, build)
    if not fits(requirement, build):
        if got_by_uv(python):
            return
        print("PyTorch's own index cannot be reached, or has no such build for this machine: "
              "PyPI's is taken, with 3.6 GB for GPUs.")  # fmt: skip
    run_pip(python, "--force-reinstall", "--no-deps", requirement)


def make_environment(venv: Path, broken: bool) -> str:
    """A virtual environment with pip, which is left alone if it works; returns its Python."""
    python = str(venv / "bin" / "python")
    if broken or not works(python, "import pip"):
        words = ["--clear"] if broken or not works(python, "") else []
        made = subprocess.run([sys.executable, "-m", "venv", *words, str(venv)])
        if made.returncode:
            raise Failed(f"A virtual environment is to be made in {venv}\n"
                         f"  {sys.executable} -m venv failed, as said above\n"
                         "  on Debian and Ubuntu: apt install python3-venv")  # fmt: skip
    return python


def works(python: str, code: str) -> bool:
    """Whether that Python runs that code."""
    try:
        return not subprocess.run([python, "-c", code], capture_output=True).returncode
    except OSError:
        return False


def torch_in(python: str) -> str:
    """The version of torch that an environment has; "" if none."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def fits(version: str, build: str) -> bool:
    """Whether a torch on Linux is of that build; elsewhere there is only one."""
    return sys.platform != "linux" or version.endswith("+cpu") == (build == "cpu")


# --- pip, with progress --------------------------------------------------------------------------
def run_pip(python: str, *words: str) -> None:
    """Runs `pip install`; one line says how far it is, or a line a package where none can move.

    Raises:
        Failed: pip did; it has said why.
    """
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", *words]
    if works(python, "import pip; assert int(pip.__version__.split('.')[0]) >= 25"):
        command += ["--progress-bar", "raw"]
    line = Line(Path(python).parents[1])
    calm = {**os.environ, "PYTHONWARNINGS": "ignore"}  # setuptools': a box about editable packages
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, bufsize=1, env=calm
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            line.take(text)
            if text.startswith("Installing collected"):
                line.watch(text.count(",") + 1, process)
    line.end()
    if process.returncode:
        raise Failed("Packages are to be installed\n  pip failed, as said above\n"
                     "  is there a network, and room on the disk?")  # fmt: skip


class Line:
    """What pip does, in short: on a terminal one line that is written over.

    Args:
        place: the environment into which pip installs.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._moves = sys.stdout.isatty()
        self._doing, self._count = "", 0

    def take(self, text: str) -> None:
        """One line of pip's."""
        progress = PROGRESS.match(text)
        if text.startswith("Collecting "):
            self._count += 1
            self._doing = f"{self._count:>3}  {text.split()[1]}"
            self._show(self._doing)
        elif progress and self._moves:
            done, of = (int(number) / 1e6 for number in progress.groups())
            self._show(f"{self._doing}  {done:.0f} of {of:.0f} MB")

    def watch(self, many: int, process: subprocess.Popen[str]) -> None:
        """Counts packages while pip unpacks them, which it does without a word."""
        before, said = self._unpacked(), -1
        while process.poll() is None:
            done = max(0, self._unpacked() - before)
            if said < 0 or (done != said if self._moves else done >= said + 20):
                self._show(f"     unpacking, {done} of {many} done")
                said = done
            time.sleep(0.2)

    def _unpacked(self) -> int:
        return sum(1 for _ in self._place.glob("lib/*/site-packages/*.dist-info/RECORD"))

    def _show(self, text: str) -> None:
        print(f"\r\033[K{text[:78]}" if self._moves else text,
              end="" if self._moves else "\n", flush=True)  # fmt: skip

    def end(self) -> None:
        """The line goes."""
        if self._moves:
            print("\r\033[K", end="", flush=True)


# --- a kernel that has not got the course --------------------------------------------------------
def serve_kernel() -> None:
    """Gives the running kernel, and what it starts, the course and the packages that it lacks.

    They lie in a folder of their own, last on the path: nothing that the kernel has is replaced.
    """
    beside = ROOT / ".kernel" / str(sys.implementation.cache_tag)
    path = [str(beside), str(ROOT)]
    sys.path += path  # ROOT is on it for now, but `%run` takes one of it away at its end
    lacking = [need for need in needs() if not installed(NAME.match(need)[0])]
    if lacking:
        fetch(lacking, beside)
        importlib.invalidate_caches()
    children = [*filter(None, [os.environ.get("PYTHONPATH")]), *path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(children))
    if not Path.cwd().is_relative_to(ROOT):
        os.chdir(ROOT / "notebooks")
    print(f"The course is in {ROOT.name}/, {len(lacking)} packages beside this kernel's own; "
          f"{os.cpu_count()} cores. `%doctor` looks whether all fits.")  # fmt: skip


def needs() -> list[str]:
    """What pyproject.toml says that the course needs."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["dependencies"])


def installed(name: str) -> bool:
    """Whether this Python has a package."""
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def fetch(lacking: list[str], beside: Path) -> None:
    """Puts packages into a folder, with what they need in turn and this Python has not got."""
    python = sys.executable
    if not works(python, "import pip"):
        raise Failed(f"This kernel lacks {', '.join(lacking)}\n  its Python has no pip\n"
                     f"  {python} -m ensurepip, then run the cell again")  # fmt: skip
    if not installed("torch"):
        torch = torch_from(python, build_for("auto", sys.platform, has_gpu()))
        lacking = [torch if NAME.match(need)[0] == "torch" else need for need in lacking]
    with tempfile.TemporaryDirectory() as folder:
        kept, report = Path(folder, "kept.txt"), Path(folder, "report.json")
        kept.write_text("".join(sorted(frozen())))
        plan = ["--quiet", "--dry-run", "--report", str(report), "--constraint", str(kept)]
        run_pip(python, *plan, *lacking)
        chosen = [
            f"{each['metadata']['name']}=={each['metadata']['version']}"
            for each in json.loads(report.read_text())["install"]
        ]
    run_pip(python, "--target", str(beside), "--no-deps", *chosen)


def frozen() -> set[str]:
    """A line for each package that this Python has, so that pip plans around them."""
    return {f"{each.metadata['Name']}=={each.version}\n"
            for each in importlib.metadata.distributions() if each.metadata["Name"]}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
