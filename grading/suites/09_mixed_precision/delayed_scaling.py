"""delayed_scaling: scales of the steps before, agreed on with one all-reduce a step."""

from __future__ import annotations

import math
from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Scales of the steps before",
    core=False,
    minutes=25,
    order=6,
    defines=("DelayedScaling",),
    hints=(
        "Which of the two may `scale` read, `history` or `seen`? What does a rank send for a "
        "tensor that it has not used, and what for one that contains NaN?",
        "`quantize` raises `seen[name]` to the tensor's amax, or to infinity if the amax is not "
        "finite. `step` puts all of `seen` into one tensor, in the order of the names, and takes "
        "the maximum over the ranks.",
        'After `all_reduce(amaxes, group, "max")`, append each amax that is below infinity to its '
        "history, and set `seen` to 0. The scale is `max(history, default=0.0) / LARGEST`, or 1.0 "
        "if that is 0.",
    ),
)

NAMES = ("input", "weight", "gradient")
LENGTH, STEPS, LARGEST = 3, 11, 448.0
TINY = 27 * 2.0**-36  # of gradients: exact in bf16, and no power of two
# In rough runs: rank, step, tensor, call, amax.
OVERFLOWS = ((1, 3, 0, 0, math.inf), (0, 6, 0, 1, math.nan), (2, 8, 1, 0, math.nan))
Peaks = list[list[list[list[float]]]]  # amax of each rank, step, tensor and call


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, batches: list[list[list[torch.Tensor]]]) -> dict[str, Any]:
    """All steps: each tensor's calls, micro-batch by micro-batch; then the step ends.

    Every second rank uses the tensors in the opposite order.
    """
    scaling = learner.DelayedScaling(NAMES, LENGTH, group)
    found: dict[str, Any] = {"told": [], "scales": [], "data": [], "sent": [], "kept": True}
    for tensors in batches:
        given = [[x.clone() for x in calls] for calls in tensors]
        since = len(group.ledger.events)
        told: list[list[float]] = [[] for _ in NAMES]
        scales: list[list[Any]] = [[] for _ in NAMES]
        data: list[list[Any]] = [[] for _ in NAMES]
        for call in range(max(map(len, given))):
            for tensor in range(len(NAMES))[:: -1 if group.index % 2 else 1]:
                if call < len(given[tensor]):
                    told[tensor].append(float(scaling.scale(NAMES[tensor])))
                    pair = scaling.quantize(NAMES[tensor], given[tensor][call])
                    small, scale = learner_pair(pair)
                    scales[tensor].append(scale)
                    data[tensor].append(small)
        scaling.step()
        pairs = [
            (a, b)
            for old, new in zip(tensors, given, strict=True)
            for a, b in zip(old, new, strict=True)
        ]
        found["kept"] &= all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)
        found["told"].append(told)
        found["scales"].append(scales)
        found["data"].append(data)
        found["sent"].append([event.payload for event in group.ledger.events[since:]])
    return found


def learner_pair(pair: Any) -> tuple[torch.Tensor, float]:
    """What `quantize` gave, if it is what it must be; FP8 numbers as float32."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], torch.Tensor)):
        raise TypeError(f"quantize must return a pair (FP8 numbers, scale), not {pair!r}")
    data, scale = pair
    if data.dtype != torch.float8_e4m3fn or not isinstance(scale, float):
        raise TypeError(
            "quantize must return numbers of torch.float8_e4m3fn and a scale that is a "
            f"float, not {data.dtype} and {type(scale).__name__}"
        )
    return data.float(), scale


# --- what they must bring back -------------------------------------------------------------------
def scales(peaks: Peaks, rank: int, how: str = "") -> list[list[float]]:
    """The scale of each tensor in each step, on a rank; `how` names what goes wrong."""
    pasts: list[list[float]] = [[] for _ in NAMES]
    length = {"forever": STEPS, "last": 1, "short": LENGTH - 1}.get(how, LENGTH)
    found = []
    for step in range(STEPS):
        now = []
        for tensor, past in enumerate(pasts):
            rows = [row[step][tensor] for row in peaks]
            rows = rows[rank : rank + 1] if how == "local" else rows
            rows = [calls[-1:] for calls in rows] if how == "call" else rows
            seen = [amax for calls in rows for amax in calls]
            finite = [amax for amax in seen if math.isfinite(amax)]
            amax = max(finite, default=0.0)
            if how == "mean":
                amax = sum(max(calls, default=0.0) for calls in rows) / len(rows)
            own = peaks[rank][step][tensor] if how == "now" else []
            top = max(past[-length:] + own, default=0.0)
            now.append((LARGEST / top if how == "inverted" else top / LARGEST) if top else 1.0)
            left_out = (how == "skipped" and not amax) or (how == "unused" and not seen)
            if (len(finite) == len(seen) or how == "lost") and not left_out:
                past.append(amax)
        found.append(now)
    return found


CAUSES = {
    "this rank's own amax: take the largest over all ranks": "local",
    "the scale includes the amax of this step, which is not known yet": "now",
    "amaxes older than `length` steps still count, in the history or in `seen`": "forever",
    "only the last step counts: take the largest of the history": "last",
    "the history is one step too short": "short",
    "the mean over ranks, not the largest": "mean",
    "the scale is inverted: it multiplies the FP8 numbers": "inverted",
    "only the last call in a step counts: micro-batches are one step": "call",
    "a step with infinity or NaN on one rank changed the history": "lost",
    "a step whose amax is 0 was left out: it counts like any other": "skipped",
    "a step in which no rank used the tensor was left out: its amax is 0, and counts": "unused",
}


def make(run: Run, world: int, rough: bool = False) -> tuple[Peaks, Any, Any]:
    """Peaks with a batch for each.

    Rough: infinity, NaN, empty tensors, and one rank, or all, without a tensor.
    """
    peaks: Peaks = []
    common = run.integers(-6, 4, (STEPS, len(NAMES), 1))  # so that one step's largest is not all's
    for _ in range(world):
        powers = common + run.integers(0, 4, (STEPS, len(NAMES), 2))
        rows = (LARGEST * powers.double().exp2()).tolist()
        for row in rows:
            row[2] = [TINY * row[2][0]]  # one call
        for row in rows[:1] + rows[6:9]:
            row[2] = [0.0]  # nothing but zeros, later for as long as the history
        peaks.append(rows)
    if rough:
        for rank, step, tensor, call, value in OVERFLOWS:
            peaks[(rank + 1) % world][step][tensor][0] = LARGEST * 2**9  # must not be remembered
            peaks[rank][step][tensor][call] = value
        peaks[world - 1][5] = [[], [0.0], []]
        peaks[0][7][2] = []
        for rows in peaks:
            for row in rows[7:10]:
                row[0] = []  # used by nobody for as long as the history
    batches = [
        [
            [[_batch(run, peak, tensor) for peak in calls] for tensor, calls in enumerate(row)]
            for row in rows
        ]
        for rows in peaks
    ]
    return peaks, batches, run(drive, [{"batches": each} for each in batches], world=world)


def _batch(run: Run, peak: float, tensor: int) -> torch.Tensor:
    """Hidden numbers up to a peak; bf16 but for the input; none for a weight of 0."""
    if peak == 0.0 and tensor == 1:
        return torch.zeros(0, 4)
    drawn = run.random((4, 6)).clamp(-0.9, 0.9) * (peak if math.isfinite(peak) else 1.0)
    drawn[2, 3] = -peak
    return drawn.float() if tensor == 0 else drawn.bfloat16().t()[tensor % 2 :]


def compare_scales(run: Run, peaks: Peaks, result: Any) -> None:
    """Each call's scale, on each rank."""
    for rank, output in enumerate(run.each(result.outputs)):
        right = scales(peaks, rank)
        for step, tensors in enumerate(output["scales"]):
            every = zip(NAMES, right[step], tensors, output["told"][step], strict=True)
            for name, wanted, found, told in every:
                for value, before in zip(found, told, strict=True):
                    if not math.isclose(value, wanted, rel_tol=1e-6):
                        run.fail(
                            f"the scale of {name!r} in step {step}",
                            expected=f"{wanted:.6g}",
                            measured=f"{value:.6g}",
                            cause=cause(peaks, rank, output["scales"]),
                        )
                    run.true(
                        math.isclose(before, value, rel_tol=1e-6),
                        f"`scale({name!r})` and what `quantize` returns in step {step} differ",
                        expected=f"{value:.6g}",
                        measured=f"{before:.6g}",
                        cause="both are the number that the tensor is divided by",
                    )


def cause(peaks: Peaks, rank: int, found: list[list[list[float]]]) -> str:
    """The slip that explains most of a rank's scales."""
    explained = {}
    for why, how in {"": "", **CAUSES}.items():
        wrong = scales(peaks, rank, how)
        explained[why] = sum(
            math.isclose(value, wrong[step][tensor], rel_tol=1e-6)
            for step, tensors in enumerate(found)
            for tensor, values in enumerate(tensors)
            for value in values
        )
    return max(explained, key=lambda why: explained[why])


@check("the scale comes from the previous steps and is the same on every rank", points=5, code="E")
@diagnosis("the largest amax of the history, over all ranks, divided by 448")
def check_scale(run: Run) -> None:
    """E: eleven steps of three tensors, two of them used twice a step; 3 ranks and 1."""
    for world in (3, 1):
        peaks, _, result = make(run, world)
        compare_scales(run, peaks, result)


@check("divided by the scale, clipped, in e4m3", points=3, code="E")
@diagnosis("divide in float32, clip to ±448, cast")
def check_data(run: Run) -> None:
    """E: bit for bit; tensors that have grown are clipped.

    Where the scale is no power of two, the last bit of a float32 quotient may decide as it likes.
    """
    for world in (3, 1):
        _, batches, result = make(run, world)
        for rank, output in enumerate(result.outputs):
            run.true(output["kept"], "x was changed: `clamp_` and `div_` work in place", rank=rank)
            for step, tensors in enumerate(output["data"]):
                for tensor, name in enumerate(NAMES):
                    calls = zip(
                        batches[rank][step][tensor],
                        output["scales"][step][tensor],
                        tensors[tensor],
                        strict=True,
                    )
                    for x, scale, found in calls:
                        _compare_data(run, x, scale, found, f"{name!r} in step {step}", rank)


def _compare_data(
    run: Run, x: torch.Tensor, scale: float, found: torch.Tensor, what: str, rank: int
) -> None:
    """One call's FP8 numbers, with the scale that was returned."""
    likely = {
        "multiplied by the scale, not divided": _fp8(x.float() * scale),
        "not scaled": _fp8(x.float()),
        "divided in bf16: convert x to float32 first": _fp8((x.bfloat16() / scale).float()),
    }
    right = _fp8(x.float() / scale)
    if found.shape == right.shape and math.frexp(scale)[0] != 0.5:
        below, above = (_fp8(x.float() / scale * (1 + error)) for error in (-1e-6, 1e-6))
        right = right.where(below == above, found)
    run.equal(found, right, f"the FP8 numbers of {what}", rank=rank, likely=likely)


def _fp8(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()


@check("infinity, NaN, and ranks that did not use a tensor", points=4, code="E")
@diagnosis("every rank sends a number for every tensor, and NaN must not get lost")
def check_rough(run: Run) -> None:
    """E: an overflow on one rank leaves the histories of all as they are."""
    peaks, _, result = make(run, 3, rough=True)
    compare_scales(run, peaks, result)


@check("`step` makes one all-reduce of 4 bytes per tensor", points=3, code="B")
@diagnosis("all amaxes in one tensor; `quantize` sends nothing")
def check_bytes(run: Run) -> None:
    """B: calls and bytes, from the ledger; nothing past comm."""
    _, _, result = make(run, 3)
    for output in run.each(result.outputs):
        for sent in output["sent"]:
            likely = {
                "one for each tensor: put all amaxes into one": len(NAMES),
                "one for each call: `quantize` sends nothing": 5,
            }
            run.equal(len(sent), 1, "the number of collectives in a step", likely=likely)
            likely = {"float64: float32 is enough": 8 * len(NAMES)}
            what = "the bytes of the all-reduce's tensor"
            run.equal(sent[0], 4 * len(NAMES), what, likely=likely)
