"""A wrong answer stays wrong, whatever it does to the process, the machine or the comparison."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from course_lib.grade.catalog import Entry
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_html, as_junit, as_text
from tests.tiers import sampled

Grade = Callable[[str], Card]
HONEST = 1  # points of a wrong answer that sends nothing: those of the check of bytes

# What is done before the wrong value is returned; `answer` is returned, twice the value is right.
FORGERIES: dict[str, str] = {
    "exits with success": "import os\nos._exit(0)",
    "patches pytest": "import pytest, _pytest.runner as r\npytest.fail = r.check = print",
    "reads the frames of the caller": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    for value in list(frame.f_locals.values()):\n"
        "        if torch.is_tensor(value):\n            answer = value\n    frame = frame.f_back"
    ),
    "takes the rank's own object apart": (
        "import gc\nfor thing in gc.get_objects():\n"
        "    if type(thing).__name__ in ('Rank', 'Fence', 'Seal'):\n        vars(thing).clear()"
    ),
    "looks for the expected value in memory": (
        "import gc\nfound = [t for t in gc.get_objects() if isinstance(t, torch.Tensor)]\n"
        "same = [t for t in found if t.shape == tensor.shape and t is not tensor]\n"
        "answer = same[0] if same else tensor"
    ),
    "closes all descriptors": "import os\nos.closerange(0, 4096)",
    "closes the judge's ends": (
        "import os\nfor fd in range(3, 256):\n    try:\n        os.close(fd)\n"
        "    except OSError:\n        pass"
    ),
    "lifts its limits": (
        "import resource\nfor name in (resource.RLIMIT_AS, resource.RLIMIT_CPU):\n    try:\n"
        "        resource.setrlimit(name, (-1, -1))\n"
        "    except (OSError, ValueError):\n        pass"
    ),
    "lifts its limits and computes for ever": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))\nwhile True:\n    pass"
    ),
    "fills a file": (
        "import tempfile\nwith tempfile.TemporaryFile() as file:\n    file.truncate(1 << 40)"
    ),
    "goes elsewhere": "import os\nos.chdir('/')\nos.environ.clear()\nos.umask(0o777)",
    "changes the environment": "import os\nos.environ['PYTEST_ADDOPTS'] = '--collect-only'",
    "traces": "import sys\nsys.settrace(None)\nsys.setprofile(None)",
    "traces and ends the rest": (
        "import sys, threading\n"
        "def trace(frame, event, argument):\n    raise SystemExit(0)\n"
        "threading.setprofile(trace)\nsys.setprofile(trace)"
    ),
    "replaces builtins": (
        "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.len = lambda x: 0"
    ),
    "breaks builtins": "import builtins\ndel builtins.isinstance, builtins.getattr, builtins.open",
    "patches the comparison": (
        "torch.equal = torch.allclose = torch.Tensor.equal = lambda *a, **k: True\n"
        "torch.Tensor.__eq__ = torch.Tensor.__le__ = lambda *a: torch.tensor(True)"
    ),
    "a tensor that claims to be equal": (
        "class Same(torch.Tensor):\n    def __eq__(self, other):\n        return True\n"
        "    def __torch_function__(self, *a, **k):\n        return True\n"
        "answer = tensor.as_subclass(Same)"
    ),
    "a tensor that lies about its bytes": (
        "class Liar(torch.Tensor):\n    def detach(self):\n        return self\n"
        "    def cpu(self):\n        raise OSError\nanswer = tensor.as_subclass(Liar)"
    ),
    "an object that claims to be equal": (
        "class Same:\n    shape, dtype = tensor.shape, tensor.dtype\n"
        "    def __eq__(self, other):\n        return True\n"
        "    def __getattr__(self, name):\n        return lambda *a, **k: True\nanswer = Same()"
    ),
    "NaN everywhere": "answer = tensor * float('nan')",
    "an endless generator": "import itertools\nanswer = itertools.count()",
    "an endless list": (
        "class Endless(list):\n    def __iter__(self):\n        while True:\n            yield 1\n"
        "answer = Endless()"
    ),
    "a list in itself": "answer = []\nanswer.append(answer)",
    "a dict in itself": "answer = {}\nanswer['x'] = answer",
    "a deep list": "answer = []\nfor _ in range(10 ** 5):\n    answer = [answer]",
    "a huge tensor": "answer = torch.zeros(1 << 29, dtype=torch.float64)",
    "a huge view": "answer = torch.zeros(1).expand(1 << 40)",
    "a huge number": "answer = 10 ** 10 ** 5",
    "a text that is none": "answer = '\\ud800\\0\\x1b[2J</script>' * 99",
    "a key that cannot be one": (
        "class Key(tuple):\n    def __hash__(self):\n        return 0\n"
        "answer = {Key(([],)): tensor}"
    ),
    "a repr that raises": (
        "class Mute:\n    def __repr__(self):\n        raise SystemExit\nanswer = Mute()"
    ),
    "an error that has no text": (
        "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\nraise Mute"
    ),
    "an error with a book in it": "raise ValueError('\\n' * 9999 + 'x' * 10 ** 6)",
    "an error without an end": (
        "class Chain(Exception):\n    def __str__(self):\n        while True:\n            pass\n"
        "raise Chain"
    ),
    "sparse, meta and quantized": "answer = tensor.to('meta')",
    "a handler for all signals": (
        "import signal\nfor n in range(1, 32):\n    try:\n"
        "        signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\nwhile True:\n    pass"
    ),
    "something for the end": (
        "import atexit, os\natexit.register(os._exit, 0)\n"
        "class Last:\n    def __del__(self):\n        print('the end')\nanswer = Last()"
    ),
}

# What is tried against other processes: seen, named, and without effect.
ATTACKS: dict[str, str] = {
    "signals the whole group": "import os\nos.killpg(os.getppid(), 9)",
    "writes into the parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b', 0)",
    "reads the parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')",
    "reads the parent's memory by another name": (
        "import os\nos.open(f'/proc/self/../{os.getppid()}/task/{os.getppid()}/mem', os.O_RDONLY)"
    ),
    "reads what the parent has open": "import os\nopen(f'/proc/{os.getppid()}/fd/3', 'rb')",
}

# Messages in the name of a rank, over the channel that it has found.
MESSAGES: dict[str, str] = {
    "nothing": "{'say': 'done'}",
    "of no kind": "{}",
    "no line": "{'say': 'where', 'line': 'x', 'source': 3}",
    "no fault": "{'say': 'fault', 'kind': [], 'error': {}}",
    "another tampering": "{'say': 'fault', 'kind': 'none', 'error': '', 'tampering': 7}",
    "no ledger": "{'say': 'done', 'output': 1, 'ledger': [], 'threads': 0}",
    "threads without a name": ("{'say': 'done', 'output': 1, 'ledger': {}, 'threads': [[1], {}]}"),
    "a line that is a book": (
        "{'say': 'fault', 'kind': 'exception', 'error': 'x' * 9**7, 'line': 9**9, "
        "'source': 'y' * 9**7}"
    ),
    "no event": "{'say': 'done', 'output': 1, 'ledger': {'x': 1}, 'threads': []}",
    "no tensor": (
        "{'say': 'done', 'output': {'tensor': ['save', [-1], 0, 10**12]}, 'ledger': {}, "
        "'threads': []}"
    ),
    "a dtype that is a function": (
        "{'say': 'done', 'output': {'dtype': 'load'}, 'ledger': {}, 'threads': []}"
    ),
}


def answer(body: str) -> str:
    lines = "\n".join("    " + line for line in body.splitlines())
    head = "import torch\n\ndef double(tensor, group):\n    answer = tensor\n"
    return f"{head}{lines}\n    return answer\n"


@pytest.mark.parametrize("name", sampled(FORGERIES, 3))
def test_a_wrong_answer_stays_wrong(name: str, grade: Grade) -> None:
    card = grade(answer(FORGERIES[name]))
    shown = as_text(card)
    assert card.status in ("failed", "tampered"), shown
    assert card.exit_code in (1, 5) and card.score is not None and card.score <= HONEST, shown
    assert len(shown.splitlines()) <= 2 + 15 * len(card.checks)
    assert max(map(len, shown.splitlines())) < 2000
    for text in (shown, as_html(card), as_junit([card])):
        text.encode("utf-8")


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_in_the_name_of_a_rank_gives_nothing(name: str, grade: Grade) -> None:
    card = grade(answer(
        "import gc\nfound = [c for c in gc.get_objects() if type(c).__name__ == 'Channel']\n"
        f"for channel in found:\n    channel.send({MESSAGES[name]})\nimport time\ntime.sleep(9)"
    ))  # fmt: skip
    shown = as_text(card)
    assert card.status in ("failed", "tampered") and card.score == 0, shown


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_another_process_is_named(name: str, grade: Grade) -> None:
    card = grade(answer(ATTACKS[name]))
    assert card.status == "tampered", as_text(card)
    assert (card.exit_code, card.score) == (5, 0)
    assert "another process" in " ".join(as_text(card).split())


@pytest.mark.slow
def test_a_kill_past_the_fence_costs_the_grade_and_not_the_grader(double: Entry) -> None:
    """In C nothing sees it; the grader starts again, and gives no marks for what ended it twice."""
    right = double.path.read_text()
    with Grader() as grader:
        double.path.write_text(answer(
            "import ctypes, os\nctypes.CDLL(None).kill(os.getppid(), 9)\nanswer = 2 * tensor"
        ))  # fmt: skip
        card = grader.grade(double)
        assert (card.status, card.score) == ("broke", None), as_text(card)
        double.path.write_text(right)
        assert grader.grade(double).status == "full"
