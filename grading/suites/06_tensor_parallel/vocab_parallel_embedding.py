"""VocabParallelEmbedding: one process's rows and gradients, one all-reduce, V/N rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from course_lib.trace import wire_bytes
from course_lib.trace.memory import LiveMemory
from grading.references.data_parallel.training import explained

EXERCISE = Exercise(
    title="An embedding cut along the vocabulary",
    core=True,
    minutes=20,
    order=5,
    defines=("VocabParallelEmbedding",),
    hints=(
        "A token's place in your slice is `tokens - first`, where `first` is the number of rows "
        "that the ranks before you have. Which of these places are your rows, and what would "
        "Python do with a negative one?",
        "Make the mask `(local >= 0) & (local < len(self.weight))`. Look up only the masked "
        "tokens, and write their rows into a tensor of zeros: `rows[mine] = "
        "self.weight[local[mine]]`. That also works for a rank without rows.",
        "`weight.tensor_split(group.size)` gives all slices: yours is at `group.index`, and "
        "`first` is the sum of the lengths before it. `reduce_from_group(rows, group)` adds up "
        "forward and sends nothing backward. Clone the slice before it becomes the parameter.",
    ),
)

PAIRS = [[0, 2], [1, 3]]  # groups in which index and rank differ
REASON = "A rank that owns none of the tokens still takes part in the all-reduce."
BIG, WIDTH = 1024, 16  # of the embedding whose bytes are measured, on 4 ranks
TOKENS, ITEM = 12, 4  # and the bytes of one of its numbers


# --- what runs on the ranks ----------------------------------------------------------------------
def _whole(values: torch.Tensor) -> nn.Embedding:
    return nn.Embedding.from_pretrained(values.clone(), freeze=False)


def drive(
    learner: Any,
    group: Any,
    values: torch.Tensor,
    tokens: torch.Tensor,
    slopes: torch.Tensor,
    parts: list[list[int]],
) -> dict[str, Any]:
    """Looks up tokens in three shapes; two backwards; a step, and the tokens once more."""
    if parts:
        group = group.split(parts, "tp")
    full = _whole(values)
    module = learner.VocabParallelEmbedding(full, group)
    found: dict[str, Any] = {"names": [name for name, _ in module.named_parameters()]}
    found["trains"] = full.weight.requires_grad
    weight = module.weight
    found["weight"] = weight.detach().clone()
    given = tokens.clone()
    rows = module(given)
    found["rows"], found["tokens"] = rows.detach().clone(), given
    if rows.requires_grad:  # without it, a rank that has no row is right none the less
        (rows * slopes).sum().backward()
    found["grad"] = torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
    weight.grad = None
    row = module(tokens[0, 0].clone())  # which one rank has
    if row.requires_grad:
        row.sum().backward()
    found["one"] = None if weight.grad is None else weight.grad.clone()
    with torch.no_grad():
        weight -= 1
        found["flat"] = module(tokens[0].clone())
        found["single"] = module(tokens[0, 0].clone())
        found["transposed"] = module(tokens.clone().t())
    return found


def drive_bytes(
    learner: Any, group: Any, values: torch.Tensor, tokens: torch.Tensor
) -> dict[str, Any]:
    """What is sent in each direction, and what is held: by the module, and at the peak."""
    ledger, size = group.ledger, values.nbytes
    with LiveMemory() as memory:
        full = _whole(values)
        module = learner.VocabParallelEmbedding(full, group)
        del full
        found: dict[str, Any] = {"held": memory.settle(size * 9 // 8 // group.size)}
        memory.peak, begin = memory.now, len(ledger.events)
        rows = module(tokens)
        found["dtype"], between = rows.dtype, len(ledger.events)
        rows.sum().backward()
        found["peak"] = memory.peak
    calls = [[event.op, event.payload] for event in ledger.events]
    found["forward"], found["backward"] = calls[begin:between], calls[between:]
    return found


# --- what they must bring back -------------------------------------------------------------------
class Case:
    """A run on a world, and what one process makes of the same numbers.

    Args:
        run: of the check.
        world: ranks.
        few: a vocabulary of two tokens.
        parts: groups that the world is cut into; () for one of all.
    """

    def __init__(
        self, run: Run, world: int, few: bool = False, parts: Sequence[Sequence[int]] = ()
    ) -> None:
        self.parts = list(parts) or [list(range(world))]
        self.size = len(self.parts[0])
        self.few, width = few, run.number(3, 6)
        self.count = 2 if few else 12 * run.number(1, 3) + 1  # 1 left over for 2, 3 and 4 ranks
        self.values = run.random((self.count, width))
        self.tokens = [self._tokens(run) for _ in self.parts]
        self.slopes = run.random((*self.tokens[0].shape, width))
        given = {"values": self.values, "slopes": self.slopes, "parts": list(parts)}
        inputs = [{**given, "tokens": self.tokens[self.group(rank)]} for rank in range(world)]
        self.result = explained(run, drive, inputs, world, REASON)
        self.name = f"({self.size} ranks, {self.count} rows)"

    def _tokens(self, run: Run) -> torch.Tensor:
        """Two lines: the ends of every slice, and tokens that may come twice."""
        cuts = torch.arange(self.count).tensor_split(self.size)
        ends = torch.cat([part[[0, -1]] for part in cuts if len(part)])
        return torch.stack([run.integers(0, self.count, len(ends)), ends])

    def group(self, rank: int) -> int:
        """Which of the groups a rank is in."""
        return next(i for i, ranks in enumerate(self.parts) if rank in ranks)

    def ranks(self) -> Iterator[tuple[int, int, torch.Tensor, dict[str, Any]]]:
        """(rank, its index in its group, its tokens, what it brought back)."""
        for rank, found in enumerate(self.result.outputs):
            group = self.group(rank)
            yield rank, self.parts[group].index(rank), self.tokens[group], found

    def part(self, rows: torch.Tensor, index: int) -> torch.Tensor:
        """A member's rows of a tensor like the embedding."""
        return rows.tensor_split(self.size)[index]

    def owned(self, rows: torch.Tensor, tokens: torch.Tensor, index: int) -> torch.Tensor:
        """The tokens' rows where this member has them, else zeros."""
        ids = self.part(torch.arange(self.count), index)
        return rows[tokens] * torch.isin(tokens, ids).unsqueeze(-1)

    def unmasked(self, rows: torch.Tensor, tokens: torch.Tensor, how: str) -> torch.Tensor:
        """The sum over the members if others' tokens give some row of theirs, not zeros."""
        total = torch.zeros(*tokens.shape, rows.shape[1], dtype=rows.dtype)
        for ids in torch.arange(self.count).tensor_split(self.size):
            if len(ids):
                inside = torch.where(torch.isin(tokens, ids), tokens, ids[0])
                near = {
                    "first": inside,
                    "clamp": tokens.clamp(int(ids[0]), int(ids[-1])),
                    "wrap": ids[(tokens - ids[0]) % len(ids)],
                }[how]
                total += rows[near]
        return total

    def gradient(self, tokens: torch.Tensor) -> torch.Tensor:
        """One process's gradient of the whole embedding."""
        flat = self.slopes.flatten(0, 1)
        return torch.zeros_like(self.values).index_add(0, tokens.flatten(), flat)

    def likely(
        self, rows: torch.Tensor, tokens: torch.Tensor, index: int
    ) -> dict[str, torch.Tensor]:
        """Known wrong outputs of one member."""
        return {
            "only this rank's rows: the all-reduce is missing": self.owned(rows, tokens, index),
            "the mean over the ranks: each row has one owner, so add up": rows[tokens] / self.size,
            "other ranks' tokens give this rank's row 0 instead of zeros":
                self.unmasked(rows, tokens, "first"),
            "other ranks' tokens give the nearest row of this rank instead of zeros":
                self.unmasked(rows, tokens, "clamp"),
            "other ranks' tokens wrap around to rows of this rank; they must give zeros":
                self.unmasked(rows, tokens, "wrap"),
        }  # fmt: skip


def _rows(run: Run, case: Case) -> None:
    """Parameter, output, untouched tokens, and outputs after a step."""
    for rank, index, _, found in case.ranks():
        run.equal(found["names"], ["weight"], "the list of parameters", rank=rank)
        run.true(
            found["trains"],
            "`full.weight` needs no gradient any more",
            rank=rank,
            cause="detach the slice alone",
        )
        known = (
            {"the slice of the global rank: count by `group.index`": case.part(case.values, rank)}
            if rank < case.size
            else {}
        )
        what = f"weight {case.name}"
        run.equal(found["weight"], case.part(case.values, index), what, rank=rank, likely=known)
    for rank, index, tokens, found in case.ranks():
        likely = case.likely(case.values, tokens, index)
        what = f"the output {case.name}"
        run.close(found["rows"], case.values[tokens], what, rank=rank, likely=likely)
        run.true(
            torch.equal(found["tokens"], tokens),
            "the tokens were changed in place",
            rank=rank,
            cause="the caller still needs them: make a new tensor",
        )
        later = case.values - 1
        for name, shown in (
            ("single", tokens[0, 0]),
            ("flat", tokens[0]),
            ("transposed", tokens.t()),
        ):
            likely = {
                **case.likely(later, shown, index),
                "the rows are those before the step: look up in `weight`": case.values[shown],
            }
            what = f"the output for {name} tokens, after a step"
            run.close(found[name], later[shown], what, rank=rank, likely=likely)


@check("the tokens' rows on 1–4 ranks, vocabularies that do not divide", points=4, code="E")
@diagnosis("a token's place in the slice is `tokens - first`; `first` counts the rows before it")
def check_rows(run: Run) -> None:
    """E: the ends of all slices, repeated tokens, one and two dims; groups that are no world."""
    for world in (1, 2, 3, 4):
        _rows(run, Case(run, world))
    _rows(run, Case(run, 4, parts=PAIRS))


@check("the gradient of each slice", points=3, code="E")
@diagnosis("every rank has the whole gradient of the output, and uses the part for its own rows")
@in_part
def check_gradient(run: Run) -> None:
    """E: the rows of one process's gradient."""
    for world, parts in ((1, ()), (2, ()), (3, ()), (4, ()), (4, PAIRS)):
        case = Case(run, world, parts=parts)
        for rank, index, tokens, found in case.ranks():
            right = case.part(case.gradient(tokens), index)
            run.close(found["grad"], right, f"weight.grad {case.name}", rank=rank, likely={
                "N times too large: the output is replicated, so its gradient needs no all-reduce":
                    right * case.size,
                "divided by N: nothing is averaged here": right / case.size,
                "no gradient reaches the weight: autograd must see through the all-reduce":
                    right * 0,
            })  # fmt: skip
            row = torch.zeros_like(case.values)
            row[tokens[0, 0]] = 1
            what = f"weight.grad after a single token {case.name}"
            run.true(
                found["one"] is not None,
                f"{what} is missing",
                rank=rank,
                expected="zeros on a rank that has other rows",
                cause="a rank that has none of the tokens has no graph, and so no backward",
            )
            run.close(found["one"], case.part(row, index), what, rank=rank)


@check("a vocabulary of two on 3 and 4 ranks", points=2, code="E")
@diagnosis("a slice without rows has nothing to look up, not even row 0")
def check_few(run: Run) -> None:
    """E: fewer rows than ranks."""
    for world in (3, 4):
        case = Case(run, world, few=True)
        _rows(run, case)
        for rank, index, tokens, found in case.ranks():
            right = case.part(case.gradient(tokens), index)
            run.close(found["grad"], right, f"weight.grad {case.name}", rank=rank)


def _measured(run: Run) -> Any:
    values = run.random((BIG, WIDTH), torch.float32)
    inputs = {"values": values, "tokens": run.integers(0, BIG, (3, TOKENS // 3))}
    return explained(run, drive_bytes, inputs, 4, REASON)


@check("one all-reduce of the output forward, nothing backward", points=2, code="B")
@diagnosis("send the rows of the tokens, never the rows of the embedding")
def check_bytes(run: Run) -> None:
    """B: exact, from the ledger; in float32."""
    result, size = _measured(run), TOKENS * WIDTH * ITEM
    for found in run.each(result.outputs):
        likely = {
            "the whole embedding is gathered: send the tokens' rows instead": [
                ["all_gather", BIG * WIDTH * ITEM]
            ],
            "it was sent as float64: the rows have the dtype of `weight`": [
                ["all_reduce", 2 * size]
            ],
            "every rank's rows are gathered and added up here: all-reduce sends less": [
                ["all_gather", 4 * size]
            ],
        }
        what = "the list of calls in forward"
        run.equal(found["forward"], [["all_reduce", size]], what, likely=likely)
        likely = {"the gradient is already whole on every rank": [["all_reduce", size]]}
        run.equal(found["backward"], [], "the list of calls in backward", likely=likely)
        wide = {"the output has the dtype of `weight`": torch.float64}
        run.equal(found["dtype"], torch.float32, "the dtype of the output", likely=wide)
    run.bytes(result, [wire_bytes("all_reduce", size, 4, rank, ITEM)[0] for rank in range(4)])


@check("only the slice is kept", points=2, code="M")
@diagnosis("a rank must not keep the rows of other ranks")
def check_memory(run: Run) -> None:
    """M: what lives once `full` is gone, and the peak of a forward and backward."""
    share, slack = BIG * WIDTH * ITEM // 4, 12 * TOKENS * WIDTH * ITEM
    most = share + share // 8  # a list of one's own row numbers is all right
    for found in run.each(_measured(run).outputs):
        run.at_most(
            found["held"],
            most,
            "bytes held by the module",
            cause="the whole embedding is still alive: a slice is a view of it until it is "
            "cloned, and `full` must not be kept",
        )
        cause = "the whole embedding is there again: was it gathered?"
        run.at_most(found["peak"], 3 * share + slack, "bytes at the peak of a step", cause=cause)
