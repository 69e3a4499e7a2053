"""What an answer may use is enforced where it is imported and where it is called."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.grade.author.borrowed import borrowed
from course_lib.grade.author.build import starter
from course_lib.grade.catalog import PACKAGE, Entry, entries, find, read_suite
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_text
from tests.tiers import sampled

ROOT = PACKAGE.parent
SENTENCE = (
    "Your answer may use `comm.Group`, `comm.send` and `comm.recv` of `course_lib`; "
    "of torch everything but `torch.nn.utils.clip_grad_norm_` and `torch.optim.Adam`."
)
# What follows `def doubled(tensor, group):`, and what is imported before it.
REFUSED = {
    "by_name": ("from course_lib.comm import all_reduce", "all_reduce(tensor, group)"),
    "from_inside": (
        "from course_lib.comm.collectives import all_reduce",
        "all_reduce(tensor, group)",
    ),
    "another_room": ("from course_lib.parallel import Zero1", "Zero1"),
    "room_as_attribute": ("import course_lib", "course_lib.parallel.Zero1"),
    "module": ("from course_lib import comm", "comm.all_reduce(tensor, group)"),
    "renamed": ("import course_lib.comm as c", "c.ring_all_reduce(tensor, group)"),
    "dotted": ("import course_lib.comm", "course_lib.comm.all_reduce(tensor, group)"),
    "late": ("", "from course_lib.comm import all_reduce\n    all_reduce(tensor, group)"),
    "importlib": (
        "import importlib",
        "importlib.import_module('course_lib.comm').all_reduce(tensor, group)",
    ),
    "dunder_import": (
        "",
        "__import__('course_lib.comm', fromlist=['x']).all_reduce(tensor, group)",
    ),
    "importlib_import": (
        "import importlib",
        "importlib.__import__('course_lib.comm', fromlist=['x']).all_reduce(tensor, group)",
    ),
    "getattr": ("from course_lib import comm", "getattr(comm, 'all_' + 'reduce')(tensor, group)"),
    "sys_modules": ("import sys", "sys.modules['course_lib.comm'].all_reduce(tensor, group)"),
    "builtins_import": (
        "import builtins",
        "builtins.__import__('course_lib.comm', fromlist=['x']).all_reduce(tensor, group)",
    ),
    "not_loaded_yet": (
        "import builtins, sys\nsys.modules.pop('course_lib.failures', None)",
        "builtins.__import__('course_lib.failures')",
    ),
    "pkgutil": (
        "import pkgutil",
        "pkgutil.resolve_name('course_lib.comm:ring_all_reduce')(tensor, group)",
    ),
    "pickle": (
        "import pickle",
        "pickle.loads(b'ccourse_lib.comm\\nring_all_reduce\\n.')(tensor, group)",
    ),
    "behind_the_view": (
        "from course_lib import comm",
        "vars(comm)['_real'].all_reduce(tensor, group)",
    ),
    "all_objects": (
        "import gc\ngc.unfreeze()",
        "next(f for f in gc.get_objects() if type(f).__name__ == 'function'"
        " and f.__name__ == 'ring_all_reduce')(tensor, group)",
    ),
    "mapped": (
        "import sys",
        "list(map(sys.modules['course_lib.comm'].all_reduce, [tensor], [group]))",
    ),
    "code_of_another_file": (
        "import sys\nexec(compile('def go(*a): f(*a)', 'elsewhere', 'exec'), "
        "of := {'f': sys.modules['course_lib.comm'].all_reduce})",
        "of['go'](tensor, group)",
    ),
    "torch_unwrapped": (
        "import inspect, torch",
        "inspect.unwrap(torch.nn.utils.clip_grad_norm_)([tensor], 1.0)",
    ),
    "torch_attribute": ("import torch", "torch.nn.utils.clip_grad_norm_([tensor], 1.0)"),
    "torch_name": (
        "from torch.nn.utils.clip_grad import clip_grad_norm_",
        "clip_grad_norm_([tensor], 1.0)",
    ),
    "torch_mapped": (
        "import torch",
        "list(map(torch.nn.utils.clip_grad_norm_, [[tensor]], [1.0]))",
    ),
    "torch_class": ("import torch", "torch.optim.Adam([tensor])"),
    "torch_subclass": (
        "import torch\nclass Mine(torch.optim.Adam):\n    pass",
        "Mine([tensor])",
    ),
}
FINE = {
    "nothing": ("", "pass"),
    "allowed_names": ("from course_lib.comm import Group, recv, send", "Group, recv, send"),
    "allowed_in_its_module": ("from course_lib.comm.messages import send", "send"),
    "star": ("from course_lib.comm import *", "Group, send, recv"),
    "module": ("from course_lib import comm", "comm.send, comm.Group"),
    "whole_name": ("import course_lib.comm", "course_lib.comm.Group"),
    "not_there": (
        "from course_lib import comm\nfrom course_lib.comm import messages",
        "assert not hasattr(comm, 'nothing') and not hasattr(messages, 'nothing')",
    ),
    "what_it_imports": ("from course_lib.comm import messages", "messages.torch.zeros(1)"),
    "caught": ("try:\n    import course_lib.parallel\nexcept PermissionError:\n    pass", "pass"),
    "torch_by_torch": ("import torch", "torch.optim.AdamW([tensor])"),
    "torch_not_called": ("from torch.nn.utils import clip_grad_norm_", "pass"),
}


@pytest.fixture
def doubled(tmp_path: Path) -> Entry:
    """The exercise `doubled`, in a course folder of its own."""
    here = Path(__file__).parent / "suites" / "99_test" / "doubled.py"
    suite = tmp_path / "grading" / "suites" / "99_test" / "doubled.py"
    suite.parent.mkdir(parents=True)
    shutil.copyfile(here, suite)
    entry = read_suite(suite, tmp_path)
    entry.path.parent.mkdir(parents=True)
    return entry


@pytest.fixture
def grade(doubled: Entry, grader: Grader) -> Callable[[tuple[str, str]], Card]:
    def call(answer: tuple[str, str]) -> Card:
        top, body = answer
        text = f"{top}\n\ndef doubled(tensor, group):\n    {body}\n    return 2 * tensor\n"
        doubled.path.write_text(text)
        return grader.grade(doubled)

    return call


@pytest.mark.parametrize("way", sampled(REFUSED, 3))
def test_what_is_not_allowed_is_refused_with_the_sentence_of_the_starter(
    way: str, grade: Callable[[tuple[str, str]], Card]
) -> None:
    card = grade(REFUSED[way])
    text = " ".join(as_text(card).split())
    assert card.score == 0
    assert "that this exercise does not allow: " in text.replace("what this", "that this")
    assert text.count("it is to be written here") == 1, "one cause is said once"
    assert SENTENCE in text


@pytest.mark.parametrize("way", sampled(FINE, 2))
def test_what_is_allowed_works(way: str, grade: Callable[[tuple[str, str]], Card]) -> None:
    card = grade(FINE[way])
    assert card.status == "full", as_text(card)


@pytest.mark.parametrize("entry", entries(ROOT), ids=lambda entry: entry.name)
def test_the_starter_says_it(entry: Entry) -> None:
    if entry.solution.exists():
        assert entry.exercise.allowed in " ".join(starter(entry).split())


def test_the_librarys_own_takes_the_place_of_what_was_written() -> None:
    text = borrowed("x = 1\n", ("NaiveDDP", "nothing_like_it"))
    assert text == "x = 1\n\nfrom course_lib.parallel import NaiveDDP as NaiveDDP\n"
    assert borrowed("x = 1\n", ("nothing_like_it",)) is None


def test_all_names_that_suites_allow_are_there() -> None:
    import importlib

    for entry in entries(ROOT):
        for name in (*entry.exercise.library, *entry.exercise.own):
            place = name if name.startswith("torch.") else f"course_lib.{name}"
            module, _, short = place.rpartition(".")
            if place.count(".") == 1:
                importlib.import_module(place)
            else:
                assert hasattr(importlib.import_module(module), short), f"{entry.name}: {name}"


def test_an_answer_of_lesson_01_that_calls_the_collective_keeps_nothing(
    grader: Grader, tmp_path: Path
) -> None:
    path = tmp_path / "ring_all_reduce.py"
    path.write_text(
        "from course_lib import comm\n"
        "def ring_all_reduce(tensor, group, op='sum'):\n"
        "    comm.all_reduce(tensor, group, op)\n"
    )
    assert grader.grade(find("ring_all_reduce", ROOT), path).score == 0
