"""memory_model: each number on hidden layouts, and all of them beside real tensors."""

from __future__ import annotations

from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.layout import Layout
from course_lib.model import ModelConfig
from grading.references.planning import measured_tensors
from grading.references.planning.memory_rules import ANSWERS, CLASSES, Rank, most

EXERCISE = Exercise(
    title="Will it fit? Bytes on the fullest rank",
    core=True,
    minutes=45,
    order=10,
    defines=("memory_model", "fullest"),
    library=("layout", "model.ModelConfig"),
    hints=(
        "First count a rank's parameters: those of one block times L/pp, and those of the ends "
        "that this stage has. Then ask three times: does this stage of ZeRO cut it? For the "
        "activations, write down what one block keeps of one token, and multiply at the end.",
        "A block has D·W/tp + 2·D parameters with W = 2·(D + E) + (3 or 2)·F. W is also the "
        "number of values that a block keeps of a token inside the regions that tp cuts: "
        "item·W/tp bytes. Outside they are 4·item + 2 bytes times D, of tokens/tp if `sequence`; "
        "the scores are (2·item + 1)·heads·s/tp.",
        "held = [-(-count // dp) if zero >= level else count for level in (3, 2, 1)]; times "
        "(2, 4, 12) for bf16 below ZeRO-3, else (4, 4, 8). Blocks · what one keeps · "
        "min(micro_batches, pp - stage). The head is last · (2·item·outside·D + 4·tokens·V/tp).",
    ),
)

CLOSE = 0.02  # of what is measured: norms keep two numbers a token that the rules leave out


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Any]) -> list[dict[str, Any]]:
    """The answer for every stage of every case, and for the fullest."""
    found = []
    for shape, spread in cases:
        config, layout = ModelConfig(**shape), Layout(**spread)
        stages = [_answer(learner, config, layout, stage) for stage in range(layout.pp)]
        found.append({"stages": stages, "most": _plain(learner.fullest(config, layout))})
    return found


def drive_real(learner: Any, group: Any, cases: list[Any]) -> list[list[dict[str, Any]]]:
    """What the answer says of every stage, and what its tensors hold when they are made."""
    found = []
    for shape, spread in cases:
        config, layout = ModelConfig(**shape), Layout(**spread)
        found.append(
            [
                {
                    "said": _answer(learner, config, layout, stage),
                    "made": measured_tensors.states(config, layout, stage)
                    | measured_tensors.kept(config, layout, stage),
                }
                for stage in range(layout.pp)
            ]
        )
    return found


def _answer(learner: Any, config: ModelConfig, layout: Layout, stage: int) -> Any:
    said = learner.memory_model(config, layout, stage)
    if not isinstance(said, dict):
        return repr(said)
    return {str(key): _plain(value) for key, value in said.items()}


def _plain(value: Any) -> Any:
    return value if type(value) in (int, float) else repr(value)


# --- cases ---------------------------------------------------------------------------------------
def _case(
    run: Run,
    layers: int,
    heads: tuple[int, int],
    tied: bool = False,
    gated: bool = True,
    **spread: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model of hidden sizes, which tp divides, and its layout."""
    tp = spread.get("tp", 1)
    shape = {
        "layers": layers, "hidden": heads[0] * 2 * run.number(3, 7), "heads": heads[0],
        "kv_heads": heads[1], "ffn": tp * run.number(11, 37), "tied": tied, "gated": gated,
        "vocabulary": tp * run.number(31, 97), "sequence": 4 * tp * run.number(3, 9),
    }  # fmt: skip
    return shape, {"micro_batch_size": run.number(2, 5), **spread}


def _cases(run: Run) -> list[Any]:
    """Every stage of ZeRO in both precisions; axes of 1 and more; few and many micro-batches."""
    return [
        _case(run, 3, (4, 2), dp=5, zero=1, micro_batches=3),
        _case(run, 8, (6, 6), gated=False, pp=4, dp=5, tp=3, zero=2, sequence=True,
              micro_batches=7, recompute="selective"),
        _case(run, 6, (8, 4), pp=3, dp=7, tp=4, zero=3, micro_batches=2),
        _case(run, 4, (2, 2), tied=True, pp=2, dp=3, tp=2, sequence=True, precision="fp32",
              micro_batches=5, recompute="full"),
        _case(run, 2, (3, 1), tied=True, dp=4, zero=3, precision="fp32", micro_batches=2,
              recompute="full"),
        _case(run, 6, (2, 1), tied=True, gated=False, pp=3, dp=2, micro_batches=6),
        _case(run, 4, (2, 2), gated=False, pp=2, dp=5, tp=2, zero=2, precision="fp32",
              micro_batches=4),
        _case(run, 4, (8, 4), pp=2, dp=2, tp=4, zero=1, micro_batches=3, recompute="full"),
    ]  # fmt: skip


def _real(run: Run) -> list[Any]:
    """Small ones, of which all tensors are made."""
    return [
        _case(run, 6, (6, 6), gated=False, pp=3, dp=2, tp=3, zero=1, micro_batches=5),
        _case(run, 4, (4, 2), tied=True, pp=2, dp=3, tp=2, zero=2, sequence=True,
              micro_batches=4, recompute="selective"),
        _case(run, 2, (4, 2), tied=True, dp=3, zero=3, micro_batches=2, recompute="full"),
        _case(run, 3, (2, 1), dp=2, zero=1, precision="fp32"),
    ]  # fmt: skip


def _words(case: Any, stage: int) -> str:
    shape, spread = case
    layout = Layout(**spread)
    more = [f"{layout.micro_batches} micro-batches", layout.precision, f"ZeRO-{layout.zero}"]
    more += ["tied"] * shape["tied"] + ["sequence"] * layout.sequence
    more += [f"recompute {layout.recompute}"] * (layout.recompute != "none")
    return f"stage {stage} of pp {layout.pp} × dp {layout.dp} × tp {layout.tp}; " + ", ".join(more)


# --- comparing -----------------------------------------------------------------------------------
def _one(run: Run, said: Any, key: str, where: str) -> float:
    """A number out of what was returned, if it is one."""
    run.true(
        isinstance(said, dict),
        f"memory_model does not return a dict ({where})",
        measured=str(said),
        cause="return a dict of all five numbers",
    )
    run.true(key in said, f"the dict lacks {key!r} ({where})", measured=", ".join(said))
    return _number(run, said[key], repr(key), where)


def _number(run: Run, value: Any, what: str, where: str) -> float:
    run.true(
        isinstance(value, (int, float)),
        f"{what} is not a number ({where})",
        measured=str(value),
        cause="bytes are whole numbers",
    )
    return value


def _same(one: float, two: float) -> bool:
    return abs(one - two) <= 1e-9 * abs(two)


def _hold(run: Run, value: float, right: float, likely: dict[str, float], what: str) -> None:
    """Fails if a number of bytes is wrong, with the rule that explains it, or is no int."""
    if not _same(value, right):
        cause = next((why for why, other in likely.items() if _same(value, other)), "")
        run.fail(
            f"{what} is wrong",
            expected=f"{right:,} bytes",
            measured=f"{value:,.10g} bytes",
            cause=cause,
        )
    run.true(
        isinstance(value, int),
        f"{what} is a float, not an int",
        measured=repr(value),
        cause="bytes are whole numbers: divide with //",
    )


def _compare(run: Run, key: str) -> None:
    """One number, on every stage of every layout."""
    cases = _cases(run)
    for case, found in zip(cases, run(drive, {"cases": cases}).outputs[0], strict=True):
        for stage, said in enumerate(found["stages"]):
            where = _words(case, stage)
            right, likely = ANSWERS[key](Rank(ModelConfig(**case[0]), Layout(**case[1]), stage))
            value = _one(run, said, key, where)
            _hold(run, value, right, likely, f"{key!r} ({where})")


# --- checks --------------------------------------------------------------------------------------
@check("parameters", points=3, code="M")
@diagnosis("count those of a block, of L/pp blocks, and of the ends that this stage has")
def check_parameters(run: Run) -> None:
    """M: counted on a model that is made."""
    _compare(run, "parameters")


@check("gradients", points=1, code="M")
@diagnosis("4 bytes each; cut from ZeRO-2 on")
def check_gradients(run: Run) -> None:
    """M: the same count."""
    _compare(run, "gradients")


@check("optimizer state", points=2, code="M")
@diagnosis("12 bytes with the master copy, 8 without; cut from ZeRO-1 on")
def check_optimizer(run: Run) -> None:
    """M: the same count."""
    _compare(run, "optimizer")


@check("activations", points=4, code="M")
@diagnosis("blocks · (outside + inside + scores) · micro-batches in flight")
def check_activations(run: Run) -> None:
    """M: term by term, after Korthikanti."""
    _compare(run, "activations")


@check("the head", points=1, code="M")
@diagnosis("2·item·D outside, and 4·V/tp a token")
def check_head(run: Run) -> None:
    """M: on the last stage."""
    _compare(run, "head")


@check("the fullest rank", points=1, code="M")
@diagnosis("the largest sum of all stages, once the five numbers are right")
def check_most(run: Run) -> None:
    """M: over all stages."""
    cases = _cases(run)
    for case, found in zip(cases, run(drive, {"cases": cases}).outputs[0], strict=True):
        right, likely = most(ModelConfig(**case[0]), Layout(**case[1]))
        where = _words(case, 0).partition(" of ")[2]
        value = _number(run, found["most"], "fullest", where)
        _hold(run, value, right, likely, f"the fullest rank's ({where})")


@check("within 2 % of the bytes of real tensors", points=3, code="M")
@diagnosis("the checks above say which number is wrong, and why")
def check_real(run: Run) -> None:
    """M: a stage's part of the model, a step of Adam, and forwards, all made and counted."""
    cases = _real(run)
    for case, stages in zip(cases, run(drive_real, {"cases": cases}).outputs[0], strict=True):
        for stage, found in enumerate(stages):
            rank = Rank(ModelConfig(**case[0]), Layout(**case[1]), stage)
            for key, bytes_ in found["made"].items():
                parts = (key,) if key in CLASSES else ("activations", "head")
                _near(run, rank, found["said"], parts, bytes_, _words(case, stage))


def _near(run: Run, rank: Rank, said: Any, parts: tuple[str, ...], bytes_: int, where: str) -> None:
    """Fails if some numbers together are not what was measured."""
    values = {part: _one(run, said, part, where) for part in parts}
    causes = (
        why
        for part, value in values.items()
        for why, other in ANSWERS[part](rank)[1].items()
        if _same(value, other) and not _same(value, ANSWERS[part](rank)[0])
    )
    run.true(
        abs(sum(values.values()) - bytes_) <= CLOSE * bytes_,
        f"{' and '.join(map(repr, parts))}: not what tensors hold ({where})",
        expected=f"{bytes_:,} bytes, within 2 %",
        cause=next(causes, ""),
        measured=f"{sum(values.values()):,.10g} bytes",
    )
