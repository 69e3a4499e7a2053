"""prefetch: the next gathers under way, never too many at once, nothing gathered twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from course_lib.comm import all_gather
from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Gather the next unit while this one computes",
    core=True,
    minutes=25,
    order=5,
    library=(),
    hints=(
        "For [a, b, c, c, b, a] and limit 2, write down for each place which units must be in "
        "flight while it computes. What has to be done between one line and the next?",
        "Keep a list of what is in flight. At place i, `wanted` is the first `limit` different "
        "units of `order[i:]`; `dict.fromkeys` drops repetitions and keeps the order. Free what "
        "is in flight but not wanted, then launch what is wanted but not in flight.",
        "Free before you launch, or `limit + 1` units are in flight for a moment. Then "
        "`unit.wait()` and `yield unit`: the caller computes while the generator is suspended "
        "there. After the loop, free what is left.",
    ),
)

SIZE = 64  # elements of each rank's shard of a unit
WORLD = 3
# Which units compute, by letter, and the limit.
CASES = (
    ("abcd", 2), ("abccba", 2), ("abccba", 1), ("abcdeedcba", 3), ("abcdeedcba", 9),
    ("abacbdab", 2), ("abacbdab", 3), ("abc", 3), ("aab", 1), ("aba", 1), ("a", 2), ("", 2),
)  # fmt: skip
AGAIN = "a unit that was whole is freed and gathered again: keep what is wanted next"
ABSENT = {
    "not waited for": "call `wait` before you yield the unit",
    "not in flight": "it was freed, or never launched, when the caller computes: write a "
    "generator, and free a unit after it has computed",
}
EARLY = "a unit is waited for before its turn: wait for the one that is yielded, and no other"


# --- what runs on the ranks ----------------------------------------------------------------------
class Recorded:
    """A unit with a real all-gather, which writes down what is done with it.

    Args:
        name: a letter.
        shard: this rank's part of its weights.
        group: the ranks.
        book: where all units of one case write `launch a`, `wait a`, `compute a`, `free a`.
    """

    def __init__(self, name: str, shard: torch.Tensor, group: Any, book: list[str]) -> None:
        self.name, self.shard, self.group, self.book = name, shard, group, book
        self.whole: torch.Tensor | None = None
        self.work: Any = None
        self.waited = False

    def launch(self) -> None:
        """Starts the all-gather, into memory that holds NaN."""
        if self.whole is not None:
            raise RuntimeError(f"unit {self.name} is launched, but it is in flight already")
        self._note("launch")
        self.whole = torch.full((self.group.size * SIZE,), torch.nan, dtype=self.shard.dtype)
        self.work = all_gather(self.whole, self.shard, self.group, async_op=True)

    def wait(self) -> None:
        """Returns when the weights are whole."""
        if self.whole is None:
            raise RuntimeError(f"unit {self.name} is waited for, but it is not in flight")
        self._note("wait")
        self.work.wait()
        self.waited = True

    def free(self) -> None:
        """Gives the memory back."""
        if self.whole is None:
            raise RuntimeError(f"unit {self.name} is freed, but it is not in flight")
        self._note("free")
        self.work.wait()  # the memory must not go while it is written to
        self.whole, self.work, self.waited = None, None, False

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        """Something with all weights; NaN if they are not there."""
        self._note("compute")
        if self.whole is None or not self.waited:
            self._note("not waited for" if self.whole is not None else "not in flight")
            return torch.full_like(x, torch.nan)
        return step(x, self.whole.view(self.group.size, -1))

    def _note(self, what: str) -> None:
        self.book.append(f"{what} {self.name}")


def step(x: torch.Tensor, shards: torch.Tensor) -> torch.Tensor:
    """What a unit computes; which rank's shard is which matters."""
    weights = torch.arange(1, len(shards) + 1, dtype=x.dtype)
    return torch.tanh(x + weights @ shards)


def drive(
    learner: Any, group: Any, shards: dict[str, torch.Tensor], x: torch.Tensor
) -> dict[str, Any]:
    """Goes through every order; returns what was done in each, and what came out."""
    books, results = [], []
    for order, limit in CASES:
        book: list[str] = []
        units = {name: Recorded(name, shards[name], group, book) for name in sorted(set(order))}
        y = x
        for unit in learner.prefetch([units[name] for name in order], limit):
            if not isinstance(unit, Recorded):
                raise TypeError(
                    f"prefetch yields the units themselves, not a {type(unit).__name__}"
                )
            y = unit.compute(y)
        books.append(book)
        results.append(y)
    return {"books": books, "results": results}


# --- what they must bring back -------------------------------------------------------------------
def _cases(run: Run) -> Iterator[tuple[str, int, str, int, int]]:
    """Order, limit, both in words, rank and number of each case, in turn."""
    for rank in range(WORLD):
        for number, (order, limit) in enumerate(CASES):
            yield order, limit, _case(order, limit), rank, number


def _case(order: str, limit: int) -> str:
    return f"(order {' '.join(order) or 'empty'}, limit {limit})"


def _gone_through(run: Run) -> tuple[Any, list[dict[str, torch.Tensor]], list[torch.Tensor]]:
    """The run, and what each rank was given."""
    shards = [{name: run.random(SIZE) * 0.1 for name in "abcde"} for _ in range(WORLD)]
    xs = [run.random(SIZE) for _ in range(WORLD)]
    inputs = [{"shards": own, "x": x} for own, x in zip(shards, xs, strict=True)]
    return run(drive, inputs, world=WORLD), shards, xs


def wanted(order: str, limit: int, place: int) -> str:
    """The first `limit` different units from a place on."""
    return "".join(list(dict.fromkeys(order[place:]))[:limit])


def launches(order: str, limit: int) -> str:
    """The units in the order in which they must be launched."""
    found, flight = "", ""
    for place in range(len(order)):
        now = wanted(order, limit, place)
        found += "".join(name for name in now if name not in flight)
        flight = now
    return found


def under_way(order: str, limit: int) -> list[str]:
    """For each place, which gathers travel while it computes: launched, and not waited for."""
    found: list[str] = []
    whole: set[str] = set()
    for place, name in enumerate(order):
        now = wanted(order, limit, place)
        whole = {other for other in whole if other in now} | {name}
        found.append("".join(other for other in now if other not in whole))
    return found


def flights(book: list[str], end: str = "free") -> Iterator[tuple[str, str]]:
    """After each entry of a book: the entry, and what is launched and not yet freed (or waited)."""
    flight = ""
    for entry in book:
        name = entry[-1]
        if entry.startswith("launch"):
            flight += name
        if entry.startswith(end):
            flight = flight.replace(name, "")
        yield entry, flight


def computing(book: list[str], end: str = "free") -> list[tuple[str, str]]:
    """The same for computations alone: which unit, and what is launched while it computes."""
    return [(e[-1], flight) for e, flight in flights(book, end) if e.startswith("compute")]


def _in_words(names: str) -> str:
    return " ".join(names) or "none"


@check("all units in order, each with its weights whole", points=3, code="E")
@diagnosis("launch, wait and yield every unit of `order`, in turn")
def check_values(run: Run) -> None:
    """E: what is computed from the weights, against one process."""
    result, shards, xs = _gone_through(run)
    for order, _, words, rank, number in _cases(run):
        book = result.outputs[rank]["books"][number]
        computed = "".join(entry[-1] for entry in book if entry.startswith("compute"))
        what = f"the order of computing {words}"
        run.equal(_in_words(computed), _in_words(order), what, rank=rank)
        for entry in book:
            why = entry[:-2]
            run.true(
                why not in ABSENT,
                f"unit {entry[-1]} computes while {why} {words}",
                rank=rank,
                cause=ABSENT.get(why, ""),
            )
        expected = xs[rank]
        for name in order:
            expected = step(expected, torch.stack([own[name] for own in shards]))
        what = f"the result {words}"
        run.close(result.outputs[rank]["results"][number], expected, what, rank=rank)


@check("the next gathers are under way while a unit computes", points=4, code="O")
@diagnosis("launch the next units before you yield")
def check_overlap(run: Run) -> None:
    """O: launched before the computation begins, waited for only after it has ended."""
    result, _, _ = _gone_through(run)
    for order, limit, words, rank, number in _cases(run):
        book = result.outputs[rank]["books"][number]
        for place, (name, flight) in enumerate(computing(book)):
            _check_flight(run, flight, wanted(order, limit, place), f"{name} {words}", rank)
        pairs = zip(computing(book, "wait"), under_way(order, limit), strict=False)
        for (name, found), right in pairs:
            early = {EARLY: _in_words(found)} if len(found) < len(right) else {}
            likely = early or {AGAIN: _in_words(found)}
            what = f"the gathers under way while {name} computes {words}"
            run.equal(_in_words(found), _in_words(right), what, rank=rank, likely=likely)


def _check_flight(run: Run, flight: str, right: str, what: str, rank: int) -> None:
    """Compares what is in flight during one computation."""
    missing = [name for name in right if name not in flight]
    extra = [name for name in flight if name not in right]
    said = {"rank": rank, "expected": _in_words(right), "measured": _in_words(flight)}
    run.true(
        not missing,
        f"while {what} computes, {' '.join(missing)} must be in flight as well",
        cause="it must be launched before the unit is yielded"
        if not extra
        else "a unit that has computed and is not wanted is kept in its place",
        **said,
    )
    run.true(
        not extra,
        f"while {what} computes, {' '.join(extra)} must not be in flight",
        cause="`limit` is the maximum: free what has computed and is not wanted",
        **said,
    )


@check("never more than `limit` units in flight, and none in the end", points=3, code="M")
@diagnosis("free what has computed and is not wanted next; then launch")
def check_limit(run: Run) -> None:
    """M: at every moment, also between two computations."""
    result, _, _ = _gone_through(run)
    for order, limit, words, rank, number in _cases(run):
        book = list(flights(result.outputs[rank]["books"][number]))
        most = max((len(flight) for _, flight in book), default=0)
        settled = max((len(flight) for entry, flight in book if "compute" in entry), default=0)
        cause = "it is launched before another is freed: free first" if settled <= limit else ""
        if most == len(set(order)):
            cause = "everything is in flight at once: respect `limit`, and free what has computed"
        run.at_most(most, limit, f"the number of units in flight {words}", rank=rank, cause=cause)
        left = book[-1][1] if book else ""
        run.equal(_in_words(left), "none", f"what is in flight in the end {words}", rank=rank)


@check("no unit is gathered twice, and all in the order of need", points=2, code="B")
@diagnosis("a unit that is in flight and wanted again stays; all ranks launch in the same order")
def check_launches(run: Run) -> None:
    """B: exact, from the ledger, and the launches one by one."""
    result, _, _ = _gone_through(run)
    for order, limit, words, rank, number in _cases(run):
        book = result.outputs[rank]["books"][number]
        found = "".join(entry[-1] for entry in book if entry.startswith("launch"))
        right = launches(order, limit)
        likely = {AGAIN: _in_words(found)} if len(found) > len(right) else {}
        what = f"the launches {words}"
        run.equal(_in_words(found), _in_words(right), what, rank=rank, likely=likely)
    count = sum(len(launches(*case)) for case in CASES)
    run.bytes(result, count * (WORLD - 1) * SIZE * 8, op="all_gather")
