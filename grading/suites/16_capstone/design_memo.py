"""design_memo: each number for hidden layouts, and once beside what a real step sent."""

# mypy: enable-error-code="arg-type, attr-defined, index, union-attr"
from __future__ import annotations

from fractions import Fraction
from typing import Any, NoReturn

from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from grading.references.planning.memo_rules import ANSWERS, Rank, make_config

EXERCISE = Exercise(
    title="The design memo: held, sent, idle",
    core=True,
    minutes=50,
    order=30,
    library=(
        "comm",
        "model",
        "schedule",
        "train.lay_out",
        "train.make_optimizers",
        "train.own_micro_batches",
        "train.train_step",
    ),
    hints=(
        "Take one number at a time, and begin with a single rank: what does the whole stage "
        "hold? Then ask of each tensor, and of each message, which of the four axes cut it. "
        "Router and norms are not cut. Tokens are cut by dp and ep only, and `micro_batch_size` "
        "counts what is left after that.",
        "Let n = micro_batches · micro_batch_size · T · item, the bytes of one number for each "
        "token. Then `pp` is a multiple of n·D, `ep` has 4·n·D·top_k a block before (ep-1)/ep, and "
        "`tp` is 2(tp-1)/tp · n times the numbers summed: 4·D + top_k a block, D for each end, 3 "
        "for the loss.",
        "Shards: a = -(-dense // (dp·ep)), b = -(-experts // dp). `optimizer` is 2·item·(a + b), "
        "`data` is 2·item·((dp·ep - 1)·a + (dp - 1)·b). With 1F1B min(m, pp - stage) are in "
        "flight, and the bubble is Fraction(pp - 1, m + pp - 1).",
    ),
)

AXES = {"tp": ("tp",), "pp": ("pp", "tied"), "ep": ("ep",), "data": ("dp_ep_cp", "dp_cp")}
ZERO1 = ("reduce_scatter", "all_gather")  # other calls on these axes are sums of a few bytes


# --- what runs on the ranks ----------------------------------------------------------------------
class NoTensors(TorchDispatchMode):
    """Refuses every operation of torch."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        raise RuntimeError("the memo is arithmetic: make no model and no tensor")


def drive(learner: Any, group: Any, cases: list[dict[str, Any]]) -> list[list[Any]]:
    """The memo of every stage of every case; a Fraction as numerator and denominator."""
    return [[_memo(learner, case, stage) for stage in range(case["sizes"]["pp"])] for case in cases]


def _memo(learner: Any, case: dict[str, Any], stage: int) -> Any:
    config = make_config(case["shape"], case["moe"])
    with NoTensors():
        memo = learner.design_memo(
            config, dict(case["sizes"]), list(case["blocks"]), stage, **case["options"]
        )
    if not isinstance(memo, dict):
        return repr(memo)
    return {key: _plain(key, value) for key, value in memo.items()}


def _plain(key: str, value: Any) -> Any:
    if key == "bubble" and isinstance(value, (int, Fraction)):
        return [value.numerator, value.denominator]
    return int(value) if isinstance(value, int) else repr(value)


def drive_real(learner: Any, group: Any, case: dict[str, Any], stages: list[int]) -> dict[str, Any]:
    """What this rank's memo says, and then a real step."""
    options = dict(case["options"])
    said = _memo(learner, case, stages[group.rank])
    options.pop("item")
    config = make_config(case["shape"], case["moe"])
    return {"said": said, "held": learner.rehearse(group, config, case["sizes"], **options)}


# --- cases ---------------------------------------------------------------------------------------
def _case(
    run: Run,
    sizes: tuple[int, int, int, int],
    blocks: list[int],
    moe: list[int],
    *,
    heads: tuple[int, int],
    schedule: str,
    micro_batches: int,
    item: int,
    **shape: Any,
) -> dict[str, Any]:
    """A layout, with hidden sizes that its axes divide."""
    tp = sizes[3]
    config = {
        "layers": sum(blocks), "hidden": heads[0] * 2 * run.number(2, 5), "heads": heads[0],
        "kv_heads": heads[1], "ffn": tp * run.number(5, 11), "vocabulary": tp * run.number(12, 29),
        "sequence": 2 * run.number(3, 8), **shape,
    }  # fmt: skip
    options = {
        "micro_batch_size": run.number(2, 5),
        "micro_batches": micro_batches,
        "schedule": schedule,
        "item": item,
    }
    return {"shape": config, "sizes": dict(zip(("pp", "dp", "ep", "tp"), sizes, strict=True)),
            "blocks": blocks, "moe": moe, "options": options}  # fmt: skip


def _cases(run: Run) -> list[dict[str, Any]]:
    """Every axis longer than 1, and not; few and many micro-batches; tied and not; no experts.

    In the last, more replicas than parameters: a rank has one of the experts' and one of the rest.
    """
    return [
        _case(run, (3, 2, 2, 2), [2, 3, 2], [6, 3], heads=(4, 2), schedule="1F1B",
              micro_batches=5, item=2),
        _case(run, (4, 3, 2, 4), [1, 2, 2, 1], [4, 3], heads=(8, 4), schedule="GPipe",
              micro_batches=6, item=8, tied=True),
        _case(run, (2, 7, 1, 1), [2, 1], [], heads=(2, 1), schedule="1F1B", micro_batches=1,
              item=4, tied=True, gated=False),
        _case(run, (1, 1, 3, 2), [2], [3, 1], heads=(2, 2), schedule="GPipe", micro_batches=3,
              item=4, tied=True),
        _case(run, (1, 1, 1, 1), [3], [], heads=(2, 1), schedule="1F1B", micro_batches=2, item=8),
        _case(run, (2, 4096, 1, 1), [1, 1], [4, 2], heads=(2, 1), schedule="GPipe",
              micro_batches=1, item=4),
    ]  # fmt: skip


def _real(run: Run) -> list[dict[str, Any]]:
    """Two layouts of four ranks; each token goes to all experts, so they are evenly used."""
    return [
        _case(
            run,
            (2, 1, 1, 2),
            [1, 1],
            [3, 3],
            heads=(2, 2),
            schedule="1F1B",
            micro_batches=3,
            item=8,
            tied=True,
        ),
        _case(
            run,
            (1, 2, 2, 1),
            [1],
            [4, 4],
            heads=(2, 1),
            schedule="1F1B",
            micro_batches=2,
            item=8,
            gated=False,
        ),
    ]


def _words(case: dict[str, Any], stage: int) -> str:
    sizes = " × ".join(f"{axis} {size}" for axis, size in case["sizes"].items())
    options = case["options"]
    kind = "tied" if case["shape"].get("tied") else "not tied"
    mixture = "{} experts, top {}".format(*case["moe"]) if case["moe"] else "no experts"
    return (
        f"stage {stage} of {sizes}; blocks {case['blocks']}; {mixture}; {kind}; "
        f"{options['schedule']} of {options['micro_batches']}"
    )


def _one(run: Run, memo: Any, key: str, where: str) -> Any:
    """A number out of what was returned, if it is one."""
    run.true(
        isinstance(memo, dict),
        f"the memo is not a dict ({where})",
        measured=str(memo),
        cause="return a dict of all nine numbers",
    )
    run.true(key in memo, f"the memo lacks {key!r} ({where})", measured=", ".join(memo))
    kind: type = int
    cause = "parameters and bytes are integers: divide with //"
    if key == "bubble":
        kind, cause = list, "return a Fraction; a quotient of integers is a float"
    run.true(
        isinstance(memo[key], kind),
        f"{key!r} is not exact ({where})",
        measured=str(memo[key]),
        cause=cause,
    )
    return memo[key]


def _compare(run: Run, key: str) -> None:
    """One number, on every stage of every layout."""
    cases = _cases(run)
    memos = run(drive, {"cases": cases}).outputs[0]
    for case, found in zip(cases, memos, strict=True):
        for stage, memo in enumerate(found):
            where = _words(case, stage)
            right, likely = ANSWERS[key](Rank(case, stage))
            said = f"{key!r}, as numerator and denominator," if key == "bubble" else f"{key!r}"
            run.equal(_one(run, memo, key, where), right, f"{said} ({where})", likely=likely)


# --- checks --------------------------------------------------------------------------------------
@check("parameters outside the experts", points=2, code="M")
@diagnosis("attention, norms, router or network in each block; then what the ends have")
def check_dense(run: Run) -> None:
    """M: against a model that was made."""
    _compare(run, "dense")


@check("parameters of experts", points=1, code="M")
@diagnosis("blocks · experts/ep networks, each cut by tp; 0 without experts")
def check_experts(run: Run) -> None:
    """M: against a model that was made."""
    _compare(run, "experts")


@check("bytes of optimizer state", points=1, code="M")
@diagnosis("two numbers for each parameter, over dp · ep replicas, of experts over dp")
def check_optimizer(run: Run) -> None:
    """M: two shards."""
    _compare(run, "optimizer")


@check("bytes on tp", points=2, code="B")
@diagnosis("2(tp-1)/tp of 4·D + top_k numbers a block, D for each end, 3 for the loss")
def check_tp(run: Run) -> None:
    """B: sum by sum."""
    _compare(run, "tp")


@check("bytes on pp", points=2, code="B")
@diagnosis("to the next stage, back to the previous one, and a tied weight's gradient")
def check_pp(run: Run) -> None:
    """B: both directions, and the ends."""
    _compare(run, "pp")


@check("bytes on ep", points=1, code="B")
@diagnosis("four all-to-alls of rows and one of counts, in each block and micro-batch")
def check_ep(run: Run) -> None:
    """B: rows and counts."""
    _compare(run, "ep")


@check("bytes between replicas", points=2, code="B")
@diagnosis("a reduce-scatter and an all-gather, over dp · ep, and of experts over dp")
def check_data(run: Run) -> None:
    """B: both parts."""
    _compare(run, "data")


@check("micro-batches in flight", points=1, code="S")
@diagnosis("min(m, pp - stage) with 1F1B, all m with GPipe")
def check_in_flight(run: Run) -> None:
    """S: against the lists of actions."""
    _compare(run, "in_flight")


@check("the bubble", points=1, code="S")
@diagnosis("pp - 1 of m + pp - 1 equally long slots are idle")
def check_bubble(run: Run) -> None:
    """S: a part of the whole step."""
    _compare(run, "bubble")


@check("the memo matches what a real step holds and sends", points=2, code="B")
@diagnosis("`rehearse` is given, and stays as it is; the checks above say what is missing")
def check_real(run: Run) -> None:
    """B and M: on four ranks, from tensors and ledger."""
    for case in _real(run):
        stages = [rank * case["sizes"]["pp"] // 4 for rank in range(4)]
        result = run(drive_real, {"case": case, "stages": stages}, world=4)
        found = [dict(held) for held in result.column("held")]
        for key, axes in AXES.items():
            ops = ZERO1 if key == "data" else (None,)
            sent = [result.timeline.sent(op, axis) for op in ops for axis in axes]
            for rank, each in enumerate(zip(*sent, strict=True)):
                found[rank][key] = sum(each)
        for rank, said in enumerate(result.column("said")):
            where = f"rank {rank}, {_words(case, stages[rank])}"
            for key, measured in found[rank].items():
                number = _one(run, said, key, where)
                _, likely = ANSWERS[key](Rank(case, stages[rank]))
                run.true(
                    number == measured,
                    f"{key!r} is not what was measured ({where})",
                    rank=rank,
                    expected=f"{measured:,}",
                    measured=f"{number:,}",
                    cause=next((w for w, n in likely.items() if n == number), ""),
                )
