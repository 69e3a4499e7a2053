"""finalize_grads: the rule on twelve meshes of 8 ranks, and the calls on three real ones."""

# mypy: enable-error-code="arg-type, union-attr"
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import nn

from course_lib.comm import AXES, Mesh
from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.trace import wire_bytes
from grading.references.data_parallel.training import explained
from grading.references.mesh.gradient_reductions import ENDS, Given, Reduction, Waits, lines, slips

EXERCISE = Exercise(
    title="Gradients on a mesh: sums over the right axes",
    core=True,
    minutes=30,
    order=40,
    defines=("reduce_plan", "finalize_grads"),
    hints=(
        "Ask for each kind and each axis: do two ranks that differ only in this axis have the "
        "same parameter, and if so, different parts of its gradient? Then these parts must be "
        "summed. And how many of the D losses does the complete sum contain? Divide by D in any "
        "case: the batch's loss is their mean.",
        "Sum everything over dp × ep × cp, but experts only over dp × cp, because ranks of ep "
        "have different experts. Divide all by D, experts too: their gradients already contain "
        "the losses of all ranks of ep. Before that, sum norms over tp if there is sequence "
        "parallelism, and tied weights over ENDS, both with the divisor 1.",
        "`finalize_grads`: for each parameter that requires a gradient, zeros if it has none, then "
        "for `axes, divisor` in its plan: `group = ends if axes == ENDS else mesh[axes]`, "
        "`all_reduce(parameter.grad, group)`, `parameter.grad.div_(divisor)`.",
    ),
)

DATA = ("dp", "ep", "cp")
MESHES = (  # pp, dp, ep, cp, tp
    (8, 1, 1, 1, 1), (1, 8, 1, 1, 1), (1, 1, 8, 1, 1), (1, 1, 1, 8, 1), (1, 1, 1, 1, 8),
    (2, 2, 1, 1, 2), (2, 2, 2, 1, 1), (1, 2, 2, 2, 1), (2, 1, 1, 2, 2), (1, 2, 1, 2, 2),
    (4, 1, 1, 1, 2), (1, 1, 2, 2, 2),
)  # fmt: skip
DTYPES = {"down": torch.bfloat16}  # of parameters; all others are float64
LONG, CUT, SPREAD = (3, 2, 1, 1, 1), (1, 1, 1, 2, 2), (1, 1, 2, 2, 1)
LONE = (1, 1, 2, 1, 2)  # no other rank has the same expert, but D is 2
CASES = [
    (kind, sequence) for kind in ("norm", "tied", "expert", "other") for sequence in (False, True)
]
IN_PLACE = "others may have the tensor, or its memory: sum and divide in place"
SKIPPED = (
    "A gradient that is None takes part as zeros, and only ranks that have the same parameter wait "
    "for each other"
)


def _sizes(mesh: Sequence[int]) -> dict[str, int]:
    return dict(zip(AXES, mesh, strict=True))


# --- what runs on the ranks ----------------------------------------------------------------------
def drive_plans(learner: Any, group: Any, cases: list[Any]) -> list[list[Any]]:
    """Every plan that is asked for, as lists."""
    return [
        _as_lists(learner.reduce_plan(kind, dict(sizes), sequence))
        for kind, sizes, sequence in cases
    ]


def _as_lists(plan: Any) -> list[Any]:
    """A plan as data.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(plan, (list, tuple)):
        raise TypeError(f"reduce_plan must return a list of Reduction(axes, divisor), not {plan!r}")
    found = []
    for each in plan:
        fits = isinstance(each, tuple) and len(each) == 2
        axes, divisor = each if fits else (None, None)
        if not isinstance(axes, (tuple, list)) or not set(axes) <= {*AXES, *ENDS}:
            raise TypeError(f'a Reduction has a tuple of axes, as ("tp",), or ENDS; not {each!r}')
        if not isinstance(divisor, (int, float)) or divisor <= 0:
            raise TypeError(f"a Reduction divides by a number above 0; found {each!r}")
        found.append([list(axes), divisor])
    return found


def drive(
    learner: Any, group: Any, sizes: dict[str, int], sequence: bool, held: list[dict[str, Any]]
) -> dict[str, Any]:
    """One backward, whose gradients are then finalised; and those that are another tensor then."""
    mesh = Mesh(group, sizes)
    for axes in (DATA, ("dp", "cp")):
        mesh[axes]
    ends = group.split(lines(ENDS, sizes), "ends")
    parameters = {each["name"]: _parameter(each) for each in held}
    rows = sizes["dp"] * sizes["ep"] * sizes["cp"]
    loss = torch.zeros((), dtype=torch.float64, requires_grad=True) * 1.0
    for each in held:
        if each["part"] is not None:
            loss = loss + rows * (each["part"] * torch.tanh(parameters[each["name"]])).sum()
    loss.backward()
    before = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    own = [learner.Held(parameters[each["name"]], each["kind"]) for each in held]
    learner.finalize_grads(own, mesh, ends if ends.size > 1 else None, sequence)
    return {
        "gradients": {name: p.grad for name, p in parameters.items()},
        "replaced": [name for name, grad in before.items() if parameters[name].grad is not grad],
    }


def _parameter(each: dict[str, Any]) -> nn.Parameter:
    """A parameter whose memory, like its gradient's, is not in order."""
    return nn.Parameter(each["weight"].t().contiguous().t(), requires_grad=not each["frozen"])


# --- the rule ------------------------------------------------------------------------------------
def _plans(run: Run, kind: str) -> list[tuple[dict[str, int], bool, list[Reduction]]]:
    """Sizes, whether there is sequence parallelism, and the plan that came back."""
    cases = [(each, _sizes(mesh), sequence) for mesh in MESHES for each, sequence in CASES]
    answers = run(drive_plans, {"cases": cases}).outputs[0]
    return [
        (sizes, sequence, [Reduction(tuple(axes), divisor) for axes, divisor in answer])
        for (each, sizes, sequence), answer in zip(cases, answers, strict=True)
        if each == kind
    ]


def _check_plans(run: Run, kind: str) -> None:
    """What the ranks of twelve meshes have, once the plan is carried out."""
    for sizes, sequence, plan in _plans(run, kind):
        given = Given(run, sizes, kind, sequence, (2, 1))
        what = f"{_a(kind)} on {_words(sizes)}{' with sequence parallelism' * sequence}"
        try:
            found = given.simulate(plan)
        except Waits as error:
            run.fail(
                f"a reduction of the plan for {what} never ends",
                rank=error.rank,
                measured=_said(plan),
                cause=f"it waits for rank {error.other}, which does not "
                "have that parameter: only the first and the last stage do",
            )
        for rank, gradient in found.items():
            _compare(run, given, rank, gradient, f"the gradient of {what}, by {_said(plan)},")


def _compare(run: Run, given: Given, rank: int, gradient: Any, what: str) -> None:
    """One gradient, with the known mistakes only if there is one."""
    right = given.truth(rank)
    same = isinstance(gradient, torch.Tensor) and gradient.shape == right.shape
    near = same and torch.allclose(gradient.double(), right, rtol=1e-10, atol=1e-12)
    likely = {} if near else _known(given, rank)
    run.close(gradient, right, what, rank=rank, terms=20, likely=likely)


def _known(given: Given, rank: int) -> dict[str, torch.Tensor]:
    """What known mistakes leave on a rank."""
    known = slips(given.kind, given.sizes, given.sequence)
    return {why: given.simulate(plan)[rank] for why, plan in known.items()}


def _a(kind: str) -> str:
    return {
        "norm": "a norm",
        "tied": "a tied weight",
        "expert": "an expert",
        "other": "an ordinary matrix",
    }[kind]


def _words(sizes: dict[str, int]) -> str:
    return " × ".join(f"{axis} {n}" for axis, n in sizes.items() if n > 1)


def _said(plan: list[Reduction]) -> str:
    each = [f"{' × '.join(axes)} / {divisor}" for axes, divisor in plan]
    return f"[{', '.join(each)}]"


@check("the rule for ordinary matrices, on twelve meshes of 8 ranks", points=2, code="E")
@diagnosis("the mean over all ranks that have different tokens")
def check_other(run: Run) -> None:
    """E: every rank's gradient, when the plan is carried out in one process."""
    _check_plans(run, "other")


@check("the rule for norms, with sequence parallelism and without", points=3, code="E")
@diagnosis("with it, sum over tp; then take the mean, as for matrices")
def check_norm(run: Run) -> None:
    """E: the same."""
    _check_plans(run, "norm")


@check("the rule for tied weights", points=3, code="E")
@diagnosis("sum both uses over the ends of pp; then take the mean")
def check_tied(run: Run) -> None:
    """E: the same; stages in the middle do not have the weight."""
    _check_plans(run, "tied")


@check("the rule for experts", points=3, code="E")
@diagnosis("sum over dp × cp, and divide by D")
def check_expert(run: Run) -> None:
    """E: the same."""
    _check_plans(run, "expert")


# --- the calls -----------------------------------------------------------------------------------
class Case:
    """A mesh of real ranks, and what came back.

    Args:
        run: of the check.
        mesh: sizes.
        sequence: whether there is sequence parallelism.
        gaps: for names of parameters, which ranks do not use them.
    """

    def __init__(
        self, run: Run, mesh: Sequence[int], sequence: bool, gaps: dict[str, Callable[[int], bool]]
    ) -> None:
        self.sizes = _sizes(mesh)
        world = int(torch.tensor(mesh).prod())
        kinds = {"norm": "norm", "embedding": "tied", "up": "other", "down": "other",
                 "frozen": "other", "router": "other", "expert.0": "expert",
                 "expert.1": "expert"}  # fmt: skip
        shape = (run.number(3, 6), 4)  # so that bytes divide by 2 and 4
        self.given = {
            name: Given(run, self.sizes, kind, sequence, shape, gaps.get(name))
            for name, kind in kinds.items()
        }
        self.run = run
        self.inputs = [
            {"sizes": self.sizes, "sequence": sequence, "held": self._held(rank)}
            for rank in range(world)
        ]

    @cached_property
    def result(self) -> Any:
        """What came back; the run is made when it is first looked at."""
        return explained(self.run, drive, self.inputs, len(self.inputs), SKIPPED)

    def _held(self, rank: int) -> list[dict[str, Any]]:
        """A rank's parameters."""
        return [
            {
                "name": name,
                "kind": given.kind,
                "weight": given.weight(rank).to(DTYPES.get(name, torch.float64)),
                "part": given.parts[rank],
                "frozen": name == "frozen",
            }
            for name, given in self.given.items()
            if rank in given.holders
        ]

    def compare(self) -> None:
        """Every gradient, on every rank."""
        run, words = self.run, _words(self.sizes)
        for rank, output in enumerate(self.result.outputs):
            for name, gradient in output["gradients"].items():
                what = f"the gradient of {name} on {words}"
                if name == "frozen":
                    run.true(gradient is None, f"{what} is not None: it is frozen", rank=rank)
                    continue
                run.true(gradient is not None, f"{what} is None", rank=rank, cause=SKIPPED)
                if dtype := DTYPES.get(name):
                    right = self.given[name].truth(rank).to(dtype)
                    run.close(gradient, right, what, rank=rank, terms=20)
                    continue
                _compare(run, self.given[name], rank, gradient, what)
            for name in output["replaced"]:
                what = f"the gradient of {name} on {words} is another tensor"
                run.fail(what, rank=rank, cause=IN_PLACE)

    def most(self, rank: int) -> int:
        """Bytes that a rank needs to send."""
        total = 0
        for name, given in self.given.items():
            item = DTYPES.get(name, torch.float64).itemsize
            if rank in given.holders and name != "frozen":
                for axes, _ in given.plan:
                    line = next(line for line in lines(axes, self.sizes) if rank in line)
                    size = given.weight(rank).numel() * item
                    total += wire_bytes("all_reduce", size, len(line), line.index(rank), item)[0]
        return total


def _cases(run: Run) -> list[Case]:
    """In every check the same, so that each runs once. In the last two some have no gradient."""
    gaps = {"expert.1": lambda rank: rank == 1, "router": lambda rank: rank != 2}
    whole = [Case(run, LONG, False, {}), Case(run, CUT, True, {})]
    lone = {"expert.1": gaps["expert.1"]}
    return [*whole, Case(run, SPREAD, False, gaps), Case(run, LONE, False, lone)]


@check("gradients on pp 3 × dp 2, on cp 2 × tp 2 and on ep 2 × tp 2", points=4, code="E")
@diagnosis("do what the plans say, on this rank's groups")
def check_calls(run: Run) -> None:
    """E: as one process has them before a step; the second with sequence parallelism."""
    first, second, _, last = _cases(run)
    for case in (first, second, last):
        case.compare()


@check("gradients that some ranks do not have, on ep 2 × cp 2", points=3, code="H")
@diagnosis("None takes part as zeros, and has a gradient afterwards")
def check_missing(run: Run) -> None:
    """H: every rank that has the parameter makes the call."""
    _cases(run)[2].compare()


@check("each gradient is sent once for each reduction", points=2, code="B")
@diagnosis("2(N-1)/N·S bytes for each reduction that a gradient needs")
def check_bytes(run: Run) -> None:
    """B: no more than the formula on any rank, from the ledger."""
    for case in _cases(run):
        for rank, sent in enumerate(run.each(case.result.timeline.sent())):
            cause = "something is sent twice, in a wider dtype, or to more ranks than necessary"
            what = f"the number of bytes sent on {_words(case.sizes)}"
            run.at_most(sent, case.most(rank), what, cause=cause)
