"""The parts that need no ranks: comparison, payload, starters, mutants, the catalog, the fence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from course_lib.grade.author.build import BuildError, is_given, starter
from course_lib.grade.catalog import Entry, SuiteError, find, read_suite
from course_lib.grade.checks import Check, CheckFailed
from course_lib.grade.rank import payload
from course_lib.grade.rank.fence import Fence, Refused, Seal
from course_lib.grade.report.card import CheckResult
from course_lib.grade.report.words import details
from course_lib.grade.suite.compare import compare, other_type, tolerance
from course_lib.trace import Refusal

# --- payload -------------------------------------------------------------------------------------
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8,
          torch.bool, torch.complex64, torch.float8_e4m3fn]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_tensors_travel_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 4).to(dtype)
    back = payload.unpack(*payload.pack({"t": [tensor, (tensor,)]}))["t"]
    assert back[0].dtype == dtype and back[0].shape == tensor.shape
    first, second = (t.reshape(-1).view(torch.uint8) for t in (tensor, back[1][0]))
    assert torch.equal(first, second)


def test_values_travel_and_objects_do_not() -> None:
    class Mine:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    value = {"a": [1, 2.5, None, True, "é"], (0, 1): {3, 4}, "b": b"\x00\xff", "d": torch.float16}
    assert payload.unpack(*payload.pack(value)) == value
    assert payload.unpack(*payload.pack(Mine())) == payload.Opaque("Mine", "")
    assert payload.unpack(*payload.pack(float("inf"))) == float("inf")
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not payload.unpack(*payload.pack(parameter)).requires_grad
    one_of_six = torch.arange(6)[1::6]  # a stride that no other element shows
    assert payload.unpack(*payload.pack(one_of_six)).tolist() == [1]


# --- compare -------------------------------------------------------------------------------------
def test_infinity_is_near_nothing_else() -> None:
    compare(float("inf"), float("inf"), "the rate")
    for actual, expected in (
        (1e300, float("inf")),
        (float("inf"), 1.0),
        (-float("inf"), float("inf")),
    ):
        with pytest.raises(CheckFailed):
            compare(actual, expected, "the rate")


def _said(actual: torch.Tensor | float, expected: torch.Tensor | float) -> str:
    with pytest.raises(CheckFailed) as caught:
        compare(actual, expected, "the weight")
    return caught.value.cause


def test_float32_is_blamed_for_its_own_rounding_alone() -> None:
    right = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    part = right.clone()
    part[16:] = part[16:].float().double()  # some of it went over the wire in float32
    forgotten = right.clone()
    forgotten[16:] += 2e-7 * right.flip(0)[16:]  # a shard of other ranks, one small step too old
    assert "float32's rounding" in _said(right.float().double(), right)
    assert "float32's rounding" in _said(part, right)
    assert "float32's rounding" not in _said(forgotten, right)
    norm = math.sqrt(2.0)
    assert "float32's rounding" in _said(float(torch.tensor(norm)), norm)
    assert not _said(norm + 1e-3, norm)


def test_a_right_value_of_another_type_is_told_from_a_wrong_value() -> None:
    for actual, kind in ((3.0, "float"), (torch.tensor(3), "Tensor")):
        assert other_type(actual, 3).endswith(f"its type is {kind}, not int")
    assert not other_type(4.0, 3) and not other_type(3, 3) and not other_type("3", 3)


def test_what_was_found_is_not_said_twice_in_a_card() -> None:
    same = {"message": "the norm has the wrong value", "expected": "2", "measured": "3"}
    check = Check("check_norm", "the norm", 1, "E")
    seen: dict[tuple[str, ...], int] = {}
    first = CheckResult(check, "failed", **same, cause="add the squares")
    second = CheckResult(check, "failed", **same, cause="send one number")
    assert details(first, seen, 1)[-1] == "likely:   add the squares"
    assert details(second, seen, 2) == ["the same as in check 1"]


def test_rounding_passes_and_a_bug_does_not() -> None:
    value = torch.randn(1000, dtype=torch.float64)
    compare(value * (1 + 1e-12), value, "x")
    with pytest.raises(CheckFailed):
        compare(value * (1 + 1e-7), value, "x")
    compare(value.float() * (1 + 1e-7), value.float(), "x")
    assert tolerance(torch.int64) == 0.0
    assert tolerance(torch.bfloat16, 8) > tolerance(torch.float32, 8) > tolerance(torch.float64, 8)


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (None, ("no tensor", "nothing is returned")),
        (torch.ones(3), ("wrong shape",)),
        (torch.ones(2, 3), ("wrong dtype",)),
        (torch.zeros(2, 3, dtype=torch.float64), ("all zeros",)),
        (torch.full((2, 3), 8.0, dtype=torch.float64), ("4 times",)),
        (torch.full((2, 3), float("nan"), dtype=torch.float64), ("6 of 6 are NaN",)),
        (torch.full((2, 3), 2.0, dtype=torch.float64) + torch.eye(3)[:2], ("4 of", "[0, 0]")),
    ],
)
def test_a_failure_says_what_it_looks_like(actual: object, words: tuple[str, ...]) -> None:
    expected = torch.full((2, 3), 2.0, dtype=torch.float64)
    if "4 of" in words:
        words = ("2 of 6 wrong", "[0, 0]")
    with pytest.raises(CheckFailed) as caught:
        compare(actual, expected, "x", rank=1)
    text = " ".join([caught.value.message, caught.value.measured, caught.value.cause])
    assert all(word in text for word in words)
    assert caught.value.rank == 1


def test_known_wrong_answers_are_named_also_inside_a_dict() -> None:
    expected = {"w": torch.ones(3), "b": torch.full((3,), 2.0)}
    with pytest.raises(CheckFailed, match=r"grads\['b'\]") as caught:
        compare({"w": torch.ones(3), "b": torch.full((3,), 5.0)}, expected, "grads",
                likely={"a sum": {"w": torch.ones(3), "b": torch.full((3,), 5.0)}})  # fmt: skip
    assert caught.value.cause == "a sum"
    with pytest.raises(CheckFailed, match="wrong items"):
        compare({"w": torch.ones(3)}, expected, "grads")


# --- starters, mutants, catalog ------------------------------------------------------------------
def test_a_starter_is_cut_out_of_the_solution(double: Entry) -> None:
    double.solution.parent.mkdir(parents=True)
    text = (
        "def double(x):\n    y = 1  # mutate: same\n"
        "    # BEGIN SOLUTION: add\n    return x\n    # END SOLUTION\n"
    )
    double.solution.write_text(text)
    assert starter(double) == (
        'def double(x):\n    y = 1\n    raise NotImplementedError("double: add")\n'
    )
    for damaged in ("def double(x):\n    return x\n", text.replace("END", "STOP")):
        double.solution.write_text(damaged)
        with pytest.raises(BuildError):
            starter(double)


def test_a_starter_may_be_code_to_repair(double: Entry) -> None:
    double.solution.parent.mkdir(parents=True)
    double.solution.write_text(
        "def double(x):\n    # BEGIN SOLUTION\n    #: y = x\n    #: if y:\n    #:     y = 3 * y\n"
        "    y = 2 * x  # not 3\n    # END SOLUTION\n    return y\n"
    )
    assert starter(double) == (
        "def double(x):\n    y = x\n    if y:\n        y = 3 * y\n    return y\n"
    )
    assert is_given(starter(double))


def test_names_are_found_and_missed_kindly(tmp_path: Path) -> None:
    for name in ("ring_all_reduce", "01_collectives/ring_all_reduce", "x/ring_all_reduce.py"):
        assert find(name).name == "ring_all_reduce"
    with pytest.raises(Refusal, match="did you mean ring_all_reduce"):
        find("ring_allreduce")
    with pytest.raises(Refusal, match="course list"):
        find("qqqq")


def test_exercises_without_their_suites_are_refused(tmp_path: Path) -> None:
    (tmp_path / "exercises" / "00_ranks").mkdir(parents=True)
    with pytest.raises(Refusal, match="no suite in grading/suites"):
        find("hello_mesh", tmp_path)


@pytest.mark.parametrize("text", ["", "x = (", "EXERCISE = Exercise(name=1 + 1)", "EXERCISE = 3"])
def test_a_suite_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(SuiteError, match="bad.py"):
        read_suite(path, tmp_path)


# --- the fence, without closing it ---------------------------------------------------------------
def test_the_fence_knows_its_folders(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    places = [[str(tmp_path / name)] for name in ("in", "hidden", "mine")]
    fence = Fence(*places)
    fence._hook("open", (str(tmp_path / "in" / "a"), "r", 0))
    fence._hook("open", (str(tmp_path / "mine" / "a"), "w", 1))
    with pytest.raises(Refused, match="writing /a/b/c: "):
        fence._hook("open", ("/a/b/c", "w", 1))
    with pytest.raises(Refused, match="writing .../c/d/e: "):
        fence._hook("open", ("/a/b/c/d/e", "w", 1))
    with pytest.raises(Refused, match="working folder"):
        fence._hook("open", (str(tmp_path / "other"), "w", 1))
    with pytest.raises(Refused):
        fence._hook("open", (str(tmp_path / "other" / ".." / "in" / "a"), "w", 1))
    with pytest.raises(Refused):
        fence._hook("open", (str(tmp_path / "hidden" / "a"), "r", 0))
    with pytest.raises(Refused):
        fence._hook("os.rename", (str(tmp_path / "mine" / "x"), str(tmp_path / "in" / "a"), -1, -1))
    assert len(fence.tampering) == 3


def test_a_seal_breaks_when_a_method_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib import comm

    seal = Seal([comm])
    assert seal.broken() == []
    monkeypatch.setattr(comm.Work, "wait", print)
    assert seal.broken() == ["replaced course_lib.comm.Work.wait"]
