"""The instructor's commands: `course release`, `course class`, `course export`."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

from course_lib.grade.catalog import PACKAGE, Entry, entries, find, find_root
from course_lib.grade.grader import ANSWERS_WITHIN, Grader
from course_lib.grade.report import Card
from course_lib.grade.teach import gradescope
from course_lib.grade.teach.grading import grade_class
from course_lib.grade.teach.handed_in import Submission, left_out, submissions
from course_lib.grade.teach.imported import Imported, code_folders, no_bytecode
from course_lib.grade.teach.marks import Marks, Student
from course_lib.grade.teach.release import release
from course_lib.grade.teach.seed import read_secret, seed_of
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.ranks.system.wall import lacks
from course_lib.trace import Refusal

SEVERITY = ("interrupted", "broke", "tampered")  # what the exit code of a class tells, worst first
EXIT = {"interrupted": 130, "broke": 4, "tampered": 5}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the instructor's commands to `course`."""

    def command(name: str, do: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(do=do)
        return sub

    copy = command("release", do_release, "for instructors: the course without its answers")
    copy.add_argument("folder", type=Path, help="empty, or not there yet")
    grade = command("class", do_class, "for instructors: grade what a class has handed in")
    grade.add_argument("folder", type=Path, help="a folder or zip file for each student")
    grade.add_argument("--out", type=Path, help="for results (default: FOLDER.grades)")
    grade.add_argument("--student", help="FOLDER is the submission of this one student")
    grade.add_argument("--seed", help="of this student: a container needs no secret")
    grade.add_argument(
        "--collect", action="store_true", help="believe what containers have graded, and seal it"
    )
    seed = command("seed", do_seed, "for instructors: a student's seed, for a container")
    seed.add_argument("student")
    seed.add_argument("--secret-file", type=Path, required=True, help="what seeds are made of")
    export = command("export", do_export, "for instructors: an autograder to upload")
    export.add_argument("form", choices=["gradescope"])
    export.add_argument("file", type=Path, help="the zip file to write")
    for each in (grade, export):
        each.add_argument("--exercises", help="names of exercises or lessons, as a,b (default all)")
        each.add_argument("--secret-file", type=Path, help="what students' seeds are made of")


def do_release(args: argparse.Namespace) -> int:
    """The students' copy."""
    known = release(find_root(), args.folder)
    hidden = [check for entry in known for check in entry.checks if check.hidden]
    print(f"{args.folder}: {len(known)} exercises, without solutions")
    print(f"{len(hidden)} checks are hidden, {sum(check.points for check in hidden)} points")
    return 0


def do_export(args: argparse.Namespace) -> int:
    """The autograder's zip file."""
    secret = read_secret(args.secret_file) if args.secret_file else None
    chosen = choose(args.exercises)
    gradescope.autograder(PACKAGE.parent, args.file, chosen, secret)
    points = sum(entry.points for entry in chosen)
    print(f"{args.file}: {len(chosen)} exercises, {points} points; upload it as it is")
    return 0


def choose(words: str | None) -> list[Entry]:
    """The exercises named, one by one or by lesson; all if nothing is said.

    Raises:
        Refusal: a name that neither an exercise nor a lesson has.
    """
    known = entries()
    if not words:
        return known
    found: list[Entry] = []
    for word in filter(None, words.split(",")):
        lesson = [entry for entry in known if entry.lesson == word.strip()]
        found += lesson or [find(word.strip())]
    return list({entry.name: entry for entry in found}.values())


# --- a class -------------------------------------------------------------------------------------
def do_class(args: argparse.Namespace) -> int:
    """Grades a class, and says a line for each exercise."""
    folder = args.folder.resolve()
    out = (args.out or folder.with_name(f"{folder.name}.grades")).resolve()
    _refuse(folder, out, args.student)
    seed = _seed(args)
    found = [Submission(args.student, folder)] if args.student else submissions(folder)
    secret = read_secret(args.secret_file) if args.secret_file else None
    private = [folder, out, *([args.secret_file.resolve()] if secret else [])]
    marks, missing = Marks(out, secret, args.collect), lacks()
    for name in [] if args.student else left_out(folder):
        marks.notes.append((name, "", "not taken", "neither a folder nor a .zip file"))
        print(f"not taken: {name}: it is neither a folder nor a .zip file", flush=True)
    if missing:
        marks.notes.append(("", "", "machine", f"its kernel refuses no {', no '.join(missing)}"))
    with no_bytecode(), ForkServer() as preloaded:
        students = grade_class(
            found,
            choose(args.exercises),
            lambda name: seed_of(name, secret) if secret else seed,
            marks,
            lambda: Grader(private=private, start=partial(preloaded.twin, ANSWERS_WITHIN)),
            _say,
            Imported(code_folders(find_root(), packages=bool(missing))),
        )
    print(f"{len(students)} of {len(found)} students graded; marks are in {out / 'marks.csv'}")
    if len(students) < len(found) and any(row[2] == "stopped" for row in marks.notes):
        print(f"stopped: {marks.notes[-1][3]}")
        return EXIT["tampered"]
    return _ending(students, out)


def do_seed(args: argparse.Namespace) -> int:
    """The seed of one student."""
    print(seed_of(args.student, read_secret(args.secret_file)))
    return 0


def _seed(args: argparse.Namespace) -> int:
    """The seed that was said; 0, as students have it at home, if none was."""
    found = ""
    if args.seed is not None and not args.seed.isdecimal():
        found = "no number"
    elif args.seed is not None and (args.student is None or args.secret_file):
        found = "a secret as well" if args.secret_file else "a whole class"
    if found:
        why = "a seed is one student's; where there is a secret, it is made of that"
        raise Refusal(f"grade with the seed {args.seed}", found, why)
    return int(args.seed or 0)


def _refuse(folder: Path, out: Path, student: str | None) -> None:
    """Raises unless results can go to `out`."""
    why = ""
    if not folder.is_dir():
        found, why = f"no folder {folder}", "submissions are its folders and zip files"
    elif out.is_relative_to(folder) or folder.is_relative_to(out):
        found, why = f"results that are to go to {out}", "neither may lie in the other"
    elif PACKAGE.is_relative_to(folder) or PACKAGE.is_relative_to(out):
        found, why = "the course itself in that folder", "answers may read nothing in it"
    elif student is not None and (not student or student[0] == "." or os.sep in student):
        found, why = f"a student called {student!r}", "the name is to be a folder's name as well"
    if why:
        raise Refusal(f"grade the class in {folder.name}", found, why)


def _say(student: str, card: Card, known: bool) -> None:
    score = "no score" if card.score is None else f"{card.score}/{card.points}"
    word = card.fault.message if card.fault and card.source is None else card.status
    again = "  (as before)" if known else ""
    print(f"{student:<24} {card.entry.name:<28} {score:>8}  {word}{again}", flush=True)


def _ending(students: list[Student], out: Path) -> int:
    """The exit code; what a person should look at is said."""
    states = [card.status for student in students for card in student.cards]
    for state in SEVERITY:
        if state in states:
            print(f"{states.count(state)} {state}: see {out / 'look_at.csv'}")
    return next((EXIT[state] for state in SEVERITY if state in states), 0)
