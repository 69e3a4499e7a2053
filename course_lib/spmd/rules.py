"""How operations on one rank hand types on: the table, and what each family of operations does.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: the rules of `spmd_types` (linear operations keep P, the rest refuse it) and the sharding
rules of DTensor; autograd's own formulas for which backward is linear in which argument.
Costs nothing.
The production version reads which operations are linear from a registry, as `operations.py` is.

    all replicated                      → replicated, if the arguments are the same on all ranks
    linear, of a partial sum            → partial:   w·(a + b) = w·a + w·b
    any other, of a partial sum         → a mistake: gelu(a + b) is not gelu(a) + gelu(b)
    a sum over a sharded dim            → partial
    both factors sharded where summed   → partial:   X A = X_0 A_0 + X_1 A_1
    sharded with sharded or replicated  → sharded, where the dim went
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from course_lib.spmd import operations as ops
from course_lib.spmd import shapes
from course_lib.spmd.types import P, R, S, Type, V


@dataclass(frozen=True)
class Call:
    """An operation as all ranks of a group have made it.

    Attributes:
        op: its name in ATen, without overload: `mm`, `add_`.
        shapes: of the tensors that it read, on one rank.
        outs: of those that it made.
        args: its arguments; None where a tensor stood, a list of them where there were several.
        slots: for each tensor that it read, the argument that it was.
        alike: whether the arguments that are no tensors are the same on all ranks.
        zeros: for each tensor read, whether it is all zeros, which are of any type.
    """

    op: str
    shapes: Sequence[Sequence[int]]
    outs: Sequence[Sequence[int]]
    args: Sequence[Any] = ()
    slots: Sequence[int] = ()
    alike: bool = True
    zeros: Sequence[bool] = ()

    @property
    def name(self) -> str:
        """The operation, whether it works in place or not."""
        return self.op if self.op.startswith("_") else self.op.rstrip("_")


class Found(NamedTuple):
    """What a rule says.

    Attributes:
        outs: types of the results.
        mistake: `nonlinear`, `product` or `shard`, if the operation makes no sense here.
        added: whether a replicated summand went into a partial sum.
    """

    outs: tuple[Type, ...]
    mistake: str = ""
    added: bool = False


Rule = Callable[[Call, Sequence[Type]], Found]


def local_rule(call: Call, types: Sequence[Type]) -> Found:
    """What an operation on one rank makes of the types of what it read, on one axis."""
    unknown = Found((V,) * len(call.outs))
    if all(each == R for each in types):
        return Found((R,) * len(call.outs)) if call.alike else unknown
    rule = _rule_of(call.name)
    if rule is not None and (V not in types or call.name in {*ops.JOINS, *ops.ADDS}):
        return rule(call, types)
    return unknown


def _rule_of(name: str) -> Rule | None:
    for names, rule in FAMILIES:
        if name in names:
            return rule
    return _attention if name.startswith(ops.ATTENTION) else None


def _where(call: Call, types: Sequence[Type], out: int = 0) -> set[int | None]:
    """Where the sharded dims of all that was read lie in the result, aligned from behind."""
    return {
        shapes.broadcast(each.dim, shape, call.outs[out], ())
        for each, shape in zip(types, call.shapes, strict=True)
        if each.letter == "S"
    }


def _one(dims: set[int | None]) -> Type:
    """The one dim along which the result is sharded; V if there is none, or several."""
    [dim, *more] = dims
    return V if more or dim is None or dim < 0 else S(dim)


def _moved(call: Call, types: Sequence[Type]) -> Found:
    """Views, copies, sums: linear in the first tensor; its dims go where the table says."""
    first = types[0]
    if first == P:
        return Found((P,) * len(call.outs))
    if first.letter != "S":
        return Found((first,) * len(call.outs))
    move = ops.MOVES[call.name]
    places = [move(first.dim, call.shapes[0], after, call.args) for after in call.outs]
    if call.name == "slice_backward" and None in places:
        return Found((P,) if not call.alike else (V,))  # each rank's piece in its place of zeros
    lost = P if call.name in ops.SUMS else V
    return Found(tuple(lost if place is None else S(place) for place in places))


def _copied(call: Call, types: Sequence[Type]) -> Found:
    """`copy_(target, source)`: the target is what the source was."""
    source = types[1]
    if source.letter == "S" and len(call.shapes[0]) != len(call.shapes[1]):
        return Found((V,))
    return Found((source,))


def _joined(call: Call, types: Sequence[Type]) -> Found:
    """Cat and stack: of partial sums a partial sum."""
    here = [t for t, zero in zip(types, _zeros(call, types), strict=True) if not zero] or [R]
    if P in here:
        return Found((P,), added=R in here) if {*here} <= {P, R} else Found((V,))
    if len({*here}) > 1 or V in here:
        return Found((V,))
    place = ops.JOINS[call.name](here[0].dim, call.shapes[0], call.outs[0], call.args)
    return Found((here[0] if here[0] == R else V if place is None else S(place),))


def _zeros(call: Call, types: Sequence[Type]) -> Sequence[bool]:
    return call.zeros or [False] * len(types)


def _added(call: Call, types: Sequence[Type]) -> Found:
    """Sums of tensors: P + P is P; R + P counts R once for each rank when it is summed."""
    here = [t for t, zero in zip(types, _zeros(call, types), strict=True) if not zero] or [R]
    number = len(types) == 1 and len(call.args) > 1 and call.args[1] not in (0, None)
    if V in here:
        return Found((V,))
    if P in here:
        whole = {*here} <= {P, R}
        return Found((P if whole else V,), added=whole and (R in here or number))
    sharded = [t for t in here if t.letter == "S"]
    return Found((_one(_where(call, types)) if sharded else R,))


def _multiplied(call: Call, types: Sequence[Type]) -> Found:
    """Products element by element: linear in each factor alone."""
    partial = [slot for slot, t in zip(call.slots, types, strict=True) if t == P]
    if not partial:
        return Found((_one(_where(call, types)),))
    if call.name == "where":
        return Found((P if partial == [1, 2] or len(partial) == 1 else V,))
    if len(partial) > 1 and call.name != "addcmul":
        return Found((V,), "product")
    if call.name == "div" and partial != [0]:
        return Found((V,), "nonlinear")
    return Found((P if {*types} <= {P, R} else V,))


def _matrices(call: Call, types: Sequence[Type]) -> Found:
    """Products of matrices: what is summed over, and is sharded on both sides, leaves a summand."""
    bias = types[0] if call.name in ("addmm", "baddbmm", "addmv") else None
    left, right = types[-2:]
    made = _product(left, right, *(len(shape) for shape in call.shapes[-2:]))
    if left == right == P:
        return Found((V,), "product")
    if bias is None or made == bias:
        return Found((made,))
    if P in (made, bias):
        return Found((P if R in (made, bias) else V,), added=R in (made, bias))
    if bias.letter == "S":  # the bias of columns: its last dim is theirs
        bias = S(bias.dim + len(call.outs[0]) - len(call.shapes[0]))
    return Found((made if bias in (R, made) else V,))


def _product(left: Type, right: Type, left_dims: int, right_dims: int) -> Type:
    """The type of a product of matrices or vectors, without a bias."""
    rows, inner = left_dims - 2, max(right_dims - 2, 0)
    if P in (left, right):
        return P if R in (left, right) else V
    if left == S(left_dims - 1) and right == S(inner):
        return P
    if left_dims == 3 and left.dim == right.dim == 0:  # a batch of matrices
        return S(0)
    if right == R and left.letter == "S" and left.dim == rows:
        return left
    if left == R and right == S(right_dims - 1) and right_dims > 1:
        return S(left_dims - 1)
    return V


def _nonlinear(call: Call, types: Sequence[Type]) -> Found:
    if P in types:
        return Found((V,) * len(call.outs), "nonlinear")
    return Found(tuple(_one(_where(call, types, i)) for i in range(len(call.outs))))


def _over_a_dim(call: Call, types: Sequence[Type]) -> Found:
    """A softmax or a maximum: of a sharded dim, each rank would take that of its own piece."""
    if P in types:
        return Found((V,) * len(call.outs), "nonlinear")
    place = shapes.reduced(types[0].dim, call.shapes[0], call.outs[0], call.args)
    if place is not None:
        return Found((S(place),) * len(call.outs))
    return Found((V,) * len(call.outs), "shard" if "softmax" in call.name else "")


def _backward(call: Call, types: Sequence[Type]) -> Found:
    """The backward of a function of each element: linear in the gradient, its first tensor."""
    if P in types:
        return Found((P if types[0] == P and {*types[1:]} <= {R} else V,) * len(call.outs))
    return Found((_one(_where(call, types)),) * len(call.outs))


def _norm(call: Call, types: Sequence[Type]) -> Found:
    """A norm over the last dims."""
    if P in types:
        return Found((V,) * len(call.outs), "nonlinear")
    last = len(call.args[1]) if len(call.args) > 1 and isinstance(call.args[1], list) else 1
    front = types[0].letter == "S" and types[0].dim < len(call.shapes[0]) - last
    return Found((types[0] if front and {*types[1:]} <= {R} else V,) * len(call.outs))


def _norm_backward(call: Call, types: Sequence[Type]) -> Found:
    """The input's gradient, then the weight's and the bias's, which sum over all rows."""
    if P in types:
        return Found((P if types[0] == P and {*types[1:]} <= {R} else V,) * len(call.outs))
    rows = {t for t in types if t.letter == "S"}
    if len(rows) > 1 or min(rows).dim >= len(call.shapes[0]) - 1:
        return Found((V,) * len(call.outs))
    [row] = rows
    whole = len(call.shapes[0])  # dims of the input's gradient, which may not be asked for
    return Found(tuple(row if len(out) == whole else P for out in call.outs))


def _attention(call: Call, types: Sequence[Type]) -> Found:
    """Attention on whole sequences: its batch (dim 0) and its heads (dim 1) go their own ways."""
    if P in types:
        linear = "backward" in call.name and types[0] == P and {*types[1:]} <= {R}
        return Found((P if linear else V,) * len(call.outs), "" if linear else "nonlinear")
    alike = {*types} - {R} if "backward" in call.name else {*types}
    good = alike in ({S(0)}, {S(1)})
    return Found((types[0] if good and types[0] != R else V,) * len(call.outs))


def _loss(call: Call, types: Sequence[Type]) -> Found:
    """A loss over rows: the sum or mean of a sharded batch is a summand."""
    if P in types:
        return Found((V,) * len(call.outs), "nonlinear")
    if types[0] != S(0) or types[1] not in (S(0), R):
        return Found((V,) * len(call.outs))
    return Found((S(0) if call.outs[0] else P, *(P,) * (len(call.outs) - 1)))


def _loss_backward(call: Call, types: Sequence[Type]) -> Found:
    return Found((types[1] if types[1].letter == "S" and types[0] in (R, types[1]) else V,))


def _looked_up(call: Call, types: Sequence[Type]) -> Found:
    """`embedding(table, tokens)`: linear in the table; the tokens' dims lead the result's."""
    table, tokens = types[:2]
    if table == P:
        return Found((P if tokens == R else V,))
    if tokens.letter == "S" and table == R:
        return Found((tokens,))
    return Found((S(len(call.outs[0]) - 1) if table == S(1) and tokens == R else V,))


def _looked_up_backward(call: Call, types: Sequence[Type]) -> Found:
    """The table's gradient: a sum over all tokens, each from the ranks that have it."""
    grad, tokens = types[:2]
    if grad == P:
        return Found((P if tokens == R else V,))
    if grad.letter == "S" and grad.dim == len(call.shapes[0]) - 1 and tokens == R:
        return Found((S(1),))
    return Found((P if grad == tokens else V,))


FAMILIES: list[tuple[Any, Rule]] = [
    ({"copy"}, _copied),
    (ops.MOVES, _moved),
    (ops.JOINS, _joined),
    (ops.ADDS, _added),
    (ops.PRODUCTS, _multiplied),
    (ops.MATRICES, _matrices),
    (ops.NONLINEAR, _nonlinear),
    (ops.OVER_A_DIM, _over_a_dim),
    (ops.BACKWARDS, _backward),
    (ops.NORMS, _norm),
    (ops.NORM_BACKWARDS, _norm_backward),
    (ops.LOSSES, _loss),
    (ops.LOSS_BACKWARDS, _loss_backward),
    ({"embedding"}, _looked_up),
    ({"embedding_dense_backward"}, _looked_up_backward),
]
