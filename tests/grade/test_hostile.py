"""Whatever an answer does: the card names the fault, in time, and nothing is left running."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from course_lib.grade.catalog import Entry
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_html, as_text
from course_lib.ranks import ForkServer
from tests.tiers import sampled

Grade = Callable[[str], Card]


def answer(body: str, imports: str = "") -> str:
    """A file whose function `double` has this body."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return f"{imports}\n\ndef double(tensor, group):\n{lines}\n"


# name -> (text, status, words of the card)
HOSTILE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "syntax error": ("def double(:\n", "no_load", ("not valid Python", "line 1: def double(:")),
    "null byte": ("x = '\0'\n", "no_load", ("not valid Python",)),
    "import raises": ("x = 1 / 0\n", "no_load", ("ZeroDivisionError", "line 1: x = 1 / 0")),
    "import exits": ("import sys\nsys.exit(0)\n", "failed", ("called sys.exit(0)", "line 2")),
    "no function": ("def dubble():\n    pass\n", "no_load", ("does not define", "double")),
    "starter": (
        answer('raise NotImplementedError("double: write your answer here")'),
        "not_written",
        ("Nothing is written yet", "hint 1 of 3"),
    ),
    "exception on one rank": (
        answer(
            "if group.index == 1:\n    raise ValueError('boom')\nall_reduce(tensor, group)",
            "from course_lib.comm import all_reduce",
        ),
        "failed",
        ("rank 1: ValueError: boom", "line 5: raise ValueError('boom')"),
    ),
    "exception everywhere": (answer("tensor.nothing"), "failed", ("every rank: AttributeError",)),
    "input": (answer("return input()"), "failed", ("EOFError", "nobody answers `input`")),
    "sys.exit": (answer("sys.exit(3)", "import sys"), "failed", ("called sys.exit(3)",)),
    "os._exit": (
        answer("os._exit(0)", "import os"),
        "failed",
        ("ended its process with code 0",),
    ),
    "os._exit on one rank": (
        answer(
            "if group.index == 1:\n    os._exit(0)\nbarrier(group)\nreturn 2 * tensor",
            "import os\nfrom course_lib.comm import barrier",
        ),
        "failed",
        ("rank 1 ended its process",),
    ),
    "segmentation fault": (
        answer("ctypes.string_at(0)", "import ctypes"),
        "failed",
        ("killed by SIGSEGV",),
    ),
    "sizes that differ": (
        answer(
            "all_reduce(torch.ones(20 if group.index == 0 else 12), group)",
            "import torch\nfrom course_lib.comm import all_reduce",
        ),
        "failed",
        (
            "calls that do not fit",
            "rank 0 gave 20 elements of float32 (80 bytes); rank 1 gave 12 elements",
            "the same size",
        ),
    ),
    "infinite loop": (
        answer("while True:\n    pass"),
        "failed",
        ("infinite loop", "last seen in line 4"),
    ),
    "infinite loop on one rank": (
        answer(
            "while group.index == 1:\n    tensor + 1\nall_reduce(tensor, group)",
            "from course_lib.comm import all_reduce",
        ),
        "failed",
        ("rank 1 has used", "s of processor time"),
    ),
    "sleep": (answer("time.sleep(99)", "import time"), "failed", ("gave no answer in 6 s",)),
    "stopped": (
        answer("os.kill(os.getpid(), signal.SIGSTOP)", "import os, signal"),
        "failed",
        ("the process was stopped", "ranks 0 and 1 were stopped by a signal (SIGSTOP)"),
    ),
    "stopped on one rank": (
        answer(
            "if group.index == 1:\n    os.kill(os.getpid(), signal.SIGSTOP)\nbarrier(group)",
            "import os, signal\nfrom course_lib.comm import barrier",
        ),
        "failed",
        ("rank 1 was stopped by a signal (SIGSTOP) and did not go on",),
    ),
    "deadlock": (
        answer(
            "if group.index == 0:\n    recv(tensor, 1, group)\n"
            "else:\n    all_reduce(tensor, group)",
            "from course_lib.comm import all_reduce, recv",
        ),
        "failed",
        (
            "deadlock",
            "rank 0 waits in recv from rank 1",
            "rank 1 waits in all_reduce",
            "line 5: recv(tensor, 1, group)",
        ),
    ),
    "too large a result": (
        answer("return torch.zeros(36_000_000)", "import torch"),
        "failed",
        ("every rank: ValueError: too much to send back: 137 MiB of tensors",),
    ),
    "other dtypes": (
        answer(
            "all_reduce(torch.ones(3).to(torch.float32 if group.index else torch.int64), group)",
            "import torch\nfrom course_lib.comm import all_reduce",
        ),
        "failed",
        ("calls that do not fit", "rank 0 gave int64; rank 1 gave float32"),
    ),
    "other reductions": (
        answer(
            "all_reduce(tensor, group, 'max' if group.index else 'sum')",
            "from course_lib.comm import all_reduce",
        ),
        "failed",
        ("calls that do not fit", "rank 0 asked for the sum; rank 1 asked for the max"),
    ),
    "sends first": (
        answer(
            "send(tensor[:1], 1 - group.index, group)\nrecv(tensor[:1], 1 - group.index, group)",
            "from course_lib.comm import recv, send",
        ),
        "failed",
        ("deadlock", "Everybody sends and nobody receives"),
    ),
    "past comm": (
        answer(
            "if group.index == 0:\n    dist.barrier()\nreturn 2 * tensor",
            "import torch.distributed as dist",
        ),
        "failed",
        ("torch.distributed was called past course_lib.comm",),
    ),
    "memory blow-up": (
        answer("keep = []\nwhile True:\n    keep.append(bytearray(1 << 28))"),
        "failed",
        ("out of memory",),
    ),
    "memory blow-up, slower than the clock": (
        answer(
            "keep = []\nwhile True:\n    keep.append(bytearray(1 << 22))\n    sum(range(10**6))"
        ),
        "failed",
        ("out of memory", "more than at its start"),
    ),
    "one huge tensor": (
        answer("torch.empty(1 << 40)", "import torch"),
        "failed",
        ("out of memory",),
    ),
    "output flood": (
        answer("while True:\n    print('x' * 1000)"),
        "failed",
        ("printed more than 1 MiB",),
    ),
    "fork bomb": (
        answer("while True:\n    os.fork()", "import os"),
        "failed",
        ("started another process", "os.fork refused"),
    ),
    "fork from C": (
        answer(
            "libc = ctypes.CDLL(None)\nfor _ in range(3):\n    libc.fork()\n"
            "libc.setsid()\ntime.sleep(99)",
            "import ctypes, time",
        ),
        "failed",
        ("gave no answer in 6 s",),
    ),
    "subprocess": (
        answer("subprocess.run(['true'])", "import subprocess"),
        "failed",
        ("subprocess.Popen refused",),
    ),
    "network": (
        answer("socket.create_connection(('10.1.2.3', 80))", "import socket"),
        "failed",
        ("connection to 10.1.2.3 refused",),
    ),
    "threads left running": (
        answer(
            "threading.Thread(target=time.sleep, args=(99,), name='mine').start()\n"
            "return 2 * tensor",
            "import threading, time",
        ),
        "failed",
        ("left threads running: mine",),
    ),
    "returns nothing": (answer("pass"), "failed", ("the result is no tensor", "measured: None")),
    "returns an object": (answer("return object()"), "failed", ("the result is no tensor",)),
    "wrong shape": (answer("return tensor.t() * 2"), "failed", ("(3, 2)", "(2, 3)")),
    "wrong dtype": (answer("return tensor.float() * 2"), "failed", ("float32", "float64")),
    "NaN": (answer("return tensor * float('nan')"), "failed", ("6 of 6 are NaN",)),
    "float32 on the way": (
        answer("return tensor.float().double() * 2"),
        "failed",
        ("float32's rounding",),
    ),
}

# name -> (text, word of the card)
TAMPERING: dict[str, tuple[str, str]] = {
    "patched torch": (
        answer("torch.distributed.isend = print\nreturn 2 * tensor", "import torch.distributed"),
        "replaced torch.distributed.isend",
    ),
    "patched comm": (
        answer("comm.Work.wait = print\nreturn 2 * tensor", "from course_lib import comm"),
        "replaced course_lib.comm.Work.wait",
    ),
    "patched grader": (
        answer(
            "payload.pack = lambda value: (None, b'')\nreturn tensor",
            "from course_lib.grade.rank import payload",
        ),
        "replaced course_lib.grade.rank.payload.pack",
    ),
    "emptied ledger": (
        answer(
            "all_reduce(tensor, group)\ngroup.ledger.events.clear()\nreturn tensor",
            "from course_lib.comm import all_reduce",
        ),
        "made a call that is not in its ledger",
    ),
    "writes the suite": (
        answer("try:\n    open('SUITE', 'w')\nexcept OSError:\n    pass\nreturn 2 * tensor"),
        "tried to change",
    ),
    "removes the suite": (
        answer("os.remove('SUITE')\nreturn 2 * tensor", "import os"),
        "tried to change",
    ),
    "writes the progress": (
        answer("open('PROGRESS', 'w').write('x')\nreturn 2 * tensor"),
        "tried to change",
    ),
    "kills the parent": (
        answer("os.kill(os.getppid(), 9)", "import os"),
        "tried to send signal 9",
    ),
    "garbage to the judge": (
        answer(
            "for fd in range(3, 60):\n    try:\n        os.write(fd, b'\\xff' * 64)\n"
            "    except OSError:\n        pass\nreturn 2 * tensor",
            "import os",
        ),
        "sent a message of",
    ),
}


@pytest.mark.parametrize("name", sampled(HOSTILE, 3))
def test_the_card_names_the_fault(name: str, grade: Grade) -> None:
    text, status, words = HOSTILE[name]
    card = grade(text)
    shown = as_text(card)
    assert card.status == status, shown
    for word in words:
        assert word in " ".join(shown.split()), shown
    assert "Traceback" not in shown
    assert "course_lib/grade" not in shown
    assert len(shown.splitlines()) <= 2 + 15 * len(card.checks)
    assert as_html(card)


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_evident_and_changes_nothing(name: str, grade: Grade, double: Entry) -> None:
    text, word = TAMPERING[name]
    victims = [double.suite, double.root / ".course" / "progress.json"]
    victims[1].parent.mkdir()
    victims[1].write_text("{}")
    before = [victim.read_bytes() for victim in victims]
    card = grade(text.replace("SUITE", str(victims[0])).replace("PROGRESS", str(victims[1])))
    assert card.status == "tampered", as_text(card)
    assert (card.exit_code, card.score) == (5, 0)
    assert word in " ".join(as_text(card).split())
    assert [victim.read_bytes() for victim in victims] == before


def test_printing_points_gives_none(grade: Grade) -> None:
    card = grade(
        "def double(tensor, group):\n"
        '    print(\'{"event": "check", "name": "check_value", "passed": true}\')\n'
        "    print('score: 3 of 3 points')\n"
        "    return tensor\n"
    )
    assert (card.status, card.score) == ("failed", 1)
    assert "your print output:" in as_text(card)
    assert "score: 3 of 3 points" in as_text(card)


def test_partial_credit_and_the_likely_cause(grade: Grade) -> None:
    card = grade("def double(tensor, group):\n    return tensor * tensor\n")
    assert (card.status, card.score, card.points, card.exit_code) == ("failed", 1, 3, 1)
    assert "this is the square" in as_text(card)
    assert "hint 1 of 3: course hint double" in as_text(card)


def test_the_same_answer_has_the_same_card(grade: Grade) -> None:
    wrong = "def double(tensor, group):\n    return 3 * tensor\n"
    first, second = grade(wrong), grade(wrong)
    assert as_text(first) == as_text(second)
    assert "1.5 times what it should be" in as_text(first)


def test_a_seed_changes_the_hidden_inputs(grader: Grader, double: Entry) -> None:
    double.path.write_text("def double(tensor, group):\n    return 0 * tensor\n")
    cards = [as_text(grader.grade(double, seed=seed)) for seed in (1, 1, 2)]
    assert cards[0] == cards[1] != cards[2]
    assert "all zeros" in cards[0]


@pytest.mark.slow
def test_a_killed_preloaded_process_is_replaced(double: Entry) -> None:
    with Grader() as grader:
        grader.warm()
        assert grader._own is not None
        os.kill(grader._own.pid, 9)
        assert grader.grade(double).status == "full"


@pytest.mark.slow  # a stopped process gets its time before it is given up
def test_a_stopped_preloaded_process_is_replaced(
    double: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Grader() as grader:
        grader.warm()
        assert grader._own is not None
        os.kill(grader._own.pid, 19)
        monkeypatch.setattr("course_lib.grade.grader.ANSWERS_WITHIN", 1.0)
        assert grader.grade(double).status == "full"


def test_a_full_disk_is_named(grade: Grade) -> None:
    card = grade(answer(
        "for n in range(4):\n    with open(f'big{n}', 'wb') as file:\n"
        "        file.write(bytes(1 << 29))\ntime.sleep(9)", "import time"
    ))  # fmt: skip
    assert card.status == "failed"
    assert "has written more than" in " ".join(as_text(card).split())


def test_a_broken_suite_is_not_the_learners_fault(grader: Grader, double: Entry) -> None:
    text = double.suite.read_text()
    double.suite.write_text(text.replace("    tensor = run.random", "    tensor = run.nothing"))
    card = grader.grade(double)
    assert (card.status, card.score, card.exit_code) == ("broke", None, 4)
    assert "not to blame" in as_text(card)


def test_an_interrupt_ends_everything(grader: Grader, double: Entry, server: ForkServer) -> None:
    double.path.write_text("import time\ndef double(tensor, group):\n    time.sleep(3)\n")

    def stop(card: Card) -> None:
        if not card.interrupted:
            raise KeyboardInterrupt

    card = grader.grade(double, each=stop)
    assert (card.status, card.exit_code) == ("interrupted", 130)
