"""Each rule of types, on the shapes of one rank."""

from __future__ import annotations

import pytest

from course_lib.spmd import Axis, P, R, S, Type, V
from course_lib.spmd.calls import collective_rule, relation
from course_lib.spmd.rules import Call, local_rule

TP = Axis("tp", ((0, 1), (2, 3)))
X, A, B = (6, 8), (8, 4), (4, 8)  # a column-parallel pair on one of two ranks or more


@pytest.mark.parametrize(
    ("op", "types", "shapes", "out", "expected"),
    [
        ("mm", (R, S(1)), (X, A), (6, 4), S(1)),
        ("mm", (S(0), R), (X, A), (6, 4), S(0)),
        ("mm", (S(1), S(0)), ((6, 4), B), X, P),
        ("mm", (P, R), (X, A), (6, 4), P),
        ("mm", (S(1), R), (X, A), (6, 4), V),
        ("mm", (V, V), (X, A), (6, 4), V),
        ("mv", (S(1), S(0)), (X, (8,)), (6,), P),
        ("bmm", (S(0), S(0)), ((2, *X), (2, *A)), (2, 6, 4), S(0)),
        ("add", (P, P), (X, X), X, P),
        ("add", (S(1), R), (X, (8,)), X, S(1)),
        ("add", (S(0), S(1)), (X, X), X, V),
        ("mul", (P, R), (X, X), X, P),
        ("div", (S(0), R), (X, X), X, S(0)),
        ("t", (S(1),), (X,), (8, 6), S(0)),
        ("sum", (S(0),), (X,), (8,), P),
        ("gelu", (S(1),), (X,), X, S(1)),
        ("gelu_backward", (P, R), (X, X), X, P),
        ("gelu_backward", (R, P), (X, X), X, V),
        ("copy_", (R, P), (X, X), X, P),
        ("cat", (P, P), (X, X), (12, 8), P),
        ("embedding", (R, S(0)), ((19, 8), (6,)), X, S(0)),
        ("embedding_dense_backward", (S(0), S(0)), (X, (6,)), (19, 8), P),
        ("an_operation_of_tomorrow", (S(0),), (X,), X, V),
    ],
)  # fmt: skip
def test_an_operation_hands_types_on(
    op: str, types: tuple[Type, ...], shapes: tuple[tuple[int, ...], ...], out: tuple[int, ...],
    expected: Type,
) -> None:  # fmt: skip
    args = (None, [0]) if op == "sum" else (None,) * len(types)
    found = local_rule(Call(op, shapes, [out], args, range(len(types))), types)
    assert found.outs == (expected,)
    assert not found.mistake


def test_what_is_replicated_stays_so_if_all_ranks_ask_the_same() -> None:
    assert local_rule(Call("mul", [X], [X], (None, 2.0), [0]), [R]).outs == (R,)
    assert local_rule(Call("mul", [X], [X], (None, 2.0), [0], alike=False), [R]).outs == (V,)


@pytest.mark.parametrize(
    ("op", "types", "mistake"),
    [("gelu", (P,), "nonlinear"), ("mul", (P, P), "product"), ("mm", (P, P), "product"),
     ("div", (R, P), "nonlinear"), ("_softmax", (S(1),), "shard")],
)  # fmt: skip
def test_what_no_partial_sum_allows(op: str, types: tuple[Type, ...], mistake: str) -> None:
    call = Call(op, [X] * len(types), [X], (None, -1, False), range(len(types)))
    assert local_rule(call, types).mistake == mistake


def test_a_norm_sums_its_weights_gradient_over_the_rows_that_it_has() -> None:
    shapes = [X, X, (6, 1), (6, 1), (8,), (8,)]
    call = Call("native_layer_norm_backward", shapes, [X, (8,), (8,)], (None,) * 7, range(6))
    assert local_rule(call, [S(0), S(0), S(0), S(0), R, R]).outs == (S(0), P, P)
    assert local_rule(call, [P, R, R, R, R, R]).outs == (P, P, P)


def test_a_replicated_summand_of_a_partial_sum_is_noted_and_zeros_are_not() -> None:
    assert local_rule(Call("add", [X, (8,)], [X], (None, None), [0, 1]), [P, R]).added
    nothing = Call("add", [X, X], [X], (None, None), [0, 1], zeros=[False, True])
    assert not local_rule(nothing, [P, R]).added


@pytest.mark.parametrize(
    ("op", "before", "after", "mistake"),
    [("all_reduce", P, R, ""), ("all_reduce", V, R, ""), ("all_reduce", R, R, "counted"),
     ("all_reduce", S(0), R, "pieces"), ("reduce_scatter", P, S(0), ""),
     ("all_gather", S(0), R, ""), ("broadcast", V, R, ""), ("all_to_all", S(0), V, "")],
)  # fmt: skip
def test_a_collective_on_its_own_axis(op: str, before: Type, after: Type, mistake: str) -> None:
    reduction = "sum" if "reduce" in op else ""
    assert collective_rule(op, reduction, before, "own") == ((after,), mistake, False)


def test_a_collective_on_another_axis_is_linear_or_not() -> None:
    groups = ((0, 2), (1, 3), (0, 2), (1, 3))
    assert relation(TP, groups) == "across"
    assert collective_rule("all_reduce", "sum", P, "across").outs == (P,)
    assert collective_rule("all_reduce", "max", P, "across").mistake == "nonlinear"


def test_groups_that_hold_an_axis_or_lie_in_it() -> None:
    assert relation(TP, ((0, 1), (0, 1), (2, 3), (2, 3))) == "own"
    assert relation(TP, ((0, 1, 2, 3),) * 4) == "covers"
    assert relation(Axis("world", ((0, 1, 2, 3),)), ((0, 1), (0, 1), (2, 3), (2, 3))) == "inside"
