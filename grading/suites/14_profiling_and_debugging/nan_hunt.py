"""nan_hunt: the first module to make a bad value is named, and by every rank."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.debugging.planted_nan import COLUMNS, Net

EXERCISE = Exercise(
    title="Who made the first NaN",
    core=False,
    minutes=35,
    order=70,
    defines=("hunt",),
    hints=(
        "Write `finite(values)` for a tensor or a tuple first, then one function that both kinds "
        "of hook call: it gets a name, a pass, what was given and what was made. Count the calls: "
        "the number of a call says how early it was, on every rank alike.",
        "Hooks on all of `model.named_modules()`. A call whose `given` is finite and whose `made` "
        "is not goes into a list with its number. For a full backward hook what is given are the "
        "*output* gradients. Bind the name of each hook: `lambda ..., name=name: ...`.",
        "One int64 holds all: `number * group.size + group.index`, with a huge number on a rank "
        "that found nothing; all-reduce it with `min` on every rank, and `divmod` gives the number "
        "and the rank. All ranks have seen that call, so each can look up its name.",
    ),
)

WORLD = 3
Plant = tuple[str, str, bool]  # parameter (or `x`), value, whether all elements get it
Answer = tuple[int, str, str]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, x: torch.Tensor, size: list[int], cases: list[list[Plant]]
) -> dict[str, Any]:
    """One hunt for each case, in which this rank has its own plants."""
    torch.manual_seed(size[0])
    answers, left, runs, changed = [], 0, 0, 0

    def count(*_: Any) -> None:
        nonlocal runs
        runs += 1

    start = Net(*size).state_dict()
    for plants in cases:
        model, batch = Net(*size), x.clone()
        model.load_state_dict(start)
        with torch.no_grad():
            for name, value, everywhere in plants:
                target = batch if name == "x" else model.get_parameter(name)
                (target if everywhere else target.view(-1)[:1]).fill_(float(value))
        model.stem.register_forward_hook(count)  # somebody else's
        given = batch.clone()
        answer = learner.hunt(model, (batch.requires_grad_(), torch.arange(len(x))), group)
        answers.append(_with_index(answer, group))
        changed += not torch.equal(given.nan_to_num(), batch.detach().nan_to_num())
        for module in model.modules():
            left += len(module._forward_hooks) + len(module._backward_hooks)
    return {"answers": answers, "hooks": left, "runs": runs, "changed": changed}


def _with_index(answer: Any, group: Any) -> Any:
    """An answer as a list, with the index of the member whose rank it names; that is the case's."""
    if not isinstance(answer, (tuple, list)):
        return answer
    return [group.ranks.index(each) if each in group.ranks else each for each in answer]


# --- what they must bring back -------------------------------------------------------------------
class Case(NamedTuple):
    """What is planted, and who is to be named.

    Attributes:
        what: in words.
        plants: of each rank.
        answer: None if nothing is bad.
        likely: known wrong answers, under the sentences that explain them.
    """

    what: str
    plants: list[list[Plant]]
    answer: Answer | None
    likely: dict[str, Any]


FED = (
    "its input was bad already: a module makes a bad value if its output is bad and its inputs "
    "are good"
)
OWN = "this rank's own answer: all ranks must agree, with one collective"
LATE = "an infinity counts as well; the first NaN came later"
SILENT = "nothing was found: look at infinities, containers, tuples, and both passes"
LOWEST = "the lowest rank with a bad value, but another rank was earlier in the step"
OUTER = "the model holds all modules and ends after them: the first call counts, not the last"
BATCH = "the batch itself is bad: look at it before any module"
HIGHEST = "equally early ranks: the lowest of them is meant"


def forward_cases(last: int) -> list[Case]:
    """A bad weight, an infinite one, an overflow, the second part of a tuple; two faults."""
    bad, act = "blocks.1.linear", f"blocks.{last}.act"
    return [
        Case("a NaN in a weight of blocks.1.linear on rank 0",
             [[(bad + ".weight", "nan", False)], [], []], (0, bad, "forward"),
             {FED: [0, "blocks.1.split", "forward"]}),
        Case("an infinity in a bias of the stem on rank 2",
             [[], [], [("stem.bias", "inf", False)]], (2, "stem", "forward"),
             {LATE: [2, "blocks.0.norm", "forward"]}),
        Case(f"{act} is given 20, whose exponential float16 does not hold",
             [[], [(f"blocks.{last}.linear.bias", "20", True)], []], (1, act, "forward"), {}),
        Case("the second tensor that blocks.0.split returns is bad on rank 1",
             [[], [("blocks.0.split.scale", "nan", False)], []], (1, "blocks.0.split", "forward"),
             {"a tuple has several tensors: look at all": [1, "blocks.0", "forward"]}),
        Case("what plus gives is finite the first time and infinite the second, on rank 1",
             [[], [("once", "1e308", True), ("twice", "1e308", True)], []],
             (1, "plus", "forward"),
             {"a module that runs twice is looked at twice": [1, "", "forward"],
              "of the two names of a module, model.named_modules() has the first":
              [1, "again", "forward"]}),
        Case("NaNs in the head and in blocks.0.linear of one rank",
             [[("head.weight", "nan", False), ("blocks.0.linear.bias", "nan", False)], [], []],
             (0, "blocks.0.linear", "forward"),
             {"the last of them, not the first": [0, "head", "forward"]}),
    ]  # fmt: skip


def made_between(last: int) -> list[Case]:
    """Values that no layer made: the batch is bad, or a container computes between its layers."""
    inner = f"blocks.{last}"
    return [
        Case("a NaN in the batch of rank 1", [[], [("x", "nan", False)], []],
             (1, "inputs", "forward"),
             {BATCH: [1, "", "backward"], FED: [1, "stem", "forward"]}),
        Case("an infinity in the batch of rank 0", [[("x", "-inf", False)], [], []],
             (0, "inputs", "forward"), {LATE: [0, "stem", "forward"]}),
        Case("blocks.1 multiplies by infinity before its first layer",
             [[], [], [("blocks.1.before", "inf", False)]], (2, "blocks.1", "forward"),
             {FED: [2, "blocks.1.norm", "forward"]}),
        Case(f"{inner} multiplies two large numbers that its layers returned",
             [[(f"{inner}.split.scale", "1e307", False), (f"{inner}.linear.bias", "5", True)], [],
              []], (0, inner, "forward"), {SILENT: None, "a container computes too, and may be the "
             "first": [0, "head", "forward"]}),
        Case("the model itself multiplies the loss by NaN", [[], [("power", "nan", False)], []],
             (1, "", "forward"), {SILENT: None}),
    ]  # fmt: skip


def backward_cases(last: int) -> list[Case]:
    """A gradient that overflows, 0/0 in a layer, and in the model itself."""
    act = f"blocks.{last}.act"
    return [
        Case(f"the loss is so large that gradients overflow float16, first in {act}",
             [[], [("power", "1e9", False)], []], (1, act, "backward"),
             {SILENT: None, "the backward goes from the last block to the first":
              [1, "blocks.0.act", "backward"], FED: [1, f"blocks.{last}.split", "backward"]}),
        Case("the head is 0 on rank 0: the gradient of each length is 0/0",
             [[("head.weight", "0", True)], [], []], (0, "length", "backward"),
             {SILENT: None, FED: [0, "head", "backward"]}),
        Case("on rank 2 the model itself takes the root of 0, whose slope is infinite",
             [[], [], [("head.weight", "0", True), ("offset", "0", True)]], (2, "", "backward"),
             {FED: [2, "length", "backward"], SILENT: None}),
    ]  # fmt: skip


def several_ranks(last: int) -> list[Case]:
    """Faults on more than one rank: the earliest in the step, then the lowest rank."""
    nan = [(f"blocks.{place}.linear.bias", "nan", False) for place in (0, 1)]
    late = [("power", "1e9", False)]
    act = f"blocks.{last}.act"
    return [
        Case("rank 0 is bad in blocks.1, rank 2 in blocks.0", [[nan[1]], [], [nan[0]]],
             (2, "blocks.0.linear", "forward"),
             {LOWEST: [0, "blocks.1.linear", "forward"],
              "the rank of one and the name of another": [0, "blocks.0.linear", "forward"]}),
        Case("ranks 1 and 2 are bad in blocks.1", [[], [nan[1]], [nan[1]]],
             (1, "blocks.1.linear", "forward"), {HIGHEST: [2, "blocks.1.linear", "forward"]}),
        Case("rank 0 is bad in the backward, rank 1 in the head's forward",
             [late, [("head.weight", "inf", False)], []], (1, "head", "forward"),
             {LOWEST: [0, act, "backward"]}),
        Case("the same overflow in the backwards of ranks 1 and 2", [[], late, late],
             (1, act, "backward"), {HIGHEST: [2, act, "backward"]}),
        Case("rank 2 is bad in the last block's backward, rank 0 in the head's",
             [[("head.weight", "0", True)], [], late], (0, "length", "backward"), {}),
    ]  # fmt: skip


def all_cases(last: int) -> dict[str, list[Case]]:
    """The cases of every check, so that they share one run."""
    none = Case(
        "nothing is bad",
        [[], [], []],
        None,
        {"values are large, but finite": [0, "inputs", "forward"]},
    )
    return {"forward": forward_cases(last), "between": made_between(last), "clean": [none],
            "backward": backward_cases(last), "ranks": several_ranks(last)}  # fmt: skip


def _hunts(run: Run) -> tuple[Any, dict[str, list[Case]]]:
    """All cases on three ranks; a hidden width and depth, and another batch on each rank."""
    size = [run.number(4, 8), run.number(3, 6)]
    cases = all_cases(size[1] - 1)
    flat = [case for some in cases.values() for case in some]
    inputs = [
        {
            "x": run.random((run.number(3, 6), COLUMNS)),
            "size": size,
            "cases": [case.plants[rank] for case in flat],
        }
        for rank in range(WORLD)
    ]
    return run(drive, inputs, world=WORLD), cases


def _answers(run: Run, name: str) -> None:
    """Compares the answers of the cases of one check on all ranks."""
    result, cases = _hunts(run)
    begin = sum(len(cases[other]) for other in list(cases)[: list(cases).index(name)])
    for number, case in enumerate(cases[name], begin):
        first = case.answer[0] if case.answer else 0  # whose fault it is
        for rank in sorted(range(WORLD), key=lambda rank: (rank != first, rank)):
            _compare(run, case, result.outputs[rank]["answers"][number], rank)


def _compare(run: Run, case: Case, answer: Any, rank: int) -> None:
    """One answer of one rank; that of the rank where the fault is has been compared before."""
    right = list(case.answer) if case.answer else None
    likely = dict(case.likely)
    if case.answer and rank != case.answer[0]:
        likely = {OWN: None, OWN + ".": [rank, *case.answer[1:]], **likely}
    elif case.answer:
        likely[OUTER] = [case.answer[0], "", case.answer[2]]
        likely |= {SILENT: None}
    run.equal(answer, right, f"the answer where {case.what}", rank=rank, likely=likely)


@check("the forward: bad weights, infinities, overflows, tuples", points=3, code="E")
@diagnosis("the first call whose output is bad though its inputs are not, of all modules")
@in_part
def check_forward(run: Run) -> None:
    """E: faults of a layer."""
    _answers(run, "forward")


@check("a bad batch, and containers that compute between their layers", points=3, code="E")
@diagnosis("look at what went in as well: a module that is fed a NaN did not make it")
def check_between(run: Run) -> None:
    """E: values that no layer made."""
    _answers(run, "between")


@check("the backward: an overflow, and 0/0", points=3, code="E")
@diagnosis("in a full backward hook the output gradients came in and the input gradients go out")
def check_backward(run: Run) -> None:
    """E: the forward is finite on all ranks."""
    _answers(run, "backward")


@check("faults on several ranks: the earliest, then the lowest rank", points=3, code="E")
@diagnosis("compare how early, then which rank; every rank needs the winner's name")
@in_part
def check_ranks(run: Run) -> None:
    """E: other faults on other ranks, and the same answer on all of them."""
    _answers(run, "ranks")


@check("nothing bad: None, on one rank too, and no hook is left", points=1, code="E")
@diagnosis("remove all handles, also when nothing was found")
def check_clean(run: Run) -> None:
    """E: a clean step; worlds of 1 and 2; hooks that stay."""
    _answers(run, "clean")
    result, cases = _hunts(run)
    hunts = sum(map(len, cases.values()))
    for found in run.each(result.outputs):
        what = f"the number of hooks that were left on modules in {hunts} hunts"
        likely = {"hooks that were there before were removed": 0}
        run.equal(found["hooks"], hunts, f"{what} (each had one before)", likely=likely)
        run.equal(found["runs"], hunts, f"the number of forwards in {hunts} hunts")
        run.equal(found["changed"], 0, "the number of batches that were changed")
    for world in (1, 2):
        plants: list[Plant] = [("blocks.0.linear.bias", "-inf", True)]
        given = {"x": run.random((2, COLUMNS)), "size": [4, 2]}
        inputs = [
            {**given, "cases": [[], plants if rank == world - 1 else []]} for rank in range(world)
        ]
        right = [None, [world - 1, "blocks.0.linear", "forward"]]
        result = run(drive, inputs, world=world)
        for output, ledger in run.each(zip(result.outputs, result.ledgers, strict=True)):
            run.equal(output["answers"], right, f"the answers in a world of {world}")
            what = f"the number of collectives in 2 hunts in a world of {world}"
            run.equal(len(ledger.calls()), 2, what)


@check("one small collective per hunt, on every rank", points=2, code="B")
@diagnosis("put what must be known into one tensor of a few numbers")
def check_collective(run: Run) -> None:
    """B: calls and bytes, from the ledger."""
    result, cases = _hunts(run)
    hunts = sum(map(len, cases.values()))
    for ledger in run.each(result.ledgers):
        likely = {
            "one for each fact: put them into one tensor": 3 * hunts,
            "two: the rank and the place fit into one tensor": 2 * hunts,
        }
        what = f"the number of collectives in {hunts} hunts"
        run.equal(len(ledger.calls()), hunts, what, likely=likely)
        cause = "a few numbers are enough: names need not travel"
        for call in ledger.calls():
            gathered = WORLD if call.op == "all_gather" else 1
            what = f"the bytes that a rank contributes to the {call.op} of a hunt"
            run.at_most(call.payload // gathered, 64, what, cause=cause)
