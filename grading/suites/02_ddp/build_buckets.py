"""build_buckets: backward order, caps in bytes, one dtype a bucket, each parameter once.

A parameter is described by [elements, dtype, trained]; a case by a list of these, the places of the
parameters in the forward pass (a place that comes twice is a tied weight), and two caps.
"""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis

EXERCISE = Exercise(
    title="Buckets of gradients",
    core=True,
    minutes=15,
    order=4,
    library=(),
    hints=(
        "First make the list of the trained parameters, each once: `dict.fromkeys` keeps the "
        "first of several equal keys and their order, and `reversed` works on a dict. (`in "
        "some_list` would compare the values of parameters instead.)",
        "Keep the buckets of each dtype in their own list, in a dict: `len(...) == 1` then says "
        "that the bucket at the end of the list is the first of that dtype.",
        "Check before you add: if the open bucket is not empty, and its bytes plus the "
        "parameter's are more than the cap, open a new bucket; then add the parameter in any "
        "case. That also handles a parameter that is larger than the cap.",
    ),
)

ITEM = {torch.float64: 8, torch.float32: 4, torch.bfloat16: 2}
Spec = list[list[Any]]


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Buckets of each case, by the numbers of the parameters; -1 for what was not given."""
    found = []
    for case in cases:
        made = [
            torch.nn.Parameter(torch.zeros(count, dtype=dtype), requires_grad=trained)
            for count, dtype, trained in case["spec"]
        ]
        params = [made[number] for number in case["order"]]
        given = iter(params) if case["generator"] else params
        buckets = learner.build_buckets(given, case["cap"], case["first_cap"])
        number_of = {id(parameter): number for number, parameter in enumerate(made)}
        found.append(_numbers(buckets, number_of))
    return {"buckets": found}


def _numbers(buckets: Any, number_of: dict[int, int]) -> Any:
    if not isinstance(buckets, (list, tuple)):
        return type(buckets).__name__
    for bucket in buckets:
        if not isinstance(bucket, (list, tuple)):
            return f"a list with a {type(bucket).__name__} in it"
    return [[number_of.get(id(p), -1) for p in bucket] for bucket in buckets]


# --- what they must bring back -------------------------------------------------------------------
def cut(case: dict[str, Any], slip: str = "") -> dict[torch.dtype, list[list[int]]]:
    """The buckets of each dtype; `slip` names a known mistake to make."""
    sizes, order = _sizes(case, slip), _walk(case, slip)
    found: dict[Any, list[list[int]]] = {}
    for number in order:
        mine = found.setdefault(case["spec"][number][1], [])
        first = len(mine) <= 1 and (slip != "first of all" or len(found) == 1)
        limit = case["first_cap"] if first and slip != "no first cap" else case["cap"]
        held = sum(sizes[other] for other in mine[-1]) if mine else 0
        full = held >= limit if slip == "closed late" else held + sizes[number] > limit
        if slip == "strictly below":
            full = held + sizes[number] >= limit
        if not mine or (full and mine[-1]):
            mine.append([])
        mine[-1].append(number)
    return found


def _sizes(case: dict[str, Any], slip: str) -> list[int]:
    return [count * (1 if slip == "elements" else ITEM[dtype]) for count, dtype, _ in case["spec"]]


def _walk(case: dict[str, Any], slip: str) -> list[int]:
    """The parameters in the order in which they are put into buckets."""
    wanted = [n for n in case["order"] if case["spec"][n][2] or slip == "frozen"]
    if slip == "forward":
        return list(dict.fromkeys(wanted))
    if slip == "tied twice":
        return wanted[::-1]
    if slip == "tied at its last place":
        return list(dict.fromkeys(wanted[::-1]))
    return list(dict.fromkeys(wanted))[::-1]


LIKELY = {
    "forward": "forward order: backward reaches the last parameter first, so begin there",
    "elements": "the caps are bytes, not elements: count `nbytes`",
    "frozen": "a frozen parameter has no gradient: leave it out, or its bucket is never full",
    "tied twice": "a tied parameter is in two places: it has one gradient, so take it once",
    "tied at its last place": "a tied parameter is at its last appearance; its gradient is "
    "complete only after its first use, which backward reaches last",
    "closed late": "a bucket is closed only after it has grown over the cap: check before adding",
    "strictly below": "a bucket exactly as large as the cap was refused: use > and not >=",
    "first of all": "first_cap holds for the first bucket of *each* dtype, not of the whole list",
    "no first cap": "first_cap was not used: it is the smaller cap of the first bucket of each "
    "dtype",
}


def _compare(run: Run, cases: list[dict[str, Any]]) -> None:
    """All cases in one run, each compared dtype by dtype."""
    first, second = run(drive, {"cases": cases}, world=2).column("buckets")
    for case, buckets, again in zip(cases, first, second, strict=True):
        caps = f"with cap {case['cap']} and first_cap {case['first_cap']}"
        what = f"{caps}: the buckets"
        run.true(
            isinstance(buckets, list),
            "the result has the wrong form",
            expected="a list of lists of parameters",
            measured=str(buckets),
        )
        run.true(
            [] not in buckets,
            f"{what} are not all filled",
            measured=str(buckets),
            cause="there is an empty bucket: open a new one only if the open one holds something",
        )
        _check_known(run, case, buckets, what)
        for dtype in dict.fromkeys(kind for _, kind, _ in case["spec"]):
            mine = [bucket for bucket in buckets if case["spec"][bucket[0]][1] == dtype]
            likely = {why: cut(case, slip).get(dtype, []) for slip, why in LIKELY.items()}
            name = f"{caps}: the list of {str(dtype)[6:]} buckets (numbers of the parameters)"
            run.equal(mine, cut(case).get(dtype, []), name, likely=likely)
        run.equal(again, buckets, f"{caps}: rank 1's list, rank 0's being taken as right,", rank=1)


def _check_known(run: Run, case: dict[str, Any], buckets: list[list[int]], what: str) -> None:
    """Only parameters that were given, all that are trained, and one dtype in each bucket."""
    flat = [number for bucket in buckets for number in bucket]
    cause = "put the parameters themselves into the lists, not copies or names"
    run.true(-1 not in flat, f"{what} hold something else than the parameters", cause=cause)
    lost = {n for n in case["order"] if case["spec"][n][2]} - set(flat)
    cause = "a bucket that was still open at the end was lost, or its parameter was"
    run.true(not lost, f"{what} lack parameters {sorted(lost)}", measured=str(buckets), cause=cause)
    for bucket in buckets:
        kinds = sorted({str(case["spec"][number][1])[6:] for number in bucket})
        run.true(
            len(kinds) == 1,
            f"{what} mix dtypes",
            measured=f"{' and '.join(kinds)} in one",
            expected="one dtype a bucket",
            cause="a bucket becomes one flat tensor, which has one dtype",
        )


def _case(spec: Spec, cap: int, first_cap: int, order: Any = None, **more: Any) -> dict[str, Any]:
    places = list(range(len(spec))) if order is None else order
    return {"spec": spec, "cap": cap, "first_cap": first_cap, "order": places,
            "generator": False, **more}  # fmt: skip


def _plain(run: Run, count: int, dtype: torch.dtype = torch.float64) -> Spec:
    return [[run.number(3, 9), dtype, True] for _ in range(count)]


@check(
    "from the last parameter to the first, closed before the cap is exceeded", points=3, code="E"
)
@diagnosis("walk through the parameters backwards, and check before adding")
def check_order(run: Run) -> None:
    """E: one dtype, equal caps; a bucket exactly as large as the cap; a generator."""
    exact = [[4, torch.float64, True]] * 7
    cases = [_case(_plain(run, 23), 160, 160), _case(exact, 96, 96), _case(exact, 100, 100)]
    cases.append(_case(_plain(run, 12), 160, 160, generator=True))
    _compare(run, [*cases, _case([], 160, 160)])


@check("a parameter larger than the cap is alone", points=1, code="E")
def check_large(run: Run) -> None:
    """E: large ones in the middle, first and last."""
    spec = _plain(run, 11)
    for place in (0, 4, 5, 10):
        spec[place] = [run.number(30, 40), torch.float64, True]
    _compare(run, [_case(spec, 200, 200), _case(spec, 200, 100), _case(spec, 1, 1)])


@check(
    "each trained parameter once: frozen ones left out, tied ones at their first place",
    points=2,
    code="E",
)
@diagnosis("two names of one parameter are one object with one gradient")
def check_once(run: Run) -> None:
    """E: frozen; tied, next to each other and far apart; equal values are not the same object."""
    spec = [
        [count, torch.float64, index % 4 != 1]
        for index, (count, _, _) in enumerate(_plain(run, 13))
    ]
    _compare(run, [_case(spec, 120, 120)])
    tied = [*range(13), 0, 4, 4]
    _compare(run, [_case(_plain(run, 13), 120, 120, tied), _case(spec, 120, 120, tied)])


@check("one dtype per bucket, and others in between do not close it", points=2, code="E")
def check_dtypes(run: Run) -> None:
    """E: three dtypes, mixed; caps in bytes, so that the same count fits differently."""
    dtypes = list(ITEM)
    spec = [[run.number(3, 9), dtypes[run.number(0, 3)], True] for _ in range(30)]
    _compare(run, [_case(spec, 80, 80), _case(spec, 40, 40)])


@check("first_cap for the first bucket of each dtype", points=2, code="E")
@diagnosis("each dtype has its own first bucket")
def check_first(run: Run) -> None:
    """E: smaller and larger first caps, one and several dtypes."""
    dtypes = list(ITEM)
    spec = [[run.number(3, 9), dtypes[run.number(0, 3)], True] for _ in range(40)]
    _compare(run, [_case(_plain(run, 20), 200, 70), _case(spec, 120, 40), _case(spec, 60, 150)])
