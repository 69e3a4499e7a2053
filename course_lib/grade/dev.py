"""What the course's authors run: starters from solutions, and the proof of each suite.

Notebook: none; `course dev build | zoo | mutate`.
Source: see `build`, `zoo` and `mutate`, which do the work.
Costs: a grading, one or two seconds, for each file.
The production version runs in continuous integration, on a sample.
"""

from __future__ import annotations

import argparse

from course_lib.grade import build, mutate, zoo
from course_lib.grade.catalog import Entry, chosen
from course_lib.grade.grader import Grader
from course_lib.ranks.scratch import scratch_folder


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the authors' commands below `course dev`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    parsers = {}
    for name, do, text in (
        ("build", do_build, "make the starters from the solutions"),
        ("zoo", do_zoo, "grade starter, solution, variants and mutants"),
        ("mutate", do_mutate, "grade machine-made wrong answers"),
    ):
        parsers[name] = commands.add_parser(name, help=text, description=text)
        parsers[name].set_defaults(do=do)
        parsers[name].add_argument("name", nargs="?")
    parsers["build"].add_argument(
        "--force", action="store_true", help="overwrite files that were worked on"
    )
    parsers["mutate"].add_argument(
        "--most", type=int, default=0, help="at most about this many of an exercise, evenly chosen"
    )


def with_solutions(name: str | None) -> list[Entry]:
    """The chosen exercises.

    Raises:
        NoSolutions: this is a student's copy of the course.
    """
    found = chosen(name)
    if not any(entry.solution.exists() for entry in found):
        raise build.NoSolutions(
            "this command is for authors: it works from the solutions, and this copy has none"
        )
    return found


def do_build(args: argparse.Namespace) -> int:
    """Starters from solutions."""
    for entry in with_solutions(args.name):
        print(f"{build.build(entry, force=args.force):<10} {entry.path.relative_to(entry.root)}")
    return 0


def do_zoo(args: argparse.Namespace) -> int:
    """Whether each file with a known verdict gets it."""
    wrong = 0
    with Grader() as grader, scratch_folder() as folder:
        for entry in with_solutions(args.name):
            for animal, card, complaint in zoo.inspect(entry, grader, folder):
                wrong += bool(complaint)
                print(f"{'✗' if complaint else '✓'} {entry.name}: {animal.kind:<8} "
                      f"{animal.path.name:<36} {card.status}", flush=True)  # fmt: skip
                if complaint:
                    print(f"    {complaint}".replace("\n", "\n    "))
    return 1 if wrong else 0


def do_mutate(args: argparse.Namespace) -> int:
    """Which machine-made wrong answers survive."""
    killed = alive = 0
    with Grader() as grader, scratch_folder() as folder:
        for entry in with_solutions(args.name):
            found = list(mutate.mutants(entry.solution.read_text(encoding="utf-8")))
            step = max(1, len(found) // args.most) if args.most else 1
            for mutant in found[::step]:
                path = folder / f"{entry.name}.py"
                path.write_text(mutant.source, encoding="utf-8")
                survived = grader.grade(entry, path).status == "full"
                killed, alive = killed + (not survived), alive + survived
                word = "survived" if survived else "killed  "
                print(f"{word} {entry.name} {mutant.what}", flush=True)
    print(f"{killed} of {killed + alive} killed")
    return 1 if alive else 0
