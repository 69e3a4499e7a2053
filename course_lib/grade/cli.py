"""The command `course`: grade, watch, hints, progress, doctor, plan, runs; for authors too.

Exit codes: 0 full marks, 1 failed checks, 2 refused, 3 a file does not load, 4 the grader
broke, 5 evidence of tampering, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from course_lib.grade import plan, runs
from course_lib.grade.author import build, dev
from course_lib.grade.catalog import (
    Entry,
    checkout,
    chosen,
    entries,
    find,
    find_root,
)
from course_lib.grade.grader import Grader
from course_lib.grade.report import (
    Card,
    as_junit,
    as_text,
    github,
    progress,
    write_atomically,
    write_json,
)
from course_lib.grade.report.progress import Progress
from course_lib.grade.teach import commands as teach
from course_lib.trace import Refusal

USAGE, BROKE, INTERRUPTED = 2, 4, 130
SEVERITY = (130, 4, 5, 3, 1, 0)  # which exit code stands for several exercises
TOO_MANY_HINTS = "That was the last hint; the lesson's notebook has the idea step by step."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code and never raises."""
    args = argparse.Namespace()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a ★ that a terminal has not becomes a question
            stream.reconfigure(errors="replace")
    try:
        args = _parser().parse_args(argv)
        code: int = args.do(args)
        return code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE
    except Refusal as error:
        print("course:", str(error).replace("\n", "\n  "), file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("course: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # who reads this, as `head` does, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as error:
        print(f"course: {error}", file=sys.stderr)
        return USAGE if _was_given(args, error) else BROKE


def _was_given(args: argparse.Namespace, error: Exception) -> bool:
    """Whether an error is of a path that the caller has named, or of a folder above it."""
    if not isinstance(error, OSError) or error.filename is None or error.errno == errno.ENOSPC:
        return False
    place = Path(os.path.abspath(os.fsdecode(error.filename)))
    given = [
        Path(os.path.abspath(value))
        for name, value in vars(args).items()
        if isinstance(value, Path) or (name in ("json", "junit") and isinstance(value, str))
    ]
    return any(path.is_relative_to(place) or place.parent == path.parent for path in given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="course", description="Grades the course's exercises.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(do=do)
        return sub

    command("list", do_list, "show all exercises")
    grade = command("grade", do_grade, "grade one exercise, or all of them")
    grade.add_argument("name", nargs="?")
    grade.add_argument("--all", action="store_true", help="every exercise")
    grade.add_argument("--file", type=Path, help="grade this file instead of the learner's")
    grade.add_argument("--seed", type=int, default=0, help="of the hidden inputs (default 0)")
    grade.add_argument("--json", metavar="FILE", help="write the result as JSON; - for stdout")
    grade.add_argument("--junit", metavar="FILE", help="write the result as JUnit XML")
    grade.add_argument(
        "--classroom", metavar="FILE", type=Path, help="add the points for GitHub Classroom"
    )
    watch = command("watch", do_watch, "grade whenever a file is saved")
    watch.add_argument("name", nargs="?")
    for name, do, text in (
        ("hint", do_hint, "show the next hint"),
        ("reset", do_reset, "bring the starter back; the file that was there is kept"),
        ("solution", do_solution, "show the solution, once the exercise is solved"),
    ):
        command(name, do, text).add_argument("name")
    commands.choices["solution"].add_argument(
        "--anyway", action="store_true", help="show it although it is not solved"
    )
    command("progress", do_progress, "show the way so far")
    command("doctor", do_doctor, "whether the course can run here, and what to do if not")
    plan.add_to(commands)
    runs.add_to(commands)
    teach.add_to(commands)
    dev.add_to(command("dev", None, "for authors: build, zoo, mutate, show, origin"))
    return parser


# --- this machine, and others --------------------------------------------------------------------
def do_doctor(args: argparse.Namespace) -> int:
    """Looks at versions, devices, memory and folder, and starts two ranks."""
    from course_lib.ranks.doctor import examine  # imports torch, which most commands do without

    found = examine(checkout())
    print(found)
    return 0 if found.healthy else 1


# --- for learners --------------------------------------------------------------------------------
def do_list(args: argparse.Namespace) -> int:
    """All exercises, a line each: ★ core, ◇ open, without one right answer."""
    for entry in entries():
        exercise = entry.exercise
        star = "★" if exercise.core else "◇" if exercise.open else " "
        print(
            f"{star} {entry.lesson:<24} {entry.name:<32} {entry.points:>3} points  "
            f"{exercise.minutes:>3} min  {exercise.title}"
        )
    return 0


def do_grade(args: argparse.Namespace) -> int:
    """Grades; prints the cards, or JSON alone where that goes to standard output."""
    if bool(args.name) == args.all or (args.file and args.all):
        raise Refusal(
            "course grade",
            "not exactly one way to say what",
            "say one exercise, as in `course grade ring_all_reduce`, or --all",
        )
    if args.file is not None and not args.file.is_file():
        what = "no file" if args.file.is_dir() or args.file.is_fifo() else "nothing"
        raise Refusal(
            f"grade {args.file}", f"{what} of that name", "--file takes the path of one answer"
        )
    for place in filter(None, (args.json, args.junit)):
        if place == "-":
            continue
        if not (folder := Path(place).parent).is_dir():
            raise Refusal(f"write {place}", f"no folder {folder}", "make it first")
        Path(place).unlink(missing_ok=True)  # what an earlier run has found is not this one's
    wanted = chosen(args.name)
    cards: list[Card] = []
    with Grader() as grader:
        for entry in wanted:
            cards.append(_grade_one(grader, entry, args, cards))
            if cards[-1].interrupted:
                break
    if args.json == "-":
        print(json.dumps(_json(cards, args.all), indent=1))
    if args.junit:
        write_atomically(Path(args.junit), as_junit(cards))
    if args.classroom:
        github.write(args.classroom, cards)
    if args.all and args.json != "-":
        got, most = sum(card.score or 0 for card in cards), sum(card.points for card in cards)
        later = (
            " before hidden checks" if any(c.entry.exercise.hidden_checks for c in cards) else ""
        )
        print(
            f"{sum(c.status == 'full' for c in cards)} of {len(cards)} exercises in full{later}, "
            f"{got} of {most} points"
        )
    codes = {card.exit_code for card in cards}
    return next((code for code in SEVERITY if code in codes), 0)


def _grade_one(
    grader: Grader, entry: Entry, args: argparse.Namespace, before: Sequence[Card]
) -> Card:
    """Grades one exercise, writes what is asked for, and enters the progress."""

    def each(card: Card) -> None:
        if args.json not in (None, "-"):
            write_json(Path(args.json), _json([*before, card], args.all))

    card = grader.grade(entry, args.file, seed=args.seed, each=each)
    if args.json != "-":
        print(as_text(card, colour=sys.stdout.isatty()), flush=True)
    if args.file is None:
        _enter(card)
    return card


def _enter(card: Card) -> None:
    """Writes the progress down, once the card is shown."""
    if warning := Progress(card.entry.root).enter(card):
        print(f"course: {warning}", file=sys.stderr)


def _json(cards: Sequence[Card], many: bool) -> object:
    """One card's object, or with --all `{"schema", "exercises": [...]}`."""
    if not many:
        return cards[0].to_dict()
    return {"schema": "course-grades/1", "exercises": [card.to_dict() for card in cards]}


def do_watch(args: argparse.Namespace) -> int:
    """Grades each file as it is saved, until interrupted."""
    watched = chosen(args.name)
    times = {entry.name: _saved(entry.path) for entry in watched}
    what = watched[0].path.name if args.name else f"{len(watched)} files"
    print(f"watching {what}; Ctrl-C ends it")
    with Grader() as grader:
        grader.warm()
        while True:
            for entry in watched:
                if _saved(entry.path) != times[entry.name]:
                    times[entry.name] = _saved(entry.path)
                    card = grader.grade(entry)
                    print(as_text(card, colour=sys.stdout.isatty()), flush=True)
                    _enter(card)
                    if card.interrupted:
                        return INTERRUPTED
            time.sleep(0.2)


def _saved(path: Path) -> tuple[int, int]:
    """When a file was saved, and its size; zeros while it does not exist."""
    try:
        info = path.stat()
    except OSError:
        return (0, 0)
    return (info.st_mtime_ns, info.st_size)


def do_hint(args: argparse.Namespace) -> int:
    """The next hint, with those before it."""
    print(hint_text(find(args.name)))
    return 0


def hint_text(entry: Entry) -> str:
    """One more hint than last time, with those before it."""
    hints = entry.exercise.hints
    count = Progress(entry.root).take_hint(entry)
    lines = [
        textwrap.fill(f"hint {n} of {len(hints)}: {hint}", 96, subsequent_indent="  ")
        for n, hint in enumerate(hints[:count], 1)
    ]
    return "\n".join([*lines, TOO_MANY_HINTS] if count == len(hints) else lines)


def do_reset(args: argparse.Namespace) -> int:
    """The starter again; the learner's file is kept."""
    entry = find(args.name)
    text = build.starter_text(entry)
    kept = build.save_answer(entry, text)
    print(f"{entry.path.name} is the starter again.")
    if kept:
        print(f"What was there is now {kept.relative_to(entry.root)}.")
    return 0


def do_progress(args: argparse.Namespace) -> int:
    """The table of what is done."""
    known = entries()
    print(progress.as_text(known, Progress(find_root())))
    return 0


def do_solution(args: argparse.Namespace) -> int:
    """The solution, for those who have one of their own."""
    entry = find(args.name)
    if not entry.solution.exists():
        raise Refusal(
            f"the solution of {entry.name}",
            "a copy of the course without solutions",
            f"`course hint {entry.name}` helps a step further",
        )
    if not args.anyway and not Progress(entry.root).finished(entry):
        raise Refusal(
            f"the solution of {entry.name}",
            f"{entry.name} is not solved yet",
            "--anyway shows the solution all the same",
        )
    print(entry.solution.read_text(encoding="utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
