"""Whether two results are equal up to rounding, and if not, what they look like instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from course_lib.grade.checks import CheckFailed

FLOAT64_RTOL = 1e-9  # an honest float64 answer errs by 1e-13; few real bugs by less than this
FLOAT64_EXACT = 1e-11  # an element that errs by less has met no narrower type
SHOWN = 6  # values of a tensor that are written out
ROUNDED = "the error is as large as float32's rounding: is something cast on its way?"


def tolerance(dtype: torch.dtype, terms: int = 4) -> float:
    """Relative error that rounding alone explains.

    Args:
        dtype: of the result; integers must be exact.
        terms: how many numbers are added up in one element.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return max(FLOAT64_RTOL, torch.finfo(dtype).eps * max(2, terms))


def compare(
    actual: Any,
    expected: Any,
    what: str,
    *,
    rank: int | None = None,
    likely: Mapping[str, Any] | None = None,
    terms: int = 4,
) -> None:
    """Compares a result with what it should be; dicts and lists item by item.

    Args:
        actual: what the learner's code returned.
        expected: tensors, numbers, or dicts and lists of them.
        what: its name in the message.
        rank: whose it is.
        likely: known wrong results, each under the sentence that explains it.
        terms: as in `tolerance`.

    Raises:
        CheckFailed: type, shape, dtype or values differ.
    """
    likely = likely or {}
    if isinstance(expected, (dict, list, tuple)):
        _compare_items(actual, expected, what, rank, likely, terms)
        return
    if isinstance(expected, torch.Tensor):
        _check_form(actual, expected, what, rank)
        wrong = _first_wrong(actual, expected, terms)
    else:
        wrong = _wrong_number(actual, expected)
    if wrong is None:
        return
    cause = next((why for why, other in likely.items() if _looks_like(actual, other, terms)), "")
    raise CheckFailed(
        f"{what} has the wrong value",
        rank,
        describe(expected),
        f"{describe(actual)}{wrong}",
        cause or _guess(actual, expected, terms),
    )


def _compare_items(
    actual: Any, expected: Any, what: str, rank: int | None, likely: Mapping[str, Any], terms: int
) -> None:
    """The same for containers; what is likely has the same form as what is expected."""
    is_dict = isinstance(expected, dict)
    if not isinstance(actual, dict if is_dict else (list, tuple)):
        raise CheckFailed(
            f"{what} has the wrong type", rank, type(expected).__name__, describe(actual)
        )
    keys = list(expected) if is_dict else list(range(len(expected)))
    there = list(actual) if is_dict else list(range(len(actual)))
    if set(keys) != set(there):
        raise CheckFailed(f"{what} has the wrong items", rank, _names(keys), _names(there))
    for key in keys:
        others = {why: other[key] for why, other in likely.items() if _has(other, key)}
        compare(
            actual[key], expected[key], f"{what}[{key!r}]", rank=rank, likely=others, terms=terms
        )


def _has(container: Any, key: Any) -> bool:
    try:
        container[key]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _names(keys: list[Any]) -> str:
    return f"{len(keys)}: " + ", ".join(map(str, keys[:8])) + (", ..." if len(keys) > 8 else "")


def _check_form(actual: Any, expected: torch.Tensor, what: str, rank: int | None) -> None:
    """Compares type, shape and dtype, before any value."""
    if not isinstance(actual, torch.Tensor):
        cause = "nothing is returned" if actual is None else ""
        raise CheckFailed(f"{what} is no tensor", rank, describe(expected), describe(actual), cause)
    if actual.shape != expected.shape:
        raise CheckFailed(
            f"{what} has the wrong shape",
            rank,
            str(tuple(expected.shape)),
            str(tuple(actual.shape)),
        )
    if actual.dtype != expected.dtype:
        raise CheckFailed(
            f"{what} has the wrong dtype",
            rank,
            _name(expected.dtype),
            _name(actual.dtype),
            "it was cast on its way",
        )


def _first_wrong(actual: torch.Tensor, expected: torch.Tensor, terms: int) -> str | None:
    """Where two tensors of the same form differ, in words; None if they do not."""
    bad = ~_near(actual, expected, terms)
    count = int(bad.sum())
    if not count:
        return None
    if actual.dtype.is_floating_point and bool(actual.isnan().any() & ~expected.isnan().any()):
        return f"; {int(actual.isnan().sum())} of {actual.numel()} are NaN"
    if not actual.dim():
        return ""
    place = tuple(bad.nonzero()[0].tolist())
    index = ", ".join(map(str, place))
    values = f"{_number(actual[place])}, not {_number(expected[place])}"
    return f"; {count} of {actual.numel()} wrong, first at [{index}]: {values}"


def _near(actual: torch.Tensor, expected: torch.Tensor, terms: int) -> torch.Tensor:
    """Elementwise: equal up to rounding, relative to the largest value expected."""
    limit = tolerance(expected.dtype, terms)
    if limit == 0.0:
        return actual == expected
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    first, second = actual.to(wide), expected.to(wide)
    finite = second[second.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    close = (first - second).abs() <= limit * (scale or 1.0)
    return close | (first == second) | (first.isnan() & second.isnan())


def _wrong_number(actual: Any, expected: Any) -> str | None:
    if isinstance(actual, torch.Tensor) and actual.numel() == 1:
        actual = actual.item()
    if isinstance(expected, float) and isinstance(actual, (int, float)):
        bound = FLOAT64_RTOL * max(1.0, abs(expected)) if math.isfinite(expected) else 0.0
        near = abs(actual - expected) <= bound
        return None if near or actual == expected else ""
    return None if type(actual) is type(expected) and actual == expected else ""


def _looks_like(actual: Any, other: Any, terms: int) -> bool:
    if isinstance(actual, torch.Tensor) and isinstance(other, torch.Tensor):
        same_form = actual.shape == other.shape and actual.dtype == other.dtype
        return same_form and bool(_near(actual, other, terms).all())
    return type(actual) is type(other) and _wrong_number(actual, other) is None


def alike(actual: Any, other: Any, terms: int) -> bool:
    """Whether two results are equal up to rounding, as a whole; lists item by item."""
    if isinstance(other, (list, tuple)):
        same_form = isinstance(actual, (list, tuple)) and len(actual) == len(other)
        return same_form and all(
            alike(one, two, terms) for one, two in zip(actual, other, strict=True)
        )
    return _looks_like(actual, other, terms)


def _guess(actual: Any, expected: Any, terms: int) -> str:
    """What a wrong tensor, or number, has in common with the right one."""
    if isinstance(actual, float) and isinstance(expected, float):
        numbers = [torch.tensor([number], dtype=torch.float64) for number in (actual, expected)]
        return ROUNDED if _rounded(*numbers) else ""
    if not isinstance(actual, torch.Tensor) or not actual.dtype.is_floating_point:
        return ""
    if actual.isnan().any():
        return "memory that was never written, 0/0, infinity times 0, or infinity minus infinity"
    if not actual.any() and expected.any():
        return "all zeros: was the result ever written?"
    first, second = actual.double().flatten(), expected.double().flatten()
    big = second.abs() > 1e-3 * second.abs().max()
    ratio = first[big] / second[big]
    same = bool(((ratio - ratio[0]).abs() <= 1e-6 * ratio[0].abs()).all())
    if ratio.numel() > 1 and same and abs(float(ratio[0]) - 1.0) > 1e-5:
        return f"every value is {_number(ratio[0])} times what it should be"
    if actual.dtype == torch.float64 and _rounded(first, second):
        return ROUNDED
    return ""


def other_type(actual: Any, expected: Any) -> str:
    """Says so if a number has the right value and the wrong type, which `describe` does not show.

    Args:
        actual: what the learner's code returned.
        expected: what it should be.
    """
    value = actual.item() if isinstance(actual, torch.Tensor) and actual.numel() == 1 else actual
    numbers = isinstance(value, (int, float)) and isinstance(expected, (int, float))
    if not numbers or type(actual) is type(expected) or value != expected:
        return ""
    types = [type(each).__name__ for each in (actual, expected)]
    return f"the value is right, but its type is {types[0]}, not {types[1]}"


def _rounded(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether float32's rounding explains the errors.

    It does if each element errs by no more than one rounding of its own; or, after a sum, if nearly
    all of them err by little. A part that was forgotten may err by as little, but each element by
    another share of its value, and the elements outside of it are right.
    """
    error, size = (actual - expected).abs(), expected.abs()
    once = bool((error <= torch.finfo(torch.float32).eps * size).all())
    most = float((error > FLOAT64_EXACT * size).double().mean()) > 0.9
    return once or (most and float(error.max()) < 1e-6 * float(size.max()))


# --- in words ------------------------------------------------------------------------------------
def describe(value: Any) -> str:
    """A value in one short line."""
    if isinstance(value, torch.Tensor):
        flat = value.flatten()[:SHOWN].tolist()
        values = ", ".join(_number(item) for item in flat)
        more = ", ..." if value.numel() > SHOWN else ""
        shape = "×".join(map(str, value.shape)) or "scalar"
        return f"{_name(value.dtype)} {shape}: [{values}{more}]"
    text = _number(value) if isinstance(value, float) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _number(value: Any) -> str:
    value = value.item() if isinstance(value, torch.Tensor) else value
    return f"{value:.6g}" if isinstance(value, float) else str(value)
