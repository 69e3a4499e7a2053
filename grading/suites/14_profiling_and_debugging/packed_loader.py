"""packed_loader: every token once and in order, asked for in time, and resumed where it stopped."""

from __future__ import annotations

import json
from itertools import accumulate, islice
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="Packed rows, loaded ahead, resumed exactly",
    core=False,
    minutes=50,
    order=12,
    defines=("PackedLoader", "together"),
    hints=(
        "Keep three things: documents that were asked for, documents that are here and not used "
        "up, and where in the first of these the next row begins. A row needs T + 1 tokens of the "
        "stream, and the next row begins T tokens further on.",
        "Before each wait, ask until ahead + 1 documents are under way or there are no more; then "
        "wait for the first. The state is the number of the first document that is not used up, "
        "and a place in it. What was asked for beyond it is no part of the state.",
        "A deque `coming` of what fetch returned and a deque `open` of tensors. While "
        "sum(map(len, open)) - token <= T, append the next document. After the row, token += T, "
        "and while token >= len(open[0]) take it away: token -= its length, document += 1. "
        "`together`: row = next(loader, None), all-reduce (row is not None) with `min`.",
    ),
)

UNCOUNTED = -100
FAR = 1000  # documents are shorter, so a token says where it is from: number · FAR + place


# --- what runs on the ranks ----------------------------------------------------------------------
class Handle:
    """A document that was asked for."""

    def __init__(self, store: Store, number: int) -> None:
        self.store, self.number = store, number

    def wait(self) -> torch.Tensor:
        """The document's tokens."""
        self.store.log.append(["waits", self.number])
        return self.store.documents[self.number].clone()


class Store:
    """Documents, and who asked for which."""

    def __init__(self, lengths: list[int]) -> None:
        self.documents = [FAR * n + torch.arange(length) for n, length in enumerate(lengths)]
        self.log: list[Any] = []

    def fetch(self, number: int) -> Handle:
        """Asks for a document."""
        self.log.append(["asks", number])
        return Handle(self, number)


def _loader(learner: Any, group: Any, case: dict[str, Any]) -> tuple[Any, Store]:
    store = Store(case["lengths"])
    loader = learner.PackedLoader(
        store, case["order"], case["length"], case["ahead"], group.index, group.size
    )
    return loader, store


def drive(learner: Any, group: Any, cases: list[dict[str, Any]]) -> list[Any]:
    """For each case all rows, and the log of the store with a mark behind each row."""
    found = []
    for case in cases:
        loader, store = _loader(learner, group, case)
        rows = []
        for row in loader:
            rows.append(list(row))
            store.log.append(["row", len(rows)])
        again = next(loader, None)
        found.append({"rows": rows, "log": store.log, "ended": again is None})
    return found


def drive_resume(learner: Any, group: Any, case: dict[str, Any], stops: list[int]) -> list[Any]:
    """A loader's states after so many rows; a new one goes on from each, a used one from its."""
    found = []
    loader, _ = _loader(learner, group, case)
    states = [loader.state_dict(), *(loader.state_dict() for _ in loader)]
    for stop in stops:
        text = json.dumps(states[stop])
        again, store = _loader(learner, group, case)
        again.load_state_dict(json.loads(text))
        passed_on = json.dumps(again.state_dict())  # before a row was read
        rest = [list(row) for row in again]
        loader.load_state_dict(json.loads(passed_on))
        used = [list(row) for row in islice(loader, 2)]
        found.append({"text": text, "rest": rest, "asked": store.log, "used": used})
    return found


def drive_together(learner: Any, group: Any, case: dict[str, Any]) -> list[Any]:
    """All rows that all ranks have."""
    loader, _ = _loader(learner, group, case)
    rows = learner.together(loader, group)
    return [[*row, len(group.ledger.calls())] for row in rows]  # and how many calls came before


# --- what they must bring back -------------------------------------------------------------------
def _stream(case: dict[str, Any], index: int, size: int) -> list[int]:
    mine = case["order"][index::size]
    return [FAR * n + place for n in mine for place in range(case["lengths"][n])]


def _rows(stream: list[int], length: int) -> list[list[torch.Tensor]]:
    """The rows of a stream."""
    found = []
    for begin in range(0, len(stream) - length, length):
        tokens, targets = (stream[at : at + length] for at in (begin, begin + 1))
        begins = [False] + [token % FAR == 0 for token in tokens[1:]]
        found.append([
            torch.tensor(tokens),
            torch.tensor([UNCOUNTED if t % FAR == 0 else t for t in targets]),
            torch.tensor(list(accumulate(begins))),
        ])  # fmt: skip
    return found


def _cases(run: Run) -> list[dict[str, Any]]:
    """Rows longer and shorter than documents, empty ones, one token more or less at the end."""
    found = []
    for length, most in ((run.number(5, 9), 4), (run.number(5, 9), 30), (run.number(3, 6), 9)):
        for rest in (0, 1):
            lengths = [int(n) for n in run.integers(0, most, 40)]
            order = [int(n) for n in run.random(40).argsort()]
            for index in range(2):  # the last document of each rank decides what is left over
                mine = order[index::2]
                total = sum(lengths[n] for n in mine[:-1])
                lengths[mine[-1]] = (rest - total) % length + length
            ahead = run.number(0, 4)
            found.append({"lengths": lengths, "order": order, "length": length, "ahead": ahead})
    return found


def _words(case: dict[str, Any]) -> str:
    return f"of {case['length']} tokens from documents of up to {max(case['lengths'])}"


def _position(rows: list[Any], stream: list[int]) -> int:
    """Where in the stream rows begin; -1 if that cannot be said."""
    try:
        return stream.index(int(rows[0][0][0]))
    except (IndexError, ValueError, TypeError):
        return -1


@check("all tokens of a rank's documents, in rows, whole and in order", points=4, code="E")
@diagnosis("row k is tokens kT to kT + T - 1 of the stream, and one more must be there")
def check_tokens(run: Run) -> None:
    """E: on two ranks; long and short documents, empty ones; what is left at the end."""
    cases = _cases(run)
    for index, found in enumerate(run.each(run(drive, {"cases": cases}, world=2).outputs)):
        for case, output in zip(cases, found, strict=True):
            stream = _stream(case, index, 2)
            right = [row[0] for row in _rows(stream, case["length"])]
            longer = case["length"] + 1
            windows = [stream[at : at + case["length"]] for at in range(0, len(stream), longer)]
            likely = {
                "the last row is missing: one token more than a row is enough": right[:-1],
                "each row takes T + 1 tokens away: the last target is the next row's first token": [
                    torch.tensor(w) for w in windows if len(w) == case["length"]
                ],
            }
            run.true(output["ended"], "a loader that has ended gives a row when it is asked again")
            what = f"the tokens of the rows {_words(case)}"
            run.equal([row[0] for row in output["rows"]], right, what, likely=likely)


@check("targets and segments", points=3, code="E")
@diagnosis("-100 where the target begins a document; segments count from 0 in each row")
def check_boundaries(run: Run) -> None:
    """E: the other two tensors of the same rows."""
    cases = _cases(run)
    for index, found in enumerate(run.each(run(drive, {"cases": cases}, world=2).outputs)):
        for case, output in zip(cases, found, strict=True):
            stream = _stream(case, index, 2)
            right = _rows(stream, case["length"])
            whole = [
                torch.tensor(stream[at + 1 : at + 1 + case["length"]])
                for at in range(0, len(stream) - case["length"], case["length"])
            ]
            run.equal(
                [row[1] for row in output["rows"]],
                [row[1] for row in right],
                f"the targets of the rows {_words(case)}",
                likely={"the first token of a document is a target like any other": whole},
            )
            counted = [
                row[2] + (1 if int(row[0][0]) % FAR == 0 else 0) for row in right
            ]  # fmt: skip
            run.equal(
                [row[2] for row in output["rows"]],
                [row[2] for row in right],
                f"the segments of the rows {_words(case)}",
                likely={"a row that begins with a document has 1 there, and not 0": counted},
            )


@check("documents are asked for in time, and not too early", points=3, code="O")
@diagnosis("at each wait: this document and `ahead` more have been asked for, none behind them")
def check_ahead(run: Run) -> None:
    """O: what was asked for at each wait, and how many waits there were before each row."""
    cases = _cases(run)
    for index, found in enumerate(run(drive, {"cases": cases}, world=2).outputs):
        for case, output in zip(cases, found, strict=True):
            _judge_log(run, case, output["log"], index)


def _judge_log(run: Run, case: dict[str, Any], log: list[Any], index: int) -> None:
    mine = case["order"][index::2]
    until = list(accumulate(case["lengths"][n] for n in mine))
    asked: list[int] = []
    waited = 0
    for what, number in log:
        if what == "asks":
            asked.append(number)
        elif what == "waits":
            right = mine[: waited + 1 + case["ahead"]]
            cause = "the store is idle while the loader waits: ask for those behind it first"
            if len(asked) > len(right):
                cause = "these are in memory long before they are needed"
            run.true(
                asked == right and number == mine[waited],
                f"at wait {waited} for a document (ahead = {case['ahead']}) others have been "
                "asked for",
                rank=index,
                expected=str(right),
                measured=f"{asked}, waits for {number}",
                cause=cause,
            )
            waited += 1
        else:
            needed = 1 + sum(total < number * case["length"] + 1 for total in until)
            run.equal(waited, needed, f"the number of documents waited for up to row {number - 1}",
                      rank=index)  # fmt: skip


@check("stopped after any row and resumed: nothing lost, nothing twice", points=4, code="E")
@diagnosis("the state is where the next row begins, whatever has been read beyond that")
def check_resume(run: Run) -> None:
    """E: at the beginning, in the middle, at the end; through JSON; what is asked for again."""
    case = _cases(run)[2] | {"ahead": run.number(2, 5)}
    counts = [len(_rows(_stream(case, index, 2), case["length"])) for index in range(2)]
    stops = [0, 1, run.number(3, 6), min(counts) - 1, min(counts)]
    result = run(drive_resume, {"case": case, "stops": stops}, world=2)
    for index, found in enumerate(run.each(result.outputs)):
        stream, mine = _stream(case, index, 2), case["order"][index::2]
        rows = _rows(stream, case["length"])
        for stop, output in zip(stops, found, strict=True):
            right, here = rows[stop:], _position(output["rest"], stream)
            cause = ""
            if here > stop * case["length"]:
                cause = "tokens are lost: the state counts documents that were only asked for"
            elif 0 <= here < stop * case["length"]:
                cause = "tokens come twice: the state also needs the place in the document"
            run.true(
                len(output["rest"]) == len(right)
                and all(a.equal(b) for x, y in zip(output["rest"], right, strict=True)
                        for a, b in zip(x, y, strict=True)),
                f"the rows after a stop behind row {stop - 1} are not those of a run that goes on",
                expected=f"{len(right)} rows, from token {stop * case['length']} of the stream",
                measured=f"{len(output['rest'])} rows, from token {here}",
                cause=cause
            )  # fmt: skip
            what = f"two rows of a used loader with the state of one that was loaded at row {stop}"
            run.equal(output["used"], right[:2], what)
            run.at_most(len(output["text"]), 200, "the state's JSON, in characters",
                        cause="a state says where, and holds no tokens")  # fmt: skip
            used = sum(t <= stop * case["length"] for t in accumulate(
                case["lengths"][n] for n in mine))  # fmt: skip
            again = {n for what, n in output["asked"] if what == "asks"} & set(mine[:used])
            run.true(not again, "documents that are used up are asked for again",
                     measured=str(sorted(again)))  # fmt: skip


@check("three ranks end together", points=3, code="H")
@diagnosis("all ranks must know, before each row, whether every rank has one")
@in_part
def check_together(run: Run) -> None:
    """H: rows of the poorest rank, bytes of one number for each."""
    lengths = [run.number(0, 9) + 20 * (n % 3) for n in range(24)]
    case = {"lengths": lengths, "order": list(range(24)), "length": 11, "ahead": 2}
    result = run(drive_together, {"case": case}, world=3)
    rows = [_rows(_stream(case, index, 3), 11) for index in range(3)]
    fewest = min(len(each) for each in rows)
    for index, found in enumerate(run.each(result.outputs)):
        run.equal(len(found), fewest, "the number of rows",
                  likely={"this rank goes on alone": len(rows[index])})  # fmt: skip
        run.equal([row[0] for row in found], [row[0] for row in rows[index][:fewest]],
                  "the tokens of the rows")  # fmt: skip
    for found in run.each(result.outputs):
        run.equal([row[3] for row in found], list(range(1, fewest + 1)),
                  "the number of calls that were made before each row",
                  likely={"all rows are read before the first is given":
                          [fewest + 1] * fewest})  # fmt: skip
    for ledger in run.each(result.ledgers):
        calls = [(event.op, event.shape) for event in ledger.calls()]
        run.true(
            len(calls) == fewest + 1 and all(op == "all_reduce" for op, _ in calls)
            and all(torch.Size(shape).numel() == 1 for _, shape in calls),
            "more or other calls than one all-reduce of one number before each row, and at the end",
            expected=f"{fewest + 1} all-reduces of 1 number",
            measured=f"{len(calls)} calls: " + ", ".join(f"{op} {list(s)}" for op, s in calls[:4])
        )  # fmt: skip
