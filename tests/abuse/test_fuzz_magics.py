"""Whatever stands in a magic's line or cell: one clear answer, and the ranks work afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from course_lib.grade import magic as grade_magic
from course_lib.grade.author.build import save_answer
from course_lib.grade.catalog import Entry
from course_lib.grade.magic import GradeMagics
from course_lib.ranks import ForkServer
from course_lib.ranks.magic import magic as ranks_magic
from course_lib.ranks.magic.magic import RanksFailed, RanksMagics
from course_lib.ranks.magic.torchrun import TorchrunResult

pytestmark = pytest.mark.slow

ANSWER = "def double(tensor, group):\n    return tensor + tensor\n"
MOST_LINES = 12

NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "65",
    "1000000000",
    "9" * 5000,
    "1.5",
    "٣",
    "²",
    "1_0",
    "+2",
    "nan",
    "inf",
    "1e309",
    "1e300",
    "",
    "'2",
    '"',
    "2;3",
    "0x2",
    "é",
    "\\",
    "$x",
    "{x}",
]
LISTS = [
    "0",
    "1",
    "0,1",
    "1,0",
    "0,0",
    "0,9",
    "-1",
    "0,-1",
    ",",
    "",
    "0,,1",
    "a",
    "0;1",
    "²",
    "0 1",
    "9" * 30,
    "'0, 1'",
    "0,1,2,3,4,5,6,7",
    "1_0",
    "٣",
]
TIMES = ["30", "nan", "inf", "-inf", "-1", "0", "1e309", "1e300", "1e9", "x", "", "1_0", "'", "٣"]
OPTIONS: dict[str, list[str]] = {
    "--only": LISTS, "--timeout": TIMES, "--ledger": [""], "--fresh": [""], "--hosts": ["0", "1",
    "-1", "99", "²", "x", ""], "--mbit": ["nan", "inf", "-5", "0", "1e300", "x", ""],
    "--expect-failure": [""], "--nonsense": ["", "1"], "--": [""], "-h": [""], "--help": [""],
    "--only=": ["1", "", "x"], "# a comment": [""], "-": [""], "@file": [""], "--led": [""],
}  # fmt: skip
CELLS = ["print('hello', rank)", "", "\n\n", "# nothing but words\n", "   \n\t\n", "await x",
         "await 0", "async def f(): pass", "%ranks 2", "%%ranks\nprint(1)", "!ls", "1 +", "\0",
         "x = (" * 500, "(" * 300 + ")" * 300, "def f(:\n", "\ud800", "rank?", "return 1",
         "yield 1", "from __future__ import annotations\nprint(1)", "print('é', '\\ud800')",
         "  print(1)", "\tprint(1)\n  print(2)", "raise SystemExit(3)", "exit()", "1 / 0",
         "raise KeyboardInterrupt", "raise GeneratorExit", "print('x' * 100_000)", "class E("
         "BaseException): pass\nraise E", "del print, group", "rank = None", "\r\nprint(1)\r\n",
         "import sys; sys.stdout.close()", "import sys; sys.stdout = None"]  # fmt: skip
NAMES = [
    "double",
    "duble",
    "",
    "'double",
    "../double",
    "99_test/double.py",
    "double double",
    "é",
    "x" * 3000,
    "--all",
    "-h",
    "%s {x} $x",
    "\\",
    "double.py",
    "/",
    ".",
    "\u2028",
    "*",
    "a\0",
]


@pytest.fixture
def entry(double: Entry, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """The exercise `double`, in the folder where the notebook stands."""
    monkeypatch.chdir(double.root)
    return double


@pytest.fixture
def shell(
    entry: Entry, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InteractiveShell]:
    """A notebook's shell with all magics; torchrun and the doctor are not really started."""
    monkeypatch.setattr(
        ranks_magic.torchrun, "run", lambda source, world, timeout: TorchrunResult({}, "")
    )
    monkeypatch.setattr(grade_magic, "examine", lambda root, server: "examined")
    made = InteractiveShell()
    ranks = RanksMagics(made)
    made.register_magics(ranks, GradeMagics(made, lambda: server))
    made.push(ranks.names())
    yield made
    ranks.close()


def run(shell: Any, text: str) -> tuple[BaseException | None, str]:
    """What a cell raised, and all that it showed."""
    with capture_output() as captured:
        result = shell.run_cell(text)
    shown = [str(output.data.get("text/plain", "")) for output in captured.outputs]
    error = result.error_before_exec or result.error_in_exec
    story = error.story if isinstance(error, RanksFailed) else ""
    return error, "\n".join([captured.stdout, captured.stderr, *shown, story])


def check(error: BaseException | None, shown: str, text: str) -> None:
    """A failure is one of ours, said in a few lines, and our own files are in none of them."""
    assert error is None or isinstance(error, UsageError | RanksFailed), (text, repr(error))
    assert "course_lib/ranks" not in shown and "course_lib/grade" not in shown, shown
    if isinstance(error, UsageError):
        said = str(error)
        assert said and len(said.splitlines()) <= 3 and len(said) < 1000, said
        assert "_world_size" not in said and "_rank_list" not in said, said


def line_of(dice: Random) -> str:
    words = [dice.choice(NUMBERS)] * (dice.random() < 0.4)
    for _ in range(dice.choice([0, 1, 1, 2, 3])):
        option = dice.choice(sorted(OPTIONS))
        words += [option, dice.choice(OPTIONS[option])]
    if dice.random() < 0.2:
        dice.shuffle(words)
    return dice.choice([" ", " ", "  "]).join(words)


def test_lines_and_cells_of_ranks(fuzz: Any, shell: InteractiveShell) -> None:
    assert run(shell, "%ranks 2")[0] is None

    def case(dice: Random) -> None:
        name = dice.choice(["%ranks", "%%ranks", "%%ranks", "%%ranks", "%%torchrun"])
        line = line_of(dice) if dice.random() < 0.8 else ""
        cell = dice.choice(CELLS) if dice.random() < 0.5 else CELLS[0]
        text = f"{name} {line}" + (f"\n{cell}" if name.startswith("%%") else "")
        check(*run(shell, text), text)
        error, shown = run(shell, "%%ranks\nimport builtins\nbuiltins.print('well')")
        if "was closed" in shown or "sys.stdout" in cell:  # the ranks' own streams are gone
            run(shell, "%%ranks --fresh\n0")
            error, shown = run(shell, "%%ranks\nprint('well')")
        assert error is None and "well" in shown, (text, shown, error)

    fuzz(20, case)


def test_names_of_exercises(fuzz: Any, shell: InteractiveShell, entry: Entry) -> None:
    """The answer that was there is kept, whatever a cell holds."""

    def case(dice: Random) -> None:
        name = dice.choice(["%grade", "%%grade", "%hint", "%progress", "%doctor"])
        line = dice.choice(NAMES) if name != "%grade" or dice.random() < 0.1 else "duble"
        if name == "%%grade" and line in NAMES[:1]:
            line = "double" if dice.random() < 0.2 else "nothing"
        text = f"{name} {line}" + (f"\n{dice.choice(CELLS)}" if name == "%%grade" else "")
        entry.path.write_text(ANSWER)
        error, shown = run(shell, text)
        check(error, shown, text)
        assert shown.strip() or name == "%doctor", text
        kept = [p.read_text() for p in (entry.root / ".course").glob("backup/*/*.py")]
        assert ANSWER in [entry.path.read_text(errors="replace"), *kept]

    fuzz(20, case)


def test_functions_of_the_notebook(fuzz: Any, shell: InteractiveShell) -> None:
    """`pull` and `push` with whatever a reader may give them."""
    assert run(shell, "%ranks 2")[0] is None
    assert run(shell, "%%ranks\nx = rank\nu = (n for n in [])")[0] is None
    calls = [
        "pull('nothing')", "pull('')", "pull('x y')", "pull('x', 9)", "pull('x', -1)", "pull('u')",
        "pull('x', rank=1)", "pull('1/0')", "pull('print')", "push(x=(n for n in []))", "push()",
        "pull('x' * 10**5)", "push(x=open('/dev/null'))", "pull('lambda: 0')", "pull('\\0')",
        "push(rank=5)", "output(9)", "output(-1)", "timeline()", "flight_logs()", "pull('x', 1.5)",
        "pull('exit()')", "pull('__import__(\"sys\").exit(3)')", "pull('\\ud800')",
    ]  # fmt: skip

    def case(dice: Random) -> None:
        text = dice.choice(calls)
        check(*run(shell, text), text)
        error, shown = run(shell, "%%ranks\nprint('well')")
        assert error is None and "well" in shown, (text, shown, error)

    fuzz(15, case)


# --- defects that these tests have found ---------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%ranks ²", "1 to 64"),
        ("%ranks ٣", "1 to 64"),
        ("%ranks " + "9" * 5000, "1 to 64"),
        ("%%ranks --only 1_0\n0", "numbers like 0,2"),
        ("%%ranks --only -1\n0", "numbers like 0,2"),
        ("%%ranks --timeout 1e300\n0", "a number of seconds"),
        ("%%torchrun --timeout 1e300\n0", "a number of seconds"),
        ("%%ranks --hosts ²\n0", "the number of hosts"),
    ],
)
def test_numbers_that_are_none(shell: InteractiveShell, line: str, words: str) -> None:
    error, _ = run(shell, line)
    assert isinstance(error, UsageError) and words in str(error)


@pytest.mark.parametrize("value", ["(n for n in [])", "lambda: open('/dev/null')", "dist.group"])
def test_what_cannot_be_sent_is_said_without_our_files(shell: InteractiveShell, value: str) -> None:
    run(shell, f"%%ranks 1\nx = {value}\nx = x() if callable(x) and not rank else x")
    for text in ("pull('x')", f"import torch.distributed as dist\npush(x=({value}, lambda: 0))"):
        check(*run(shell, text), text)


@pytest.mark.parametrize("old", ["é".encode("latin-1"), b"\xff\xfe\0", b"x = 1\r\n"])
def test_a_file_of_any_bytes_is_kept(shell: InteractiveShell, entry: Entry, old: bytes) -> None:
    entry.path.write_bytes(old)
    error, shown = run(shell, f"%%grade double\n{ANSWER}")
    check(error, shown, "")
    assert error is None and "3 of 3 points" in shown
    kept = entry.root / ".course" / "backup" / "99_test"
    assert [path.read_bytes() for path in kept.iterdir()] == [old]


def test_no_backup_takes_the_place_of_another(shell: InteractiveShell, entry: Entry) -> None:
    for text in ("one = 1\n", "two = 2\n", "three = 3\n"):
        save_answer(entry, text)
    kept = entry.root / ".course" / "backup" / "99_test"
    (kept / "double.1.py").unlink()
    save_answer(entry, "four = 4\n")
    assert (kept / "double.2.py").read_text() == "one = 1\n"
    assert (kept / "double.4.py").read_text() == "three = 3\n"


def test_a_cell_that_no_file_can_hold(shell: InteractiveShell, entry: Entry) -> None:
    error, shown = run(shell, "%%grade double\nx = '\ud800'\n")
    check(error, shown, "")
    assert "not saved" in shown and entry.path.read_text() == ANSWER
