"""What the course's authors run: starters from solutions, the proof of each suite, the address."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack

from course_lib.grade.author import build, mutate, origin, zoo
from course_lib.grade.catalog import Entry, entries, find, find_root
from course_lib.grade.grader import Grader
from course_lib.ranks.system.scratch import scratch_folder
from course_lib.trace import Refusal


def add_to(parser: argparse.ArgumentParser) -> None:
    """Adds the authors' commands below `course dev`."""
    parser.epilog = "CONTRIBUTING.md says which of them proves which change."
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    parsers = {}
    for name, do, text in (
        ("build", do_build, "make the starters from the solutions"),
        ("zoo", do_zoo, "grade all answers whose verdict is known; ✓ is the verdict that is meant"),
        ("mutate", do_mutate, "grade machine-made wrong answers"),
        ("show", do_show, "print an answer of the zoo, whole"),
    ):
        parsers[name] = commands.add_parser(name, help=text, description=text)
        parsers[name].set_defaults(do=do)
    for name in ("build", "mutate"):
        parsers[name].add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parsers["build"].add_argument(
        "--force", action="store_true", help="overwrite files that were worked on"
    )
    text = "write where this copy can be cloned from, into every file that says it"
    address = commands.add_parser("origin", help=text, description=text)
    address.set_defaults(do=do_origin)
    address.add_argument("address", nargs="?", help="OWNER/REPO; if not said, git's origin")
    parsers["show"].add_argument("name", metavar="NAME")
    parsers["show"].add_argument("answer", nargs="?", metavar="ANSWER", help="default: list them")
    graded = parsers["zoo"]
    graded.add_argument(
        "names", nargs="*", metavar="NAME", help="default: all; after one name, answers of it"
    )
    graded.add_argument("--right", action="store_true", help="only solutions and variants")
    graded.add_argument(
        "--seeds",
        type=_numbers,
        default=[0],
        help="of the hidden inputs, as 0-9 or 1,5 (default 0)",
    )
    graded.add_argument("--jobs", type=int, default=1, help="gradings side by side (default 1)")
    parsers["mutate"].add_argument(
        "--most", type=int, default=0, help="at most about this many of an exercise, evenly chosen"
    )


def _numbers(text: str) -> list[int]:
    """Whole numbers written as `0-3,7`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def with_solutions(names: Sequence[str]) -> list[Entry]:
    """The chosen exercises; all if none is named.

    Raises:
        Refusal: this is a student's copy of the course.
    """
    found = [find(name) for name in names] or entries()
    if not any(entry.solution.exists() for entry in found):
        raise Refusal(
            "a command for authors",
            "a copy of the course without solutions",
            "it works from the solutions",
        )
    return found


def do_build(args: argparse.Namespace) -> int:
    """Starters from solutions."""
    for entry in with_solutions(args.names):
        print(f"{build.build(entry, force=args.force):<10} {entry.path.relative_to(entry.root)}")
    return 0


def do_zoo(args: argparse.Namespace) -> int:
    """Whether each file with a known verdict gets it."""
    known = _chosen(args.names)
    known = zoo.right_answers(known) if args.right else known
    wrong = count = 0
    with ExitStack() as stack:
        graders = [stack.enter_context(Grader()) for _ in range(args.jobs)]
        folder = stack.enter_context(scratch_folder())
        for verdict in zoo.verdicts(known, args.seeds, graders, folder):
            wrong, count = wrong + bool(verdict.complaint), count + 1
            _tell(verdict)
    print(f"{wrong} of {count} verdicts are wrong")
    return 1 if wrong else 0


def _chosen(names: Sequence[str]) -> list[zoo.KnownAnswer]:
    """The answers of the exercises named, or of one exercise those named after it.

    Raises:
        Refusal: what follows the first name is neither an exercise nor an answer.
    """
    if len(names) < 2 or {entry.name for entry in entries()} >= set(names):
        return [answer for entry in with_solutions(names) for answer in zoo.answers_of(entry)]
    [entry] = with_solutions(names[:1])
    return [answer for name in names[1:] for answer in _named(entry, name)]


def _named(entry: Entry, name: str) -> list[zoo.KnownAnswer]:
    """The answers of that name: the starter and the solution have the exercise's.

    Raises:
        Refusal: there is none.
    """
    known = zoo.answers_of(entry)
    found = [answer for answer in known if answer.name.removesuffix(".py") == name]
    if not found:
        others = len({answer.name for answer in known})
        raise Refusal(
            f"the answer {name!r} of {entry.name}",
            f"{others} others in {entry.mutants.relative_to(entry.root)}",
            f"`course dev show {entry.name}` lists them",
        )
    return found


def _tell(verdict: zoo.Verdict) -> None:
    """A line for a verdict, and what is wrong with it."""
    answer = verdict.answer
    mark = "✗" if verdict.complaint else "✓"
    print(
        f"{mark} {answer.entry.name}: {answer.kind:<8} {answer.name:<36} "
        f"seed {verdict.seed}  {verdict.card.status}",
        flush=True,
    )
    if verdict.complaint:
        print(f"    {verdict.complaint}".replace("\n", "\n    "), flush=True)


def do_show(args: argparse.Namespace) -> int:
    """One answer, as the grader gets it; their names, if none is said."""
    [entry] = with_solutions([args.name])
    if args.answer is not None:
        print(_named(entry, args.answer)[-1].source, end="")  # the solution, not the starter
        return 0
    for name, answer in {a.name.removesuffix(".py"): a for a in zoo.answers_of(entry)}.items():
        print(f"{answer.kind:<8}  {name}")
    return 0


def do_mutate(args: argparse.Namespace) -> int:
    """Which machine-made wrong answers survive."""
    killed = alive = 0
    with Grader() as grader, scratch_folder() as folder:
        for entry in with_solutions(args.names):
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


def do_origin(args: argparse.Namespace) -> int:
    """The address of this copy, in every file that has it."""
    root = find_root()
    for path in origin.move(root, args.address):
        print(path.relative_to(root))
    return 0
