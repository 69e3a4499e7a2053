"""Whatever stands on a command line: a valid answer, or a few lines and exit code 2; no process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from random import Random
from typing import Any

import pytest

import benchmarks.__main__ as bench
from course_lib.grade import cli
from course_lib.grade.catalog import Entry
from course_lib.plan.search import decision
from course_lib.ranks import doctor
from course_lib.train import run as train_run
from course_lib.train.command.config import RunConfig

MOST_LINES = 12
STARTS = ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "subprocess.Popen",
          "socket.bind", "socket.connect")  # fmt: skip
NUMBERS = ["0", "1", "2", "3", "4", "7", "8", "16", "64", "-1", "-0", "1.5", "1e3", "1e-3", "nan",
           "inf", "-inf", "1e309", "", " 2", "+2", "1_0", "٣", "²", "0x8", "9" * 30, "9" * 5000,
           "1000000", "1000000000", "x", "é", "\ud800", "--", "-", "None", "True"]  # fmt: skip
WORDS = [
    "",
    "x",
    "double",
    "duble",
    "--all",
    "--file",
    "--seed",
    "--json",
    "--junit",
    "-h",
    "--help",
    "--anyway",
    "--model",
    "--gpus",
    "grade",
    "list",
    "\0",
    "é",
    "\ud800",
    "-",
    "--",
    "@file",
    "x" * 9999,
    "%s",
    "{x}",
    "../..",
    "/",
    "a\nb",
    "--no-such",
    *NUMBERS[:9],
]


@pytest.fixture(scope="module")
def witness(listen: Any) -> Any:
    """Hears of every process and socket."""
    return listen(lambda event, _: event in STARTS)


def answer(call: Callable[[], int | None], words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command that is called here."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = call() or 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    said = err.getvalue()
    assert "Traceback" not in out.getvalue() + said, (words, said)
    assert code in (0, 1, 2), (words, code, said)
    if code == 2:
        assert said.strip() and len(said.splitlines()) <= MOST_LINES, (words, said)
        assert len(said) < 3000 + 2 * sum(map(len, words)), (words, said[:5000])
    return code, out.getvalue(), said


def test_training_is_checked_without_a_process(fuzz: Any, witness: Any) -> None:
    """Every option with every kind of value; what is accepted is a run whose line is accepted."""
    options = {f"--{each.name.replace('_', '-')}": each for each in fields(RunConfig)}

    def case(dice: Random) -> None:
        words = []
        for _ in range(dice.choice([0, 1, 1, 2, 3, 6])):
            name = dice.choice([*options, "--nonsense", "-x"] if dice.random() < 0.1 else
                               ["--pp", "--dp", "--tp", "--cp", "--ep", *options])  # fmt: skip
            each = options.get(name)
            choices = [str(c) for c in (each.metadata["choices"] if each else None) or ()]
            small = NUMBERS[:9] if dice.random() < 0.7 else NUMBERS
            words += [name, dice.choice(choices or small)]
            if each is not None and isinstance(each.default, bool):
                words.pop()
        with witness.look():
            code, out, _ = answer(lambda: train_run.main([*words, "--check"]), words)
        if code == 0 and "--help" not in words and "-h" not in words:
            assert "this run is possible" in out

    fuzz(120, case)


def test_the_course_command(
    fuzz: Any, witness: Any, double: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grading itself is left out: arguments that ask for it end there."""

    def no_grading(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "Grader", no_grading)
    monkeypatch.setattr(doctor, "examine", lambda *a: type("Found", (), {"healthy": True})())
    monkeypatch.chdir(double.root)
    commands = ["grade", "list", "hint", "progress", "doctor", "reset", "solution", "watch", "plan"]

    def case(dice: Random) -> None:
        words = [dice.choice([*commands, *WORDS])] if dice.random() < 0.95 else []
        words += [dice.choice(WORDS) for _ in range(dice.choice([0, 1, 1, 2, 3]))]
        with witness.look():
            answer(lambda: {130: 0}.get(code := cli.main(words), code), words)

    fuzz(120, case)


def test_plans(fuzz: Any, witness: Any) -> None:
    models = ["llama3-70b", "llama3-8b", "gpt3-175b", "nothing", "", "x" * 999]
    gpus = ["8xH100", "1xA100", "16xH100", "0xH100", "-8xH100", "8", "H100", "xH100", "8x", "8xX",
            "7xH100", "٨xH100", "1.5xH100", "9" * 30 + "xH100", "9" * 5000 + "xH100", "8xh100",
            "8 x H100", "", "8xH100xH100", "1000003xH100", "10000019xH100"]  # fmt: skip

    def case(dice: Random) -> None:
        small = [n for n in NUMBERS if dice.random() < 0.4] or ["8"]
        words = ["plan", "--model", dice.choice(models[:2] if dice.random() < 0.7 else models)]
        words += ["--gpus", dice.choice(gpus), "--global-batch", dice.choice([*small, "64", "512"])]
        if dice.random() < 0.5:
            words += ["--seq", dice.choice([*small, "2048", "8192"])]
        if dice.random() < 0.3:
            words += ["--precision", dice.choice(["bf16", "fp8", "fp16", "fp7", "", "é"])]
        words += ["--json"] * (dice.random() < 0.2)
        with witness.look():
            answer(lambda: cli.main(words), words)

    fuzz(25, case)


def test_benchmarks(fuzz: Any, witness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No benchmark is run: those that would be are counted."""
    started: list[str] = []
    monkeypatch.setattr(bench, "run", lambda name, *a, **k: started.append(name))
    known = sorted(bench.found())

    def case(dice: Random) -> None:
        words = [
            dice.choice([*known, *WORDS, "--json", "--write"]) for _ in range(dice.randrange(4))
        ]
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        started.clear()
        with witness.look():
            code, _, _ = answer(bench.main, words)
        assert set(started) <= set(known) and (code == 0 or not started)

    fuzz(40, case)


# --- defects that these tests have found ---------------------------------------------------------
@pytest.mark.parametrize("batch", [10**9, 10**30])
def test_a_batch_of_any_size_is_planned_at_once(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequences that fit were counted down from all of them."""
    counted, before = [], decision._bytes
    monkeypatch.setattr(decision, "_bytes", lambda *a: counted.append(0) or before(*a))
    words = ["plan", "--model", "llama3-8b", "--gpus", "8xH100", "--global-batch", str(batch)]
    code, out, _ = answer(lambda: cli.main(words), words)
    assert code in (0, 1) and "accumulation" in out
    assert len(counted) < 500


def test_a_sequence_without_end_is_refused() -> None:
    """Its cuts over 10³⁰ GPUs were all tried."""
    words = ["plan", "--model", "llama3-8b", "--gpus", "9" * 30 + "xH100", "--global-batch", "8"]
    code, _, said = answer(lambda: cli.main([*words, "--seq", "9" * 30]), words)
    assert code == 2 and "2^27" in said


def test_a_wrong_option_is_said_in_a_few_lines() -> None:
    code, _, said = answer(lambda: train_run.main(["--pp", "x"]), ["--pp"])
    assert code == 2 and len(said.splitlines()) == 2 and "--pp" in said


def test_many_problems_of_a_run_are_three_and_a_number() -> None:
    words = ["--pp", "0", "--dp", "0", "--tp", "0", "--cp", "0", "--ep", "0", "--check"]
    code, _, said = answer(lambda: train_run.main(words), words)
    assert code == 2 and "and 2 more of this kind" in said


@pytest.mark.parametrize("name", ["--pp", "--dp", "--micro-batches", "--batch"])
def test_a_run_of_any_size_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest that can work was looked for among all divisors of 10³⁰."""
    module = sys.modules[RunConfig.__module__.replace("config", "nearest")]
    looked, before = [], module.replace
    monkeypatch.setattr(module, "replace", lambda *a, **k: looked.append(0) or before(*a, **k))
    code, _, said = answer(lambda: train_run.main([name, str(10**30), "--check"]), [name])
    assert code in (0, 2) and len(looked) < 10_000
