"""The score card in words, as a terminal shows it.

No times and no paths are in it, so that the same answer always has the same card.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from course_lib.grade.faults import KINDS, Fault
from course_lib.grade.report.card import Card, CheckResult
from course_lib.ranks.system.processes import LACKS
from course_lib.ranks.system.wall import lacks

WIDTH = 96
OPEN_BAR = 10  # characters of a full bar
MOST_LINES = 14  # of one failed check, its title not counted
GOOD, BAD, IDLE = "✓", "✗", "·"
MARKS = {"passed": GOOD, "failed": BAD, "not_run": IDLE}
ANSI = {"passed": "\x1b[34m", "failed": "\x1b[31m", "not_run": "\x1b[2m", "bold": "\x1b[1m"}
ENDINGS = {
    "full": "All checks passed.",
    "failed": "",
    "not_written": "Nothing is written yet: replace `raise NotImplementedError` and grade again.",
    "no_load": "Nothing was run: the file does not load.",
    "broke": "The grader itself failed, so there is no score. Your file is not to blame.",
    "tampered": "The grader, its suites or torch were changed while the file ran: no points.",
    "interrupted": "Interrupted; the checks above stand.",
    "running": "",
}


def details(result: CheckResult, seen: dict[tuple[str, ...], int], number: int) -> list[str]:
    """What went wrong in one check, in at most `MOST_LINES` lines.

    Args:
        result: the failed check.
        seen: what was said already, with the number of the check; the same is not said twice.
        number: this check's number, from 1.
    """
    fault = result.fault
    key: tuple[str, ...] = (result.message, result.expected, result.measured)
    if fault is not None:  # the ranks and the sizes may differ: it is the same mistake
        key = (fault.kind, str(fault.line) if fault.line else fault.message)
    if key in seen:
        return [f"the same as in check {seen[key]}"]
    seen[key] = number
    lines = fault_lines(fault) if fault else _difference(result)
    printed = ("printed", result.printed)
    if result.printed and printed not in seen and not (fault and fault.kind == "flood"):
        seen[printed] = number
        lines.append("your print output:")
        lines += [f"  {line[: WIDTH - 10]}" for line in result.printed.splitlines()]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], "..."]
    return lines


def fault_lines(fault: Fault) -> list[str]:
    """A fault: its name, what happened, where, and why."""
    message = fault.message.splitlines() or [""]
    lines = _wrap(f"{KINDS[fault.kind]}: ", message[0])
    for extra in [*message[1:5], *fault.rows]:
        lines += [f"  {line}" for line in _wrap("", extra)]
    return lines + (_wrap("why: ", fault.cause) if fault.cause else [])


def _difference(result: CheckResult) -> list[str]:
    where = "" if result.rank is None else f"rank {result.rank}: "
    lines = _wrap(where, result.message)
    for label, text in (
        ("measured: ", result.measured),
        ("expected: ", result.expected),
        ("likely:   ", result.cause),
    ):
        if text:
            lines += _wrap(label, text)
    return lines


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"{label}{text}", WIDTH - 6, subsequent_indent="  ", max_lines=4, placeholder=" ..."
    ) or [label]


def ending(card: Card) -> str:
    """What is said below the checks."""
    if card.status == "not_written" and card.score:
        return "Not all is written yet: a `raise NotImplementedError` is left."
    if card.figure is not None:
        return "The answer is valid; the bar says what it is worth."
    if card.status == "full" and card.entry.exercise.hidden_checks:
        return "All checks that are here passed."
    return ENDINGS[card.status]


def hidden_line(card: Card) -> str:
    """What a student's copy of the course cannot check; "" in the whole course."""
    count, points = card.entry.exercise.hidden_checks, card.entry.exercise.hidden_points
    if not count:
        return ""
    one = count == 1
    return (
        f"{count} hidden check{'' if one else 's'} ({points} point{'s'[: points != 1]}) "
        f"run{'s' if one else ''} when this is handed in."
    )


def lacks_line(card: Card) -> str:
    """What this machine cannot do while answers run; "" if nothing, or if none has run."""
    if card.status not in ("full", "failed"):
        return ""
    missing = f"nothing but the grader itself keeps an answer from {_listed(lacks())} here"
    return " ".join(f"{text.capitalize()}." for text in (LACKS, missing if lacks() else "") if text)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def figure_line(card: Card) -> str:
    """What a valid answer to an open exercise was measured at; "" for other exercises."""
    scale, figure = card.entry.exercise.scale, card.figure
    if scale is None or figure is None:
        return ""
    return (
        f"measured: {figure:.4g} {scale.what}; a trivial answer has {scale.trivial:.4g}, the best "
        f"one that we know {scale.ours:.4g}  {bar_of(scale.share(figure))}"
    )


def bar_of(share: float) -> str:
    """How far an open exercise's answer is on the way from a trivial one to ours."""
    full = min(OPEN_BAR, max(0, round(OPEN_BAR * share)))
    return f"{'█' * full:░<{OPEN_BAR}} {share:.0%}"


def hint_line(card: Card, command: str) -> str:
    """Where help is; "" if none is needed."""
    if card.status not in ("failed", "not_written"):
        return ""
    count = len(card.entry.exercise.hints)
    return f"hint 1 of {count}: {command} {card.entry.name}"


def below(card: Card, hint: str) -> list[str]:
    """What is said below the checks, line by line; `hint` is the command that shows one."""
    said = (
        figure_line(card),
        ending(card),
        hidden_line(card),
        card.internal,
        lacks_line(card),
        hint_line(card, hint),
    )
    return [line for each in said for line in each.splitlines()[-6:]]


def headline(card: Card) -> str:
    """Name, title and points in one line."""
    entry, exercise = card.entry, card.entry.exercise
    here = " here" if exercise.hidden_checks else ""
    score = "no score" if card.score is None else f"{card.score} of {card.points} points{here}"
    return f"{entry.name} · {exercise.title} · {score}"


# --- text ----------------------------------------------------------------------------------------
def as_text(card: Card, *, colour: bool = False, hint: str = "course hint") -> str:
    """The card for a terminal.

    Args:
        card: the card.
        colour: whether to use the terminal's colours.
        hint: the command that shows a hint.
    """
    lines = [_paint(headline(card), "bold", colour)]
    if card.status == "not_written" and not card.score:
        pass  # one sentence says it all
    elif card.fault is not None:
        lines += [
            f"  {_paint(BAD, 'failed', colour)} {line}" if not i else f"    {line}"
            for i, line in enumerate(fault_lines(card.fault))
        ]
    else:
        lines += _check_lines(card, colour)
    return "\n".join([*lines, *(f"  {line}" for line in below(card, hint))])


def _check_lines(card: Card, colour: bool) -> list[str]:
    lines: list[str] = []
    seen: dict[tuple[str, ...], int] = {}
    for number, result in enumerate(card.checks, 1):
        check = result.check
        mark = _paint(MARKS[result.state], result.state, colour)
        points = f"{result.score}/{check.points}"
        rest = "  (not run)" if result.state == "not_run" else ""
        lines.append(f"  {mark} {number}. {points}  {check.title} [{check.code}]{rest}")
        if result.state == "failed":
            lines += [f"      {line}" for line in details(result, seen, number)]
    return lines


def _paint(text: str, kind: str, colour: bool) -> str:
    return f"{ANSI[kind]}{text}\x1b[0m" if colour else text
