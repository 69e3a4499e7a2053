"""step_time: each term on hidden layouts, and the order of layouts beside the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, diagnosis
from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan import Cluster, Link, Software, model, simulate
from course_lib.plan import cluster as make_cluster
from grading.references.planning import step_time_rules

EXERCISE = Exercise(
    title="How long is a step? Five terms",
    core=True,
    minutes=45,
    order=20,
    defines=("all_reduce", "step_time"),
    library=("layout", "model.ModelConfig", "plan.Cluster"),
    hints=(
        "Begin with `all_reduce`: which link, then one line. For `step_time`, first write down "
        "how long one micro-batch takes on a stage without the output layer: computing, tp's "
        "sums, messages. Everything else is a multiple of these three, except the output layer "
        "and dp.",
        "A helper `passes(flops, weights)` gives forward and backward: max(f/rate, 2·W/bandwidth) "
        "and max(2·f/rate, 12·W/bandwidth). A block's f is 2·n·w/tp + 2·n·s·D/tp, the output "
        "layer's 2·n·V·D/tp. blocks = L/pp · ((1 + again)·forward + backward).",
        "sums = L/pp · (4 + 2·again) · all_reduce(2·n·D, tp, 1, cluster); messages = 2 · "
        "link.seconds(2·n·D/tp). compute, tp and pp are m times their own, the bubble (pp - 1) · "
        "(blocks + sums + messages), and dp max(0, all_reduce(gradients, dp, tp, cluster) - "
        "L/pp · backward).",
    ),
)

# As the rules have it: messages and gradients hide behind computing, the sums of tp do not.
SOFTWARE = Software(overlap=frozenset({"dp", "pp"}))
EFFICIENCY = 0.6
PROBLEMS = (("llama3-8b", "H100", 64, 128), ("llama2-70b", "H100", 128, 128),
            ("megatron-22b", "A100-80", 64, 64))  # fmt: skip
EACH = 24  # layouts of a problem
APART = 0.05  # pairs whose simulated times are nearer than that are left out
IN_ORDER = 0.965  # of the others: the rules reach 0.972 to 0.997, without the bubble 0.64 to 0.76


# --- what runs on the rank -----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[Any], sums: list[Any]) -> dict[str, Any]:
    """The terms of every case, and the seconds of some sums."""
    found = []
    for shape, spread, hardware, efficiency in cases:
        said = learner.step_time(
            ModelConfig(**shape), Layout(**spread), _cluster(hardware), efficiency
        )
        found.append(_terms(said))
    each = [_plain(learner.all_reduce(*args, _cluster(hardware))) for *args, hardware in sums]
    return {"terms": found, "sums": each}


def drive_known(learner: Any, group: Any, spreads: list[list[dict[str, Any]]]) -> list[Any]:
    """The terms of layouts of known models."""
    return [
        [
            _terms(
                learner.step_time(
                    model(name), Layout(**spread), make_cluster(gpu, count), EFFICIENCY
                )
            )
            for spread in layouts
        ]
        for (name, gpu, count, _), layouts in zip(PROBLEMS, spreads, strict=True)
    ]


def _cluster(hardware: dict[str, Any]) -> Cluster:
    known = make_cluster(hardware["gpu"], hardware["count"])
    inside, between = (Link(*hardware[name]) for name in ("inside", "between"))
    node = hardware["node"]
    return replace(known, node=node, adapters=node, inside=inside, between=between)


def _terms(said: Any) -> Any:
    if not isinstance(said, dict):
        return repr(said)
    return {str(key): _plain(value) for key, value in said.items()}


def _plain(value: Any) -> Any:
    return float(value) if type(value) in (int, float) else repr(value)


# --- cases ---------------------------------------------------------------------------------------
def _hardware(run: Run, count: int, node: int, network: float, gpu: str = "H100") -> dict[str, Any]:
    """Links of hidden speed; `network` is the bandwidth of an adapter, in parts of the inside's."""
    inside = run.number(100, 500) * 1e9
    return {"gpu": gpu, "count": count, "node": node,
            "inside": (run.number(20, 90) * 1e-7, inside),
            "between": (run.number(100, 300) * 1e-7, network * inside)}  # fmt: skip


def _case(
    run: Run,
    hardware: tuple[int, float],
    tokens: int,
    heads: tuple[int, int],
    tied: bool = False,
    gated: bool = True,
    **spread: Any,
) -> list[Any]:
    """A model of hidden sizes, its layout and cluster; `tokens` is about its sequence."""
    layout = Layout(**spread)
    shape = {
        "layers": layout.pp * run.number(2, 6), "hidden": heads[0] * 64, "heads": heads[0],
        "kv_heads": heads[1], "ffn": 16 * run.number(150, 400), "tied": tied, "gated": gated,
        "vocabulary": 16 * run.number(900, 3000), "sequence": 16 * run.number(tokens, 2 * tokens),
    }  # fmt: skip
    node, network = hardware
    return [shape, spread, _hardware(run, layout.gpus, node, network), run.number(40, 80) / 100]


def _cases(run: Run) -> list[list[Any]]:
    """Groups in a node and across; few tokens and many; each way to recompute."""
    return [
        _case(run, (8, 0.02), 60, (16, 8), dp=8, tp=4, micro_batches=3, micro_batch_size=2),
        _case(run, (8, 0.1), 60, (32, 8), pp=4, dp=3, tp=8, micro_batches=5, recompute="full"),
        _case(run, (8, 0.1), 8, (16, 4), tied=True, pp=2, dp=2, tp=2, micro_batches=3),
        _case(run, (8, 0.05), 40, (32, 32), gated=False, pp=2, dp=2, tp=16, micro_batches=4,
              sequence=True, zero=1),
        _case(run, (4, 0.03), 2, (16, 8), pp=3, dp=5, micro_batches=7, recompute="selective"),
        _case(run, (4, 0.8), 3, (16, 16), tied=True, dp=6, tp=2, micro_batches=2, zero=2),
        _case(run, (6, 0.2), 4, (16, 2), dp=4, micro_batches=2, micro_batch_size=2,
              recompute="full"),
        _case(run, (8, 0.2), 30, (16, 2), micro_batches=2, precision="fp32"),
    ]  # fmt: skip


def _sums(run: Run) -> list[list[Any]]:
    """Sums in a node, across nodes with one adapter and with several, and none."""
    groups = [(8, 1, 8, 0.1), (6, 1, 4, 0.1), (4, 8, 8, 0.1), (5, 4, 8, 0.1), (4, 2, 8, 0.1),
              (6, 1, 2, 0.9), (1, 8, 8, 0.1), (3, 6, 8, 0.1), (2, 6, 8, 0.1)]  # fmt: skip
    return [
        [run.number(1, 900) * 1e5, ranks, stride, _hardware(run, 512, node, network)]
        for ranks, stride, node, network in groups
    ]


def _inputs(run: Run) -> dict[str, Any]:
    return {"cases": _cases(run), "sums": _sums(run)}


def _words(case: list[Any]) -> str:
    shape, spread, hardware, _ = case
    layout = Layout(**spread)
    more = [f"recompute {layout.recompute}"] * (layout.recompute != "none")
    more += ["tied"] * shape["tied"]
    return ", ".join(
        [
            f"pp {layout.pp} × dp {layout.dp} × tp {layout.tp}",
            f"{hardware['node']} GPUs a node",
            f"{layout.micro_batches} micro-batches",
            f"{layout.micro_batch_size} × {shape['sequence']} tokens",
            *more,
        ]
    )


def _known(run: Run) -> list[list[dict[str, Any]]]:
    """For each problem some of its layouts, drawn again for each seed."""
    chosen = []
    for name, _, count, batch in PROBLEMS:
        every = list(_layouts(model(name), count, batch))
        places = run.random(len(every)).argsort()[:EACH].tolist()
        chosen.append([every[place] for place in places])
    return chosen


def _layouts(config: ModelConfig, count: int, batch: int) -> Iterator[dict[str, Any]]:
    ways = product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), ("none", "full"))
    for pp, tp, rows, recompute in ways:
        dp = count // (pp * tp)
        if config.layers % pp == 0 and batch % (dp * rows) == 0:
            yield {
                "pp": pp,
                "dp": dp,
                "tp": tp,
                "micro_batch_size": rows,
                "recompute": recompute,
                "micro_batches": batch // (dp * rows),
                "zero": 1,
            }


# --- comparing -----------------------------------------------------------------------------------
def _number(run: Run, said: Any, key: str, where: str) -> float:
    """A term out of what was returned, if it is one."""
    run.true(
        isinstance(said, dict),
        f"step_time does not return a dict ({where})",
        measured=str(said),
        cause="return a dict of all five terms",
    )
    run.true(key in said, f"the dict lacks {key!r} ({where})", measured=", ".join(said))
    run.true(
        isinstance(said[key], float), f"{key!r} is not a number ({where})", measured=str(said[key])
    )
    value: float = said[key]
    return value


def _same(one: float, two: float) -> bool:
    return abs(one - two) <= 1e-9 * abs(two)


def _compare(run: Run, key: str) -> None:
    """One term, on every layout."""
    given = _inputs(run)
    for case, said in zip(given["cases"], run(drive, given).outputs[0]["terms"], strict=True):
        shape, spread, hardware, efficiency = case
        right, likely = step_time_rules.answer(
            key, ModelConfig(**shape), Layout(**spread), _cluster(hardware), efficiency
        )
        value = _number(run, said, key, _words(case))
        if not _same(value, right):
            cause = next((why for why, other in likely.items() if _same(value, other)), "")
            run.fail(
                f"{key!r} is wrong ({_words(case)})",
                expected=f"{right:.6g} s",
                measured=f"{value:.6g} s",
                cause=cause,
            )


# --- checks --------------------------------------------------------------------------------------
@check("a sum over a group", points=2, code="B")
@diagnosis("choose the link, then 2(N-1) messages")
def check_sums(run: Run) -> None:
    """B: in a node, across nodes, with one adapter and with several."""
    given = _inputs(run)
    for (size, ranks, stride, hardware), found in zip(
        given["sums"], run(drive, given).outputs[0]["sums"], strict=True
    ):
        place = _cluster(hardware)
        right = step_time_rules.ring(size, ranks, stride, place)
        where = f"{ranks} ranks, {stride} apart, {place.node} GPUs a node"
        run.true(
            isinstance(found, float),
            f"all_reduce does not return a number ({where})",
            measured=str(found),
        )
        rules = step_time_rules.SENDING.items()
        wrong = {
            why: step_time_rules.ring(size, ranks, stride, place, **rule) for why, rule in rules
        }
        cause = next((why for why, other in wrong.items() if _same(found, other)), "")
        run.true(
            _same(found, right),
            f"the seconds of a sum ({where})",
            cause=cause,
            expected=f"{right:.6g} s",
            measured=f"{found:.6g} s",
        )


@check("computing", points=3, code="E")
@diagnosis("for each pass the slower of FLOPs and bytes; blocks and output layer")
def check_compute(run: Run) -> None:
    """E: FLOPs, roofline and recomputation."""
    _compare(run, "compute")


@check("sums over tp", points=2, code="B")
@diagnosis("four in each block, six with `full`")
def check_tp(run: Run) -> None:
    """B: in a node and across."""
    _compare(run, "tp")


@check("messages between stages", points=1, code="B")
@diagnosis("two in each micro-batch")
def check_pp(run: Run) -> None:
    """B: the right link."""
    _compare(run, "pp")


@check("the bubble", points=2, code="S")
@diagnosis("pp - 1 times computing, tp and messages")
def check_bubble(run: Run) -> None:
    """S: at the pace of the other stages."""
    _compare(run, "bubble")


@check("the exposed part of dp", points=3, code="B")
@diagnosis("the sum minus the last backward")
def check_dp(run: Run) -> None:
    """B: which gradients, which link, and what hides them."""
    _compare(run, "dp")


@check("layouts in the simulator's order", points=3, code="S")
@diagnosis("the checks above say which term is wrong")
def check_order(run: Run) -> None:
    """S: of all pairs of layouts that the simulator holds apart, how many are in its order."""
    spreads = _known(run)
    answers = run(drive_known, {"spreads": spreads}).outputs[0]
    right, counted = 0, 0
    for (name, gpu, count, _), layouts, said in zip(PROBLEMS, spreads, answers, strict=True):
        where = f"{name} on {count} {gpu}"
        times = [
            sum(_number(run, one, key, where) for key in step_time_rules.PARTS) for one in said
        ]
        place = make_cluster(gpu, count)
        true = [
            simulate(model(name), Layout(**spread), place, SOFTWARE).seconds for spread in layouts
        ]
        for i, j in combinations(range(len(true)), 2):
            if abs(true[i] - true[j]) > APART * min(true[i], true[j]):
                counted += 1
                right += (true[i] - true[j]) * (times[i] - times[j]) > 0
    run.true(
        right >= IN_ORDER * counted,
        "layouts of known models are not in the right order",
        expected=f"at least {IN_ORDER:.1%} of {counted} pairs as plan.simulate has them",
        measured=f"{right / max(1, counted):.1%}",
    )
