"""global_loss_and_tokens: one process's mean over all tokens, on every rank of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch

from course_lib.comm import AXES, Mesh, axis_lines, coordinates
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.data_parallel.training import explained

EXERCISE = Exercise(
    title="The loss of a whole batch, on every rank of a mesh",
    core=True,
    minutes=20,
    order=20,
    hints=(
        "For each of the two numbers, ask: which ranks have a part of it that no other rank has, "
        "and which ranks need to know it? Targets are on all stages, losses only on one.",
        "Count on every rank, and sum the counts over dp × ep × cp as int64: over pp or tp the "
        "same tokens would be counted again. Sum the losses over pp as well: stages without any "
        "add 0, and so learn the sum.",
        '`all_reduce(tokens, mesh["dp", "ep", "cp"])`, with `tokens` an int64 tensor; '
        '`all_reduce(total, mesh["pp", "dp", "ep", "cp"])`, with `total` a float64 tensor that '
        "begins at 0 on every rank; then `total / tokens`, and nothing else is divided.",
    ),
)

IGNORED = -100
MICRO = 3  # micro-batches
MOST = 32  # bytes that a rank may give to its collectives
DATA, ALL_BUT_TP = ("dp", "ep", "cp"), ("pp", "dp", "ep", "cp")
ALONE = "Every rank calls every collective of its groups: a stage without losses adds 0"


class Layout(NamedTuple):
    """A mesh, and where on pp the losses are."""

    sizes: dict[str, int]
    last: int  # index of the last stage's rank on pp
    dtype: torch.dtype = torch.float64  # of the losses
    many: int = 0  # about as many tokens in one more micro-batch, all counted

    def __str__(self) -> str:
        return "(" + " × ".join(f"{axis} {n}" for axis, n in self.sizes.items() if n > 1) + ")"


def _layout(last: int, dtype: torch.dtype = torch.float64, **sizes: int) -> Layout:
    return Layout({axis: sizes.get(axis, 1) for axis in AXES}, last, dtype)


LAYOUTS = (
    _layout(0, pp=2, dp=2),
    _layout(1, pp=2, tp=2),
    _layout(0, torch.float32, ep=2, cp=2),
    _layout(0, dp=3)._replace(many=8_388_609),  # three times that is beyond 2^24
)


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    sizes: dict[str, int],
    losses: list[torch.Tensor],
    targets: list[torch.Tensor],
    many: int,
) -> dict[str, Any]:
    """One call; the targets are views that are not contiguous."""
    mesh = Mesh(group, sizes)
    for axes in (DATA, ALL_BUT_TP):
        mesh[axes]
    views = [target.t() for target in targets]
    if many:
        views.append(torch.zeros((), dtype=torch.int64).expand(1, many))
    given, before = list(views), [target.clone() for target in targets]
    own = [loss.clone() for loss in losses]
    answer = learner.global_loss_and_tokens(own, given, mesh)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError(f"global_loss_and_tokens must return (loss, tokens), not {answer!r}")
    same = [*map(id, given)] == [*map(id, views)] and _equal(targets, before)
    kept = {"losses": _equal(own, losses), "targets": same}
    return {"loss": answer[0], "tokens": answer[1], "kept": kept}


def _equal(found: list[torch.Tensor], before: list[torch.Tensor]) -> bool:
    """Whether a list has the same numbers as before."""
    return len(found) == len(before) and all(map(torch.equal, found, before))


# --- what they must bring back -------------------------------------------------------------------
class Sums(NamedTuple):
    """Of the micro-batches on one place of dp × ep × cp."""

    losses: list[float]
    counts: list[int]
    slots: int  # targets, counted or not


class Case:
    """A layout, its hidden batch, and what came back.

    Args:
        run: of the check.
        layout: the mesh.
    """

    def __init__(self, run: Run, layout: Layout) -> None:
        self.layout, self.sizes = layout, layout.sizes
        world = layout.sizes["pp"] * self.size(DATA) * layout.sizes["tp"]
        self.places = [coordinates(rank, layout.sizes) for rank in range(world)]
        self.lines = axis_lines(DATA, layout.sizes)
        batches = [self._micro_batches(run, place) for place in range(self.size(DATA))]
        odd = sum(int((targets != IGNORED).sum()) for batch in batches for targets, _ in batch) % 2
        self.many = layout.many + odd * (layout.many > 0)  # an odd sum: float32 has even ones only
        self.sums = [self._sums(batch) for batch in batches]
        self.run, self.inputs = run, list[dict[str, Any]]()
        for rank in range(world):
            mine = batches[self.place(rank)]
            last = self.places[rank]["pp"] == layout.last
            losses = [loss for _, loss in mine] + [torch.ones(())] * (self.many > 0)
            self.inputs.append(
                {
                    "sizes": layout.sizes,
                    "losses": losses * last,
                    "many": self.many,
                    "targets": [target for target, _ in mine],
                }
            )

    @cached_property
    def result(self) -> Any:
        """What came back; the run is made when it is first looked at."""
        return explained(self.run, drive, self.inputs, len(self.inputs), ALONE)

    def size(self, axes: Sequence[str]) -> int:
        """How many ranks differ in these axes alone."""
        return int(torch.tensor([self.sizes[axis] for axis in axes]).prod())

    def place(self, rank: int) -> int:
        """The rank's place among those with other tokens."""
        return next(line.index(rank) for line in self.lines if rank in line)

    def _micro_batches(self, run: Run, place: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Targets, transposed, and the sum of their losses; one micro-batch counts no token."""
        found = []
        for number in range(MICRO):
            shape = (run.number(3, 6), 2 + number)
            targets, losses = run.integers(0, 9, shape), run.random(shape).abs() + 0.1
            padding = run.random(shape) > (number - 1) * 0.8 + 0.3
            if number == place % MICRO:
                padding[:] = True
            targets[padding] = IGNORED
            found.append((targets, losses[~padding].sum().to(self.layout.dtype)))
        return found

    def _sums(self, batch: list[tuple[torch.Tensor, torch.Tensor]]) -> Sums:
        counts = [int((targets != IGNORED).sum()) for targets, _ in batch]
        slots, more = sum(targets.numel() for targets, _ in batch), self.many > 0
        return Sums(
            [float(loss) for _, loss in batch] + [1.0] * more,
            counts + [self.many] * more,
            slots + self.many,
        )

    def ranks(self) -> Iterator[tuple[int, bool, dict[str, Any]]]:
        """Every rank, whether it has the last stage, and what it returned."""
        for rank, output in enumerate(self.run.each(self.result.outputs)):
            yield rank, self.places[rank]["pp"] == self.layout.last, output

    def over(self, rank: int, axes: Sequence[str]) -> tuple[float, int]:
        """Loss and tokens of the places that differ from this rank's in these axes alone."""
        line = next(line for line in axis_lines(axes, self.sizes) if rank in line)
        every = [self.sums[self.place(other)] for other in line]
        return sum(sum(s.losses) for s in every), sum(sum(s.counts) for s in every)

    def tokens(self) -> int:
        """All that count, in one process."""
        return sum(sum(sums.counts) for sums in self.sums)

    def above_0(self) -> int:
        """Targets above 0, each place of dp × ep × cp once."""
        once = {self.place(rank): given["targets"] for rank, given in enumerate(self.inputs)}
        return sum(int((t > 0).sum()) for targets in once.values() for t in targets)

    def loss(self) -> torch.Tensor:
        """The mean over all of them, in one process."""
        return _number(sum(sum(sums.losses) for sums in self.sums) / self.tokens())

    # --- known mistakes --------------------------------------------------------------------------
    def wrong_tokens(self, rank: int) -> dict[str, int]:
        """Numbers of tokens that known mistakes give."""
        right, pp, tp = self.tokens(), self.sizes["pp"], self.sizes["tp"]
        return {
            "ranks of tp have the same tokens: they were counted tp times": right * tp,
            "every stage has the same targets: the tokens were counted pp times": right * pp,
            "counted pp × tp times: this sums over all ranks, many of which have the same tokens":
                right * pp * tp,
            "only the last stage has learnt it": 0,
            "ignored targets (-100) were counted": sum(sums.slots for sums in self.sums),
            "targets of 0 were not counted: a target does not count if it is -100": self.above_0(),
            **{f"ranks of {axis} have other tokens: they were left out":
               self.over(rank, [other for other in DATA if other != axis])[1] for axis in DATA},
            "these are the rank's own tokens": self.over(rank, ())[1],
            "counted in float32, which is exact up to 16,777,216 only":
                int(torch.tensor(right, dtype=torch.float32)),
        }  # fmt: skip

    def wrong_losses(self, rank: int, found: Any) -> dict[str, torch.Tensor]:
        """Losses that known mistakes give; `found` is this rank's number of tokens."""
        right, tokens, data = float(self.loss()), self.tokens(), self.size(DATA)
        if type(found) is int and found not in (0, tokens):
            return {
                "the sum is right, but the number of tokens is not": _number(right * tokens / found)
            }
        sums = torch.tensor([s.losses for s in self.sums], dtype=torch.float64)
        counts = torch.tensor([s.counts for s in self.sums], dtype=torch.float64)
        slots = sum(s.slots for s in self.sums)
        (own, count), place = self.over(rank, ()), self.place(rank)
        left_out = {axis: self.over(rank, [a for a in DATA if a != axis]) for axis in DATA}
        means = {
            "a mean of the ranks' means: tokens of a rank with few of them weigh more":
                (sums.sum(1) / counts.sum(1)).mean(),
            "a mean of the micro-batches' means: tokens of a short one weigh more":
                (sums / counts).mean(),
            "a mean of the micro-batches' means, of those that have a token":
                (sums / counts.clamp(min=1)).mean(),
            "a mean of the micro-batches' means, each over all ranks":
                (sums.sum(0) / counts.sum(0)).mean(),
        }  # fmt: skip
        first = self.places[rank]["pp"] == self.layout.last < self.sizes["pp"] - 1
        untold = "the ranks with the last index on pp were taken, but here others have the losses"
        values = {
            untold if first else "only the last stage has learnt it": 0.0,
            "divided by the number of ranks of dp × ep × cp as well: the number of tokens is the "
            "whole denominator": right / data,
            "divided by the number of micro-batches as well": right / len(self.sums[0].losses),
            "ignored targets (-100) were counted": right * tokens / slots,
            "ranks of tp have the same losses: they were added up tp times":
                right * self.sizes["tp"],
            "the sum of the losses: divide by the number of tokens": right * tokens,
            **{f"ranks of {axis} have other tokens: they were left out": loss / max(1, n)
               for axis, (loss, n) in left_out.items()},
            **{f"the losses of ranks of {axis} were left out": loss / tokens
               for axis, (loss, _) in left_out.items()},
            "this is the rank's own mean": own / max(1, count),
            "this is the rank's own part": own / tokens,
            "this is the last micro-batch's part": self.sums[place].losses[-1] / tokens,
        }  # fmt: skip
        return {why: _number(float(value)) for why, value in (means | values).items()}


def _number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _cases(run: Run) -> list[Case]:
    """All layouts; in every check the same, so that each runs once."""
    return [Case(run, layout) for layout in LAYOUTS]


def _check_tokens(run: Run, cases: list[Case]) -> None:
    for case in cases:
        what, right = f"the number of tokens {case.layout}", case.tokens()
        for rank, _, output in case.ranks():
            found = output["tokens"]
            run.true(
                type(found) is int,
                f"{what} is not an int",
                expected=str(right),
                measured=repr(found),
                cause="the second result is a Python int",
            )
            run.equal(found, right, what, likely=case.wrong_tokens(rank))
            cause = "others need them: leave the list and its tensors as they are"
            kept = output["kept"]["targets"]
            run.true(kept, "the targets that were given have changed", cause=cause)


def _check_loss(run: Run, on_last: bool) -> None:
    for case in _cases(run):
        for rank, last, output in case.ranks():
            if last == on_last:
                what = f"the loss on the {'last' if last else 'other'} stage {case.layout}"
                likely = case.wrong_losses(rank, output["tokens"])
                run.close(output["loss"], case.loss(), what, likely=likely)
                cause = "`all_reduce` and `+=` work in place: begin with a zero of your own"
                kept = output["kept"]["losses"]
                run.true(kept, "the losses that were given have changed", cause=cause)


@check("the number of tokens, on every rank", points=3, code="E")
@diagnosis("summed over dp × ep × cp, and over nothing else")
def check_tokens(run: Run) -> None:
    """E: meshes of four, on which every axis has its turn."""
    _check_tokens(run, _cases(run)[:3])


@check("the loss, on ranks of the last stage", points=4, code="E")
@diagnosis("all losses, divided by all tokens")
def check_loss(run: Run) -> None:
    """E: float64; some micro-batches have no token, some losses come in float32."""
    _check_loss(run, on_last=True)


@check("the loss, on all other stages", points=3, code="H")
@diagnosis("they take part in the sum with 0")
def check_told(run: Run) -> None:
    """H: also where the last stage is on index 0 of pp; and one loss is infinite."""
    _check_loss(run, on_last=False)
    case = Case(run, LAYOUTS[0])
    one = next(given for given in case.inputs if given["losses"])
    one["losses"][0] = torch.full_like(one["losses"][0], torch.inf)
    for _, _, output in case.ranks():
        run.true(
            not _number(float(output["loss"])).isfinite(),
            f"one rank has an infinite loss, and the loss is finite {case.layout}",
            measured=str(output["loss"]),
            cause="every rank needs to notice it: sum the losses as they are",
        )


@check("more tokens than float32 can count", points=2, code="E")
@diagnosis("add up int64 numbers, or float64")
def check_many(run: Run) -> None:
    """E: exact."""
    _check_tokens(run, _cases(run)[3:])


@check("a few bytes, and none of them over tp", points=3, code="B")
@diagnosis("sum on the rank before you send")
def check_bytes(run: Run) -> None:
    """B: what each rank gives to its collectives, from the ledger."""
    for case in _cases(run):
        layout = case.layout
        for ledger in run.each(case.result.ledgers):
            events = [event for event in ledger.events if len(event.group) > 1 and event.parent < 0]
            for event in events:
                others = {case.places[member]["tp"] for member in event.group}
                run.true(
                    len(others) == 1,
                    f"{event.label} over ranks that differ in tp {layout}",
                    expected='groups of the axes "pp", "dp", "ep" and "cp"',
                    measured=f"ranks {', '.join(map(str, event.group))}",
                    cause="ranks of tp have the same losses and tokens: leave tp out",
                )
            cause = "add up over the micro-batches first, then over the ranks"
            what = f"the number of bytes that go into collectives {layout}"
            run.at_most(sum(event.payload for event in events), MOST, what, cause=cause)
