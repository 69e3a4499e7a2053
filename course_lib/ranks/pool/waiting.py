"""The live line about a long wait: who waits for whom, where, and for how long.

A rank may wait in anything: a collective, a lock, a queue, a socket, a C call. What is not a call
of `comm` is told from computing by the processor time of the rank's program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.ranks.pool import autopsy
from course_lib.ranks.start.forkserver import say

LONG = 5.0  # seconds after which a wait is worth a word
IDLE = 0.1  # share of a processor below which a program sleeps

Report = dict[str, Any]


@dataclass
class Stay:
    """What a rank has been doing, in which place, and since when on the machine's clock."""

    doing: str
    place: tuple[Any, ...]
    since: float
    report: Report


class Waits:
    """What every rank has been doing, from look to look."""

    def __init__(self) -> None:
        self._stays: dict[int, Stay] = {}
        self._ended: list[str] = []  # of those that failed by themselves

    def look(self, reports: Mapping[int, Report]) -> None:
        """Takes in the reports of one look; those of ranks that have answered end their stay."""
        self._ended = [
            f"rank {rank} {'raised ' if report['state'] == 'raised' else ''}{report['error']}"
            for rank, report in sorted(reports.items())
            if report["state"] in ("raised", "killed") and not autopsy.lost_peer(report)
        ]
        for rank, report in reports.items():
            if report["state"] != "running" or "at" not in report:
                self._stays.pop(rank, None)
                continue
            before = self._stays.get(rank)
            doing = _doing(before.report if before else None, report)
            place = _place(report, doing)
            stays = before is not None and place == before.place
            begun = before.since if before is not None and stays else report["at"]
            self._stays[rank] = Stay(doing, place, begun, report)

    def line(self, now: float) -> str:
        """One sentence on waits that are long by now; "" if there are none."""
        long = {rank: stay for rank, stay in self._stays.items() if now - stay.since >= LONG}
        waiting = {rank: stay for rank, stay in long.items() if stay.doing == "waits"}
        others = {rank: stay for rank, stay in self._stays.items() if stay.doing != "waits"}
        if waiting and others:
            verb = "waits" if len(waiting) == 1 else "wait"
            causes = " and ".join(f"{who}, which {what}" for who, what in _each(others, now))
            return self._sentence([f"{autopsy.names(waiting)} {verb} for {causes}"])
        still = waiting or {r: s for r, s in long.items() if s.doing in ("sleeps", "is silent")}
        return self._sentence([f"{who} {what}" for who, what in _each(still, now)])

    def _sentence(self, waits: list[str]) -> str:
        """What they wait for may be a rank that has ended: that is said first."""
        text = "; ".join(self._ended + waits)
        return f"{text[0].upper()}{text[1:]}." if waits else ""


def _doing(before: Report | None, report: Report) -> str:
    if before is not None and before["at"] == report["at"]:
        return "is silent"
    if report.get("talking"):
        return "waits"
    if before is None or _processor(report) is None or _processor(before) is None:
        return "works"
    used = (_processor(report) or 0.0) - (_processor(before) or 0.0)
    sleeps = used < IDLE * (report["at"] - before["at"]) and _line(report) == _line(before)
    return "sleeps" if sleeps and report.get("line") else "works"


def _place(report: Report, doing: str) -> tuple[Any, ...]:
    """What must stay the same for one stay; a rank that computes may be anywhere."""
    if doing == "waits":
        return (doing, report.get("call"), report.get("seq"), *_line(report))
    return (doing, *(_line(report) if doing == "sleeps" else ()))


def _line(report: Report) -> tuple[Any, ...]:
    return (report.get("file"), report.get("line"))


def _processor(report: Report) -> float | None:
    """Seconds that the rank's program has computed, or its process where no thread is told."""
    threads = report.get("threads", {})
    found = threads.get("main") or threads.get("all")
    return float(found[1]) if found else None


def _each(stays: Mapping[int, Stay], now: float) -> list[tuple[str, str]]:
    """Ranks that do the same in the same place, and what they have done for how long."""
    same: dict[tuple[Any, ...], list[int]] = {}
    for rank, stay in sorted(stays.items()):
        same.setdefault((stay.doing, _line(stay.report)), []).append(rank)
    return [
        (autopsy.names(ranks), _in_words(stays[ranks[0]], len(ranks) == 1, now))
        for ranks in same.values()
    ]


def _in_words(stay: Stay, one: bool, now: float) -> str:
    report, seconds = stay.report, f"for {now - stay.since:.0f} s"
    line = f"in line {report['line']}" if report.get("line") else "somewhere"
    source = report.get("source", "").partition("  #")[0].strip()[:60]
    have, code = "has" if one else "have", f" ({source})" if source else ""
    if stay.doing == "waits":
        return f"{have} waited in {autopsy.call_name(report)} {seconds}"
    if stay.doing == "sleeps":
        return f"{have} slept {line} {seconds}{code}"
    if stay.doing == "is silent":
        return (
            f"{have} not answered {seconds}, last seen {line}{code}: a C call keeps Python's lock"
        )
    return f"{have} been at work {seconds}, now {line}{code}"


class Told:
    """Says each wait once on stderr: for calls that show no output while they run."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, line: str) -> None:
        """Says it, unless it differs from what was said only in the seconds."""
        told = "".join(letter for letter in line if not letter.isdigit())
        if line and told not in self._said:
            self._said.add(told)
            say(line)
