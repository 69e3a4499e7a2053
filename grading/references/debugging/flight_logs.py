"""Hidden flight logs for find_desync: small jobs played out, and what one can misread in them."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from course_lib.grade.suite import Run

Group = tuple[int, ...]
Log = dict[str, Any]
Record = dict[str, Any]
Answer = tuple[str, Group, int, Group] | None
FEATURES = ("op", "dtype", "shape")
ENDS = ("finished", "raised", "killed")
OPS = ("all_reduce", "reduce_scatter", "all_gather")
DTYPES = ("float32", "bfloat16", "int64")
SHAPES = ((4, 6), (6, 4), (24,), (5,))


class Call(NamedTuple):
    """One line of a rank's program."""

    group: Group
    op: str
    dtype: str
    shape: Group
    waits: bool  # whether the program stands still until all have made it


# --- jobs ----------------------------------------------------------------------------------------
@dataclass
class Job:
    """What each rank is about to call, and where it breaks off.

    Attributes:
        plans: rank to its calls.
        ends: how its program ends after them.
        until: when the logs are taken.
        last: how many records a log keeps.
    """

    plans: dict[int, list[Call]]
    until: float
    last: int
    ends: dict[int, str] = field(default_factory=dict)

    def play(self, rng: random.Random) -> list[Log]:
        """Runs the job in its own time; returns the logs in no order."""
        logs: dict[int, Log] = {
            rank: {"rank": rank, "state": "running", "records": [], "made": {}}
            for rank in self.plans
        }
        begun: dict[tuple[Group, int], list[tuple[int, Record, bool]]] = {}
        due = [(self._work(rng, rank), rank) for rank in self.plans]
        heapq.heapify(due)
        while due and due[0][0] <= self.until:
            at, rank = heapq.heappop(due)
            log, plan = logs[rank], self.plans[rank]
            if not plan:
                log["state"] = self.ends.get(rank, "finished")
                continue
            call = plan.pop(0)
            seq = log["made"].get(call.group, 0)
            log["made"][call.group] = seq + 1
            state = "waiting" if call.waits else "under way"
            record = {"group": call.group, "seq": seq, "op": call.op, "dtype": call.dtype,
                      "shape": call.shape, "begin": at, "state": state}  # fmt: skip
            log["records"].append(record)
            waiting = begun.setdefault((call.group, seq), [])
            waiting.append((rank, record, call.waits))
            going = [] if call.waits else [rank]
            if len(waiting) == len(call.group):
                going += [other for other, _, stands in waiting if stands]
                for _, done, _ in waiting:
                    done["state"] = "finished"
            for other in going:
                heapq.heappush(due, (at + self._work(rng, other), other))
        for log in logs.values():
            log["records"] = log["records"][-self.last :]
        return rng.sample(list(logs.values()), len(logs))

    def _work(self, rng: random.Random, rank: int) -> float:
        """Seconds until the next call: now and then many."""
        return rng.uniform(0.1, 1.0) * (1 + rank / 8) * rng.choice((1,) * 11 + (12,))


def jobs(run: Run, count: int = 110) -> list[list[Log]]:
    """The logs of many jobs: healthy ones, and ones with one or two faults."""
    rng = random.Random(run.number(0, 2**31))
    every = [_job(rng) for _ in range(count)]
    every += [job for _ in range(8) for job in _accidents()]
    return [_at_work(), _waits_for_an_older_call(), *(job.play(rng) for job in every)]


def _at_work() -> list[Log]:
    """Rank 0 has a call under way that rank 1 lacks, computes, and will come to where 1 waits."""
    pair, world = (0, 1), (0, 1, 2)
    call = {"seq": 0, "op": OPS[0], "dtype": DTYPES[0], "shape": (4,), "begin": 1.0}
    ahead = {**call, "group": pair, "state": "under way"}
    logs = [{"rank": 0, "state": "running", "records": [ahead], "made": {pair: 1}}]
    for rank in (1, 2):
        stands = {**call, "group": world, "state": "waiting", "begin": 2.0 + rank}
        logs.append({"rank": rank, "state": "running", "records": [stands], "made": {world: 1}})
    return logs


def _waits_for_an_older_call() -> list[Log]:
    """Rank 0 began two calls and waits for the first, which rank 1 never made: it has ended."""
    first, second = (1, 0), (2, 0)
    call = {"op": OPS[0], "dtype": DTYPES[0], "shape": (4,), "seq": 0}
    records = [
        {**call, "group": first, "state": "waiting", "begin": 1.0},
        {**call, "group": second, "state": "under way", "begin": 2.0},
    ]
    return [
        {"rank": 0, "state": "running", "records": records, "made": {first: 1, second: 1}},
        {"rank": 1, "state": "raised", "records": [], "made": {}},
        {"rank": 2, "state": "running", "records": [], "made": {}},
    ]


def _accidents() -> list[Job]:
    """Four that chance seldom makes: a victim, a circle, a fault beside an older death, two deaths.

    In the last, the two that are missing stand in the group in descending order.
    """
    every, pair, near = (0, 1, 2, 3), (1, 3), (0, 1)
    world, side = (Call(group, OPS[0], DTYPES[0], (4,), True) for group in (every, pair))
    first = Call(near, OPS[0], DTYPES[0], (4,), False)
    turned = world._replace(group=(3, 2, 0, 1))
    other, begun = first._replace(op=OPS[1], shape=(8,)), world._replace(waits=False)
    return [
        Job({0: [world], 1: [world, side], 2: [], 3: [side, world]}, 1e9, 9, {2: "raised"}),
        Job({0: [world], 1: [side, world], 2: [world], 3: [world, side]}, 1e9, 9),
        Job({0: [begun, first], 1: [begun, other], 2: [], 3: [begun]}, 1e9, 9, {2: "killed"}),
        Job({0: [turned], 1: [turned], 2: [], 3: []}, 1e9, 9, {2: "killed", 3: "raised"}),
    ]


def _job(rng: random.Random) -> Job:
    world = rng.choice((2, 3, 4, 4, 5, 6, 6))
    ranks = rng.sample(range(10), world)  # as groups may have them: not ascending
    width = 2 if world in (4, 6) else world
    rows = [tuple(ranks[i : i + width]) for i in range(0, world, width)]
    columns = [tuple(ranks[i::width]) for i in range(width)] if width < world else []
    groups = [tuple(ranks), *rows, *columns]
    plans: dict[int, list[Call]] = {rank: [] for rank in ranks}
    for _ in range(rng.randint(8, 20)):
        call = Call(
            rng.choice(groups),
            rng.choice(OPS),
            rng.choice(DTYPES),
            rng.choice(SHAPES),
            rng.random() < 0.6,
        )
        for rank in call.group:
            plans[rank].append(call)
    job = Job(plans, rng.choice((6.0, 12.0, 24.0, 1e9, 1e9, 1e9)), rng.choice((3, 5, 8, 99)))
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _break(job, rng)
    return job


def _break(job: Job, rng: random.Random) -> None:
    """One fault, somewhere."""
    rank = rng.choice(list(job.plans))
    plan = job.plans[rank]
    place = rng.randrange(max(1, len(plan) - 1))
    fault = rng.choice(FEATURES * 2 + ("swap", "swap", "swap", "skip", *ENDS))
    if fault in FEATURES and plan:
        _differ(job, plan[place], fault, rng)
    elif fault == "swap" and len(plan) > 1:
        plan[place], plan[place + 1] = plan[place + 1], plan[place]
    elif fault == "skip" and plan:
        del plan[place]
    elif fault in ENDS:
        del plan[place:]
        job.ends[rank] = fault


def _differ(job: Job, call: Call, feature: str, rng: random.Random) -> None:
    """Some of the ranks give something else; another feature may differ along with it."""
    values: dict[str, tuple[Any, ...]] = {"op": OPS, "dtype": DTYPES, "shape": SHAPES}
    changes: dict[str, Any] = {
        feature: rng.choice(values[feature]),
        "shape": rng.choice((call.shape, (7, 7))),
    }
    for rank in rng.sample(call.group, rng.randint(1, len(call.group))):
        if call in job.plans[rank]:
            place = job.plans[rank].index(call)
            job.plans[rank][place] = call._replace(**changes)


# --- what is found in logs -----------------------------------------------------------------------
@dataclass(frozen=True)
class Reader:
    """How somebody reads logs; as it is, rightly.

    Attributes:
        key: what tells calls apart: `call`, `place` in the log, `seq` alone.
        order: which of several faults is named: `begin`, `last`, `seq`.
        odd: who is named: `few`, `many`, `all`, or who differs from the `lowest` rank.
        features: what is compared, in this order.
        pair: only the first two ranks of a group are compared.
        size: shapes are compared by their number of elements.
        gone: what is gone from the log was never made.
        late: who never comes: `circle`, `ended`, `stands`, `lags`.
        still: states in which a program stands still.
        ends: states of a program that has ended.
        sorts: faults of the three sorts come in order.
        victims: all ranks that never come are named, not only those that ended.
    """

    key: str = "call"
    order: str = "begin"
    odd: str = "few"
    features: tuple[str, ...] = FEATURES
    pair: bool = False
    size: bool = False
    gone: bool = False
    late: str = "circle"
    still: tuple[str, ...] = ("waiting",)
    ends: tuple[str, ...] = ENDS
    sorts: bool = True
    victims: bool = False

    def difference(self, made: dict[int, Record]) -> tuple[str, Group] | None:
        """What differs in one call, and who is odd."""
        ranks = sorted(made)[: 2 if self.pair else None]
        for feature in self.features:
            values = {rank: self._value(made[rank][feature]) for rank in ranks}
            if len(set(values.values())) > 1:
                return feature, tuple(self._odd(values))
        return None

    def _value(self, value: Any) -> Any:
        return math.prod(value) if self.size and isinstance(value, tuple) else value

    def _odd(self, values: dict[int, Any]) -> Iterable[int]:
        counts = [list(values.values()).count(value) for value in values.values()]
        usual = next(v for v, n in zip(values.values(), counts, strict=True) if n == max(counts))
        if self.odd == "lowest":
            usual = values[min(values)]
        if self.odd == "all":
            return values
        return [rank for rank in values if (values[rank] != usual) == (self.odd != "many")]

    def lacking(self, group: Group, seq: int, logs: list[Log]) -> set[int]:
        """The ranks of the group that have not begun the call."""
        count = self._still_there if self.gone else (lambda log, of: log["made"].get(of, 0))
        return {log["rank"] for log in logs if log["rank"] in group and count(log, group) <= seq}

    def _still_there(self, log: Log, group: Group) -> int:
        return max((r["seq"] + 1 for r in log["records"] if r["group"] == group), default=0)

    def never_coming(self, logs: list[Log]) -> set[int]:
        """The ranks that make no more calls: peeled off from the ones that are at work."""
        waits: dict[int, list[set[int]]] = {
            log["rank"]: [
                self.lacking(r["group"], r["seq"], logs)
                for r in log["records"]
                if r["state"] in self.still
            ]
            for log in logs
            if log["state"] not in self.ends
        }
        everybody = {log["rank"] for log in logs}
        if self.late == "lags":
            return everybody
        if self.late == "ended":
            return everybody - waits.keys()
        if self.late == "stands":
            return {rank for rank in everybody if any(waits.get(rank, [{-1}]))}
        going: set[int] = set()
        for _ in everybody:
            going |= {rank for rank, all_of in waits.items() if all(s <= going for s in all_of)}
        return everybody - going

    def find(self, logs: list[Log]) -> Answer:
        """The first fault, as the fields of a Finding."""
        calls: dict[Any, dict[int, Record]] = {}
        for log in logs:
            for place, record in enumerate(log["records"]):
                known = {
                    "call": (record["group"], record["seq"]),
                    "place": place,
                    "seq": record["seq"],
                }[self.key]
                calls.setdefault(known, {})[log["rank"]] = record
        ended = {log["rank"] for log in logs if log["state"] in self.ends}
        never = self.never_coming(logs)
        faults = [f for made in calls.values() for f in self._fault(made, logs, ended, never)]
        pick = max if self.order == "last" else min
        return pick(faults)[2] if faults else None

    def _fault(
        self, made: dict[int, Record], logs: list[Log], ended: set[int], never: set[int]
    ) -> Iterable[tuple[int, float, tuple[str, Group, int, Group]]]:
        """The fault of one call with its place among all faults, if there is one."""
        some, begin = made[min(made)], min(record["begin"] for record in made.values())
        begin = some["seq"] if self.order == "seq" else begin
        late = self.lacking(some["group"], some["seq"], logs)
        odd = self.difference(made)
        if odd:
            yield 1, begin, (odd[0], some["group"], some["seq"], odd[1])
        elif late & ended and not self.victims:
            ranks = tuple(sorted(late & ended))
            yield 2 if self.sorts else 1, begin, ("missing", some["group"], some["seq"], ranks)
        elif late & never:
            sort = (2 if self.victims else 3) if self.sorts else 1
            yield sort, begin, ("missing", some["group"], some["seq"], tuple(sorted(late & never)))


RIGHT = Reader()
WRONG = {
    "logs are ring buffers: compare calls with the same group and number, not at the same place":
        replace(RIGHT, key="place"),
    "numbers count again in every group: calls of different groups are compared":
        replace(RIGHT, key="seq"),
    "this is the last fault, not the first": replace(RIGHT, order="last"),
    "numbers of different groups cannot be compared: take the call that began first":
        replace(RIGHT, order="seq"),
    "these ranks did what most did: the others are odd": replace(RIGHT, odd="many"),
    "all ranks of the call are named": replace(RIGHT, odd="all"),
    "the lowest rank is taken for right: look at what most did": replace(RIGHT, odd="lowest"),
    "only two ranks are compared": replace(RIGHT, pair=True),
    "dtypes are not compared": replace(RIGHT, features=("op", "shape")),
    "shapes are not compared": replace(RIGHT, features=("op", "dtype")),
    "the dtype comes before the shape": replace(RIGHT, features=("op", "shape", "dtype")),
    "shapes with as many elements can differ": replace(RIGHT, size=True),
    "what is gone from the log was made: look into `made`": replace(RIGHT, gone=True),
    "a rank that is slow is no fault: it can still come": replace(RIGHT, late="lags"),
    "a rank that waits for one that can come will go on": replace(RIGHT, late="stands"),
    "ranks that wait for each other in a circle never go on": replace(RIGHT, late="ended"),
    "a program does not stand still in a call that is under way":
        replace(RIGHT, still=("waiting", "under way")),
    "a program that has finished makes no more calls": replace(RIGHT, ends=("raised", "killed")),
    "only one that raised is taken for ended": replace(RIGHT, ends=("raised",)),
    "a call that ranks made differently comes before one that is missing":
        replace(RIGHT, sorts=False),
    "who waits is a victim of the one that ended": replace(RIGHT, victims=True),
}  # fmt: skip
