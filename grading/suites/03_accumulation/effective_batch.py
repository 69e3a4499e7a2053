"""effective_batch: accumulation lowers one peak, and is paid for in overhead."""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Effective batch, memory and time of an update",
    core=False,
    minutes=15,
    order=4,
    defines=("effective_batch", "peak_bytes", "update_seconds", "smallest_k"),
    library=(),
    hints=(
        "Go through an update step by step: what is alive when the backward of the third "
        "micro-batch begins? One of the four kinds depends on the size of a micro-batch, and none "
        "of them depends on k itself.",
        "The time has three parts: `overhead` once per micro-batch, `sample_seconds` once per "
        "sample on this rank, and the all-reduce once, or k times without no_sync. (N-1)/N is 0 "
        "on one rank.",
        "`smallest_k`: this rank has global_batch // ranks samples. Try k = 1, 2, 3, ...: only "
        "divisors of that number make equal micro-batches. The first k whose peaks add up to at "
        "most `budget` is the answer; if there is none, raise ValueError.",
    ),
)

Args = dict[str, Any]


# --- what runs on the rank -----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    batches: list[Args],
    peaks: list[Args],
    times: list[Args],
    fits: list[Args],
) -> dict[str, Any]:
    """Calls the four functions; a ValueError of the last is an answer as well."""
    found = []
    for given in fits:
        try:
            found.append(learner.smallest_k(**given))
        except ValueError:
            found.append("ValueError")
    return {
        "batches": [learner.effective_batch(**given) for given in batches],
        "peaks": [learner.peak_bytes(**given) for given in peaks],
        "times": [learner.update_seconds(**given) for given in times],
        "fits": found,
    }


# --- what it must bring back ---------------------------------------------------------------------
def _given(run: Run) -> dict[str, list[Args]]:
    """Hidden sizes: a model, a micro-batch, k from 1 to 8, several numbers of ranks."""
    parameters = run.number(1, 900) * 1_000_003
    activation = run.number(1, 900) * 1_000_033
    micro, k = run.number(2, 9), run.number(3, 9)
    model = {"parameters": parameters, "activation_bytes": activation}
    speed = {"sample_seconds": run.number(1, 99) / 1e3, "overhead": run.number(1, 99) / 1e3,
             "bandwidth": run.number(1, 99) * 1e9}  # fmt: skip
    plans = [(micro, 1, 1), (micro, k, 3), (1, 8, 4)]
    ways: list[Args] = [{"no_sync": True}, {"no_sync": False}, {}]
    held = 16 * parameters
    return {
        "batches": [dict(zip(("micro_batch", "k", "ranks"), plan, strict=True)) for plan in plans],
        "peaks": [{**model, "micro_batch": b, "k": n} for b, n, _ in plans],
        "times": [{"parameters": parameters, "micro_batch": b, "k": n, "ranks": r, **speed, **way}
                  for b, n, r in plans for way in ways],
        "fits": [{**model, "global_batch": batch, "ranks": ranks, "budget": held + room}
                 for batch, ranks, room in (
            (24, 2, 12 * activation),      # all 12 at once, to the byte
            (24, 2, 12 * activation - 1),  # one byte short
            (30, 2, 8 * activation),       # 15 samples: 3 micro-batches of 5, not of 7 and 8
            (14, 2, activation),           # one by one
            (14, 2, activation - 1),       # not even one
            (14, 4, 99 * activation),      # 14 samples on 4 ranks
            (142, 2, activation),          # 71 of them, one by one
            (2, 4, 99 * activation),       # fewer samples than ranks
        )],
    }  # fmt: skip


EXPECTED_K = (1, 2, 3, 7, "ValueError", "ValueError", 71, "ValueError")


@check("the number of samples in an update", points=1, code="E")
@diagnosis("micro-batch times k times ranks")
def check_batch(run: Run) -> None:
    """E: exact."""
    given = _given(run)
    found = run(drive, given).outputs[0]["batches"]
    for got, plan in zip(found, given["batches"], strict=True):
        micro, k, ranks = plan["micro_batch"], plan["k"], plan["ranks"]
        likely = {
            "the ranks are missing: each has its own micro-batches": micro * k,
            "k is missing": micro * ranks,
        }
        run.equal(got, micro * k * ranks, f"the effective batch of {plan}", rank=0, likely=likely)


@check("the peak that falls, and those that do not change", points=3, code="M")
@diagnosis("only the activations depend on the micro-batch; nothing depends on k itself")
def check_peaks(run: Run) -> None:
    """M: exact bytes of each kind."""
    given = _given(run)
    found = run(drive, given).outputs[0]["peaks"]
    for got, plan in zip(found, given["peaks"], strict=True):
        count, one = plan["parameters"], plan["activation_bytes"]
        micro, k = plan["micro_batch"], plan["k"]
        right = {"parameters": 4 * count, "gradients": 4 * count, "optimizer state": 8 * count,
                 "activations": micro * one}  # fmt: skip
        slips = {
            "one graph is alive at a time, not k of them": {"activations": micro * k * one},
            "micro_batch is already the size of one micro-batch": {"activations": micro * one / k},
            "gradients are added up in one place: k micro-batches need no more": {
                "gradients": 4 * count * k
            },
            "every gradient stays until the update: they do not become smaller": {
                "gradients": 4 * count / k
            },
            "Adam has two moments for each parameter, of 4 bytes each": {
                "optimizer state": 4 * count
            },
        }
        likely = {why: _floats(right | slip) for why, slip in slips.items()}
        what = f"the peaks with {micro} samples a micro-batch, k = {k}"
        run.close(_floats(got), _floats(right), what, rank=0, likely=likely)


def _floats(peaks: Any) -> Any:
    """Whole bytes may be written 8 or 8.0."""
    if not isinstance(peaks, dict):
        return peaks
    return {n: float(v) if isinstance(v, int) else v for n, v in peaks.items()}


@check("seconds of an update, with and without no_sync", points=3, code="E")
@diagnosis("k overheads, all samples, and one all-reduce per update or per micro-batch")
def check_times(run: Run) -> None:
    """E: 1, 3 and 4 ranks; also with no_sync left out."""
    given = _given(run)
    found = run(drive, given).outputs[0]["times"]
    for got, plan in zip(found, given["times"], strict=True):
        micro, k, ranks = (plan[n] for n in ("micro_batch", "k", "ranks"))
        once = plan.get("no_sync", True)
        whole = 4 * plan["parameters"] / plan["bandwidth"]
        sent = 2 * (ranks - 1) / ranks * whole
        times = 1 if once else k
        computing = k * micro * plan["sample_seconds"]
        waste = k * plan["overhead"]
        said = plan.get("no_sync", "not given")
        what = f"{micro} samples, k = {k}, {ranks} ranks, no_sync {said}"
        by_default = {"if no_sync is not given, it is True": computing + waste + k * sent}
        likely = (by_default if "no_sync" not in plan else {}) | {
            "each micro-batch has its overhead": computing + plan["overhead"] + times * sent,
            "with no_sync there is one synchronisation per update": computing + waste + k * sent,
            "without no_sync every micro-batch is synchronised": computing + waste + sent,
            "a ring sends 2(N-1)/N of the gradients, not all of them twice": computing
            + waste
            + times * 2 * whole,
            "an all-reduce sends 2(N-1)/N, a reduce-scatter half of that": computing
            + waste
            + times * sent / 2,
            "the samples of all k micro-batches count": computing / k + waste + times * sent,
            "gradients are float32: 4 bytes each": computing + waste + times * sent / 4,
        }
        name = f"the seconds ({what})"
        run.close(got, computing + waste + times * sent, name, rank=0, likely=likely)


@check("the smallest k that fits", points=3, code="M")
@diagnosis("try the divisors of the rank's samples, from 1 up; take the first whose peaks fit")
def check_smallest(run: Run) -> None:
    """M: to the byte, divisors only, and two plans that cannot be."""
    given = _given(run)
    found = run(drive, given).outputs[0]["fits"]
    causes: tuple[dict[str, Any], ...] = (
        {"a plan that fits to the byte fits": 2, "try k from 1 up": 12},
        {"one byte too much is too much": 1},
        {"k must divide the rank's samples, or micro-batches are not equal": 2},
        {"a micro-batch may have one sample": "ValueError"},
        {"one sample does not fit: raise ValueError": None},
        {"14 samples cannot be shared equally by 4 ranks: raise ValueError": 1},
        {"71 micro-batches of one sample are not too many": "ValueError"},
        {"2 samples cannot be shared equally by 4 ranks: raise ValueError": 1},
    )
    for got, expected, plan, likely in zip(found, EXPECTED_K, given["fits"], causes, strict=True):
        room = plan["budget"] - 16 * plan["parameters"]
        run.equal(
            got,
            expected,
            f"the smallest k for {plan['global_batch']} samples on "
            f"{plan['ranks']} ranks and room for {room / plan['activation_bytes']:.2f} "
            "samples",
            rank=0,
            likely=likely,
        )
