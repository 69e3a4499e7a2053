"""What a pipeline's ranks must have found: the same stages as one model in one process.

Paper: Huang et al., "GPipe" (2019), section 2.2: the gradient does not depend on how many
micro-batches there are. Narayanan et al., "Megatron-LM" (2021), section 2.2, for the orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from course_lib.grade.suite import Run, RunFault
from grading.references.data_parallel.wrapper import alike
from grading.references.pipeline.stage_log import OUT, VOCABULARY, Values, loss, through

CAUSES = {
    "'NoneType' object": "a gradient is None: what comes in from another rank must require a "
    "gradient before the stage's forward, since it is a leaf of this rank's graph",
    "does not require grad": "backward needs the output with its graph: keep that one, and send "
    "its detach()",
    "a second time": "one output was sent backward twice: each micro-batch keeps its own",
    "Only Tensors of floating point": "only what came in from another rank needs a gradient; the "
    "first stage's inputs may be tokens",
    "SIGABRT": "gloo ends a process when a message is longer than the buffer for it: receive into "
    "torch.empty_like(like)",
    "Connection closed by peer": "what `isend` returned was dropped while the message was under "
    "way: keep it, and wait for it before you return",
}


# --- one process ---------------------------------------------------------------------------------
class Whole:
    """All stages and all cases in one process.

    Args:
        run: of the check; hidden sizes come from it.
        p: stages.
        counts: for each case how many micro-batches.
        width: of the borders; hidden if 0.
        rows: of a micro-batch; hidden if 0.
    """

    def __init__(
        self, run: Run, p: int, counts: Sequence[int], width: int = 0, rows: int = 0
    ) -> None:
        self.run, self.p, self.counts = run, p, counts
        width, inner = width or run.number(2, 6), run.number(2, 6)
        self.weights: list[Values] = []
        for stage in range(p):
            shapes = {"inner": (width, inner), "shift": (inner,), "gain": (width,),
                      "outer": (inner, width)}  # fmt: skip
            shapes |= {"table": (VOCABULARY, width)} if stage == 0 else {}
            shapes |= {"head": (width, OUT)} if stage == p - 1 else {}
            self.weights.append({name: run.random(shape) for name, shape in shapes.items()})
        self.cases = [self._case(count, rows or run.number(2, 5), width) for count in counts]

    def _case(self, count: int, rows: int, width: int) -> dict[str, Any]:
        tokens = [self.run.integers(0, VOCABULARY, (rows, 1)) for _ in range(count)]
        return {
            "inputs": [torch.cat([torch.full_like(t, k), t], 1) for k, t in enumerate(tokens)],
            "targets": [self.run.random((rows, OUT)) for _ in range(count)],
            "shape": [rows, 1 + width],
        }

    def given(self, stage: int, slow: bool = False, parts: Any = ()) -> dict[str, Any]:
        """What `drive` gets on the rank of a stage."""
        return {"weights": self.weights[stage], "cases": self.cases, "parts": list(parts),
                "slow": slow}  # fmt: skip

    def message(self, case: int) -> int:
        """Bytes of one message over a border."""
        rows, width = self.cases[case]["shape"]
        return int(8 * rows * width)

    def losses(self, case: int) -> list[float]:
        """Of each micro-batch."""
        given = self.cases[case]
        return [
            float(loss(self._through(self.weights, x), y))
            for x, y in zip(given["inputs"], given["targets"], strict=True)
        ]

    def gradients(self, case: int) -> list[Values]:
        """Of the whole batch in one piece, by stage."""
        given = self.cases[case]
        leaves = self._leaves(range(self.p))
        value = loss(self._through(leaves, torch.cat(given["inputs"])), torch.cat(given["targets"]))
        return _grads(value, leaves)

    def mixed(self, case: int, pairs: Sequence[tuple[int, int]]) -> list[Values]:
        """The sum over pairs (k, j): k's activations, but the last border's gradient of j."""
        given, total = self.cases[case], None
        for k, j in pairs:
            front, tail = self._leaves(range(self.p - 1)), self._leaves([self.p - 1])
            border = self._through(front, given["inputs"][j]).detach()
            border.requires_grad_(bool(front))
            value = loss(self._through(tail, border), given["targets"][j]) / self.counts[case]
            found = _grads(value, tail, retain_graph=True)
            if front:
                (slope,) = torch.autograd.grad(value, border)
                y = self._through(front, given["inputs"][k])
                found = _grads((y * slope).sum(), front) + found
            total = found if total is None else added(total, found)
        assert total is not None
        return total

    def slips(self, case: int, before: list[Values] | None) -> dict[str, list[Values]]:
        """Known wrong gradients after a case, by the sentence that explains them."""
        m, right = self.counts[case], self.gradients(case)

        def after(values: list[Values]) -> list[Values]:
            return added(before, values) if before else values

        reset = "gradients are reset between micro-batches: every backward adds to `grad`"
        known = {
            "the sum over the micro-batches: divide each loss by their number":
                after(scaled(right, m)),
            "divided twice by the number of micro-batches": after(scaled(right, 1 / m)),
            "no gradient has come back from the next stage": after(scaled(right, 0)),
            "a gradient went into another micro-batch's backward: all ranks run the backwards in "
            "the same order": after(self.mixed(case, [(k, m - 1 - k) for k in range(m)])),
            reset: self.mixed(case, [(m - 1, m - 1)]),
            reset + " (only the first one's are left)": self.mixed(case, [(0, 0)]),
        }  # fmt: skip
        if before:
            known["what was in `grad` before is lost: a step adds, and the caller zeroes"] = right
        return known

    def _leaves(self, stages: Sequence[int]) -> list[Values]:
        return [
            {
                name: value.clone().requires_grad_(name != "gain")
                for name, value in self.weights[stage].items()
            }
            for stage in stages
        ]

    @staticmethod
    def _through(stages: Sequence[Values], x: torch.Tensor) -> torch.Tensor:
        for weights in stages:
            x = through(weights, x)[0]
        return x


def _grads(value: torch.Tensor, leaves: list[Values], **options: Any) -> list[Values]:
    flat = [p for stage in leaves for p in stage.values() if p.requires_grad]
    found = iter(torch.autograd.grad(value, flat, **options))
    return [{name: next(found) for name, p in stage.items() if p.requires_grad} for stage in leaves]


def added(first: list[Values], second: list[Values]) -> list[Values]:
    """The sum, by stage and name."""
    return [{name: a[name] + b[name] for name in a} for a, b in zip(first, second, strict=True)]


def scaled(stages: list[Values], by: float) -> list[Values]:
    """All of them, multiplied."""
    return [{name: value * by for name, value in stage.items()} for stage in stages]


# --- runs and comparisons ------------------------------------------------------------------------
def explained(run: Run, drive: Callable[..., Any], inputs: Any, deadlock: str) -> Any:
    """The result of a run; the likely cause is added to what broke it off.

    Args:
        run: of the check.
        drive: the driver.
        inputs: a dict for each rank.
        deadlock: why the ranks wait for each other, if they do.
    """
    try:
        return run(drive, inputs, world=len(inputs))
    except RunFault as broken:
        fault = broken.fault
        text = " ".join((fault.message, *fault.rows))
        cause = next((why for word, why in CAUSES.items() if word in text), "")
        if fault.kind == "deadlock":
            cause = f"{deadlock}. {fault.cause}"  # the autopsy is long, and the rows say it too
        raise RunFault(replace(fault, cause=cause or fault.cause), broken.output) from None


def compare(run: Run, whole: Whole, outputs: Sequence[Any], ranks: Sequence[int]) -> None:
    """The gradients of all stages after each case.

    Args:
        run: of the check.
        whole: the same in one process.
        outputs: of the ranks, in the order of the stages.
        ranks: of the stages, for the messages.
    """
    before: list[Values] | None = None
    for case, m in enumerate(whole.counts):
        right = whole.gradients(case)
        right = added(before, right) if before else right
        found = [
            {name: output[case]["gradients"].get(name) for name in stage}
            for output, stage in zip(outputs, right, strict=True)
        ]
        where = f"{m} micro-batches, {whole.p} stages"
        for stage, rank in enumerate(ranks):
            run.true(
                None not in found[stage].values(),
                f"weights of stage {stage} have no gradient ({where})",
                rank=rank,
                cause="backward with the gradient that the next stage sends",
            )
        same = alike([list(s.values()) for s in found], [list(s.values()) for s in right])
        slips = {} if same else whole.slips(case, before)
        for stage, rank in enumerate(ranks):
            known = {why: values[stage] for why, values in slips.items()}
            what = f"stage {stage}'s gradient ({where})"
            run.close(found[stage], right[stage], what, rank=rank, likely=known, terms=99)
        before = right


def check_losses(run: Run, whole: Whole, outputs: Sequence[Any], ranks: Sequence[int]) -> None:
    """What was returned: the losses on the last stage, else an empty list."""
    for case, m in enumerate(whole.counts):
        right = whole.losses(case)
        for stage, rank in enumerate(ranks):
            found, what = outputs[stage][case], f"the list of losses ({m} micro-batches)"
            if stage < whole.p - 1:
                run.equal(found["losses"], [], what, rank=rank)
                continue
            run.true(None not in found["losses"], "nothing is returned", rank=rank)
            likely = {
                "divided by their number: that is for the backward only": [v / m for v in right]
            }
            run.close(found["losses"], right, what, rank=rank, likely=likely)
            run.true(
                not found["graph"],
                "the losses that are returned hold a graph",
                rank=rank,
                cause="return value.detach(): a graph keeps activations alive",
            )


def check_messages(run: Run, whole: Whole, result: Any) -> None:
    """For each micro-batch and border one message there and one back, in a job of one pipeline."""
    ends = [(stage < whole.p - 1, stage > 0) for stage in range(whole.p)]
    count = sum(whole.counts)
    size = sum(m * whole.message(case) for case, m in enumerate(whole.counts))
    likely = {
        "no gradients come back": [size * on for on, _ in ends],
        "half as many: float32 on the wire": [size * sum(end) // 2 for end in ends],
    }
    run.bytes(result, [size * sum(end) for end in ends], likely=likely)
    for stage, ledger in enumerate(run.each(result.ledgers)):
        sent = sum(event.op == "send" for event in ledger.events)
        whole_batch = len(whole.counts) * sum(ends[stage])
        known = {"the whole batch in one message: then one rank works at a time": whole_batch}
        run.equal(sent, count * sum(ends[stage]), "the number of messages sent", likely=known)


def order_fault(order: Sequence[str]) -> str:
    """What is likely if a stage ran its micro-batches like this."""
    forwards = [what for what in order if what[0] == "F"]
    backwards = [what for what in order if what[0] == "B"]
    if "F?" in forwards:
        return "an input was used before it had arrived: wait for the receive first"
    if len(set(forwards)) < len(forwards):
        return (
            "one micro-batch came twice and another never: what is being sent must not change "
            "before it has been waited for"
        )
    if len(set(backwards)) < len(backwards):
        return (
            "autograd has saved a micro-batch's input, and another was received into the same "
            "memory: a buffer for each"
        )
    if list(order) == [what for k in forwards for what in (k, "B" + k[1:])]:
        return "each backward follows its own forward: one rank works while the others wait"
    if list(order) == forwards + backwards:
        return "this is GPipe, whatever the list says"
    return ""


# --- schedules as lists --------------------------------------------------------------------------
def gpipe(p: int, m: int) -> list[list[str]]:
    """For each rank: all forwards, then all backwards."""
    return [[f"{r}{kind}{k}" for kind in "FB" for k in range(m)] for r in range(p)]


def one_f_one_b(p: int, m: int) -> list[list[str]]:
    """For each rank: as many forwards first as there are stages behind it, then in turn."""
    lists = []
    for r in range(p):
        ahead = min(m, p - r)
        line = [f"{r}F{k}" for k in range(ahead)]
        for k in range(m):
            line.append(f"{r}B{k}")
            line += [f"{r}F{ahead + k}"] if ahead + k < m else []
        lists.append(line)
    return lists


def drawn(run: Run, p: int, m: int) -> list[list[str]]:
    """A random order of all actions in which nothing comes before what it needs."""
    lists: list[list[str]] = [[] for _ in range(p)]
    done = {(kind, r): 0 for kind in "FB" for r in range(p)}
    for draw in run.integers(0, 1 << 30, 2 * p * m).tolist():
        ready = [way for way in done if done[way] < _limit(done, *way, p, m)]
        kind, r = ready[draw % len(ready)]
        lists[r].append(f"{r}{kind}{done[kind, r]}")
        done[kind, r] += 1
    return lists


def _limit(done: dict[tuple[str, int], int], kind: str, r: int, p: int, m: int) -> int:
    """How many actions of a kind a rank can run with what others have done."""
    if kind == "F":
        return done["F", r - 1] if r else m
    return min(done["F", r], done["B", r + 1] if r + 1 < p else m)


def in_flight(line: Sequence[str]) -> int:
    """The most forwards of a list without their backward."""
    count = most = 0
    for action in line:
        count += 1 if "F" in action else -1
        most = max(most, count)
    return most
