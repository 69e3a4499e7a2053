"""Whatever is in an answer's file, grading ends with a card; full marks are for right answers."""

from __future__ import annotations

import ast
import io
import keyword
import os
import tokenize
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from course_lib.grade.catalog import Entry, find
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_html, as_junit, as_text
from course_lib.ranks import ForkServer

pytestmark = pytest.mark.slow

ANSWER = "def double(tensor, group):\n    return tensor + tensor\n"
# Exercises that are graded in about a second: one of numbers, one of plans, one of messages.
QUICK = os.environ.get("COURSE_FUZZ_EXERCISES", "build_buckets one_f_one_b ring_all_gather").split()


# --- files that are no answer, or no text ---------------------------------------------------------
def nest(depth: int) -> str:
    return "x = " + "(" * depth + "0" + ")" * depth + "\n"


FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("no_load",)),
    "not UTF-8": (b"\xff\xfe" + ANSWER.encode("utf-16-le"), ("no_load",)),
    "Latin-1": ("# é\n".encode("latin-1") + ANSWER.encode(), ("no_load",)),
    "coding latin-1": ("# coding: latin-1\n# é\n".encode("latin-1"), ("no_load",)),
    "coding that is none": (b"# coding: nothing\n" + ANSWER.encode(), ("no_load", "full")),
    "coding utf-7": (b"# coding: utf-7\nx = '+2AA-'\n" + ANSWER.encode(), ("no_load", "full")),
    "zero bytes": (b"\0" * 100, ("no_load",)),
    "byte order mark": (b"\xef\xbb\xbf" + ANSWER.encode(), ("no_load", "full")),
    "CRLF": (ANSWER.replace("\n", "\r\n").encode(), ("full",)),
    "CR": (ANSWER.replace("\n", "\r").encode(), ("full",)),
    "tabs": (ANSWER.replace("    ", "\t").encode(), ("full",)),
    "tabs and spaces": (
        b"def double(tensor, group):\n\tif 1:\n        pass\n\treturn 0\n", ("no_load",)),
    "form feed": (b"\x0c" + ANSWER.encode(), ("full",)),
    "no newline": (ANSWER.strip().encode(), ("full",)),
    "ten megabytes of comment": (b"#" * 10_000_000 + b"\n" + ANSWER.encode(), ("full",)),
    "ten megabytes of lines": (b"x = 1\n" * 1_600_000 + ANSWER.encode(), ("full", "failed")),
    "deep": (nest(90).encode() + ANSWER.encode(), ("full",)),
    "deeper": (nest(2_000).encode() + ANSWER.encode(), ("no_load",)),
    "deepest": (nest(1_000_000).encode(), ("no_load",)),
    "deep lists": (b"x = " + b"[" * 150 + b"]" * 150 + b"\n" + ANSWER.encode(),
                   ("full", "no_load")),
    "a long sum": (b"x = " + b"+".join([b"1"] * 60_000) + b"\n" + ANSWER.encode(),
                   ("full", "no_load")),
    "a long chain": (b"x = 1" + b".real" * 30_000 + b"\n" + ANSWER.encode(),
                     ("full", "no_load")),
    "a huge number": (b"x = " + b"9" * 10_000 + b"\n" + ANSWER.encode(), ("no_load",)),
    "from the future": (b"from __future__ import annotations\n" + ANSWER.encode(), ("full",)),
    "from no future": (b"from __future__ import braces\n" + ANSWER.encode(), ("no_load",)),
    "recursion at import": (b"def f():\n    f()\nf()\n" + ANSWER.encode(), ("no_load",)),
    "endless import": (b"while True:\n    pass\n", ("failed",)),
    "import of itself": (b"import double\n" + ANSWER.encode(), ("full", "no_load")),
    "import of what is missing": (b"import no_such_module\n" + ANSWER.encode(), ("no_load",)),
    "import of the solutions": (b"from solutions.x import y\n", ("no_load", "tampered")),
    "a class": (b"class double:\n    pass\n", ("failed",)),
    "a class that is called": (
        b"class double:\n    def __new__(cls, tensor, group):\n        return tensor + tensor\n",
        ("full",)),
    "a number": (b"double = 2\n", ("failed",)),
    "None": (b"double = None\n", ("failed",)),
    "a generator": (ANSWER.replace("return", "yield").encode(), ("failed",)),
    "async": (b"async " + ANSWER.encode(), ("failed",)),
    "a decorator that swallows": (b"@lambda f: None\n" + ANSWER.encode(), ("failed",)),
    "a decorator that hides": (
        b"def hide(f):\n    def call(*a):\n        try:\n            f(*a)\n"
        b"        except BaseException:\n            pass\n    return call\n@hide\n"
        + ANSWER.encode(), ("failed",)),
    "other arguments": (b"def double():\n    return 1\n", ("failed",)),
    "atexit": (
        b"import atexit, os\natexit.register(os._exit, 0)\n" + ANSWER.replace("+", "*").encode(),
        ("failed",)),
    "a finalizer": (
        b"import os\nclass End:\n    def __del__(self):\n        os._exit(0)\nend = End()\n"
        + ANSWER.replace("+", "*").encode(), ("failed",)),
    "module __getattr__": (b"def __getattr__(name):\n    raise SystemExit(0)\n",
                           ("failed", "no_load")),
    "escapes": ("# \x1b[2J\x07 \u202e </table><script>\n".encode() + b"1 / 0\n", ("no_load",)),
}  # fmt: skip


@pytest.fixture(scope="session")
def grader(server: ForkServer) -> Grader:
    return Grader(lambda: server)


def well_formed(card: Card) -> str:
    """Every form of a card can be shown, and is one of a grader that did not break."""
    shown = as_text(card)
    assert card.exit_code in (0, 1, 3, 5), shown
    assert (card.status == "full") == (card.score == card.points), shown
    assert len(shown.splitlines()) <= 2 + 15 * max(1, len(card.checks)), shown
    assert max(map(len, shown.splitlines())) < 2000
    for text in (shown, as_html(card), as_junit([card])):
        text.encode("utf-8")
    return shown


LONG = {"ten megabytes of lines"}  # to compile


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in FILES]
)
def test_a_file_of_any_kind_has_a_card(name: str, grader: Grader, double: Entry) -> None:
    data, statuses = FILES[name]
    double.path.write_bytes(data)
    card = grader.grade(double)
    assert card.status in statuses, well_formed(card)
    well_formed(card)


@pytest.mark.parametrize("kind", ["folder", "link to itself", "pipe", "device", "link to nothing"])
def test_what_is_no_file_has_a_card(kind: str, grader: Grader, double: Entry) -> None:
    path = double.path
    path.unlink()
    {"folder": path.mkdir, "link to itself": lambda: path.symlink_to(path),
     "pipe": lambda: os.mkfifo(path), "device": lambda: path.symlink_to("/dev/zero"),
     "link to nothing": lambda: path.symlink_to("/nowhere")}[kind]()  # fmt: skip
    card = grader.grade(double)
    assert (card.status, card.exit_code) == ("no_load", 3), well_formed(card)
    well_formed(card)


# --- mutations of right answers -------------------------------------------------------------------
def mutated(text: str, dice: Random) -> str:
    """Some tokens less, doubled, swapped or replaced by others of the file."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):  # it was mutated before
        return text
    words = [t for t in tokens if t.string.strip() and t.type != tokenize.COMMENT]
    if not words:
        return text
    lines = text.splitlines(keepends=True)
    kind = dice.randrange(8)
    if kind == 0:
        return text[: dice.randrange(len(text))]
    if kind == 1:
        del lines[dice.randrange(len(lines))]
        return "".join(lines)
    if kind == 2:
        at = dice.randrange(len(lines))
        lines.insert(dice.randrange(len(lines)), lines[at])
        return "".join(lines)
    one, other = dice.choice(words), dice.choice(words)
    new = {3: "", 4: one.string + " " + one.string, 5: other.string,
           6: dice.choice(["0", "1", "-1", "None", "True", "not", "+", "-", "//", "yield", "await",
                           "\0", "é", "²", "\t", "...", *keyword.kwlist]),
           7: dice.choice(["group", "tensor", "len", "print", "exit", "vars", "range"]),
           }[kind]  # fmt: skip
    begin, end = (sum(map(len, lines[: row - 1])) + col for row, col in (one.start, one.end))
    return text[:begin] + new + text[end:]


def program(text: str) -> str:
    """What a text does, as far as a parser sees: without comments, blanks, docstrings and types."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                part for part in body
                if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
                and not isinstance(part, ast.Pass)
            ]  # fmt: skip
        for name in ("annotation", "returns"):
            if hasattr(node, name):
                setattr(node, name, None)
    return ast.dump(tree)


def same(one: str, other: str) -> bool:
    try:
        return program(one) == program(other)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def test_mutations_of_the_small_answer(fuzz: Any, grader: Grader, double: Entry) -> None:
    def case(dice: Random) -> None:
        text = ANSWER
        for _ in range(dice.choice([1, 1, 2, 3])):
            text = mutated(text, dice) or "#"
        double.path.write_text(text)
        card = grader.grade(double)
        shown = well_formed(card)
        if same(text, ANSWER):
            assert card.status == "full", shown
        elif card.status == "full":
            assert equal_by_hand(text), text

    fuzz(10, case)


def equal_by_hand(text: str) -> bool:
    """Whether a survivor doubles a tensor, tried here: its names are those of the answer."""
    import torch

    names: dict[str, Any] = {}
    exec(compile(text, "survivor", "exec"), names)
    value = torch.arange(6.0)
    return torch.equal(names["double"](value, None), 2 * value)


@pytest.mark.parametrize("name", QUICK)
def test_mutations_of_real_answers(
    fuzz: Any,
    grader: Grader,
    name: str,
    tmp_path: Path,
    record_property: Callable[[str, str], None],
) -> None:
    """A survivor is no failure of this test: `course dev mutate` judges suites. It is recorded."""
    entry = find(name)
    right = entry.solution.read_text(encoding="utf-8")
    path = tmp_path / f"{name}.py"

    def case(dice: Random) -> None:
        text = mutated(right, dice)
        path.write_text(text)
        card = grader.grade(entry, path)
        shown = well_formed(card)
        if same(text, right):
            assert card.status == "full", shown
        elif card.status == "full":
            changed = set(text.splitlines()) ^ set(right.splitlines())
            record_property("survivor", " | ".join(sorted(changed)))
            print("survivor:", sorted(changed))

    fuzz(2, case)
