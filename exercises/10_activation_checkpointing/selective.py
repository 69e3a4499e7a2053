"""Selective checkpointing: keep the results that are dear to compute, and compute only the others.

Notebook 10. A checkpointed block computes everything twice. But its operations are not alike. A
transformer block of hidden size h, with s tokens in each of b sequences, does

    products with weights        24·b·s·h²  operations, whose results are  9·b·s·h  numbers
    attention's two products      4·b·s²·h                                 b·heads·s² + b·s·h
    softmax, norms, dropout, ...  next to none                             much of what is saved

So keep the results of the products with weights, and compute all else again: softmax, norms and
element-wise operations are nearly free, and attention's scores, s² of them for each head, are a lot
of memory for few operations. What that costs is s/(6h + s) of a forward instead of a whole one.

    way = Selective(keep_products)
    for block in blocks:
        x = way(block, x)             instead of     x = block(x)
    loss.backward()
    way.overhead                      operations computed again / operations of the forward

What runs a block again is given: PyTorch's `checkpoint(fn, *args, use_reentrant=False,
context_fn=contexts)`. It forgets what the block saves, and restores random numbers and autocast for
the second run. `contexts()`, called once for each call of a block, returns two contexts: the first
is on while the block runs, the second while the same call runs again.

Yours: the policy and both contexts. They are dispatch modes: while one is on, each operation of
torch comes to its `__torch_dispatch__(func, types, args, kwargs)` instead of being run. `func` is
what autograd calls at the end: a linear layer becomes `aten.addmm.default` (`aten.mm.default`
without bias), softmax `aten._softmax.default`, attention's products `aten.bmm.default`, the same
object each time: compare with `==` or `in`. `func(*args, **(kwargs or {}))` runs it. What the
method returns is what the caller gets as the operation's result.

Rules
- `policy(func)` says whether an operation's result is kept. Such an operation has one tensor as its
  result, and draws no random numbers. It runs once; all others of the block run once in forward and
  once more in backward.
- Both runs are the same: the n-th kept operation of the second is the n-th of the first. One
  operation occurs many times, and often with the same shapes. There are many calls of one `way`,
  also of the same block, and backward comes to the last of them first.
- What you keep is what the operation returned, whatever the block does with it later: `h.relu_()`
  changes `h` itself. Nor may it be the tensor that autograd is about to build the graph on: that
  graph leads to what runs the block again, and from there to you, and such a circle never dies.
  A clone is neither. (It costs no memory: the original is soon forgotten.)
- Held between forward and backward are the blocks' inputs and the kept results. After the backward
  nothing of either run is held, although `way` and the output may live on.
- `overhead` counts products only, as `flops` does: those that the second runs computed, over those
  of the first runs, for all calls so far. The products of backward itself count for neither.

PyTorch's `create_selective_checkpoint_contexts` makes two such modes, and `course_lib.recompute`
has them as `selective`. Instead of copying, both notice by the version counter that a kept result
was changed in place, and refuse.

Your answer may use `recompute.Recompute` of `course_lib`; of torch everything but
`torch.utils.checkpoint.create_selective_checkpoint_contexts`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry


def flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Multiplications and additions, if the operation is a product of matrices; 0 for others."""
    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **(kwargs or {}), out_val=result)) if formula else 0


def keep_products(func: Any) -> bool:
    """The policy of the paper: products with weights are kept, and nothing of attention.

    Args:
        func: an operation, such as `torch.ops.aten.mm.default`.
    """
    raise NotImplementedError("selective: the policy")


class Selective:
    """A way to checkpoint that keeps what a policy says.

    Args:
        policy: whether the result of an operation is kept.

    Attributes:
        first: operations of all first runs, as `flops` counts them.
        again: those of all second runs.
    """

    def __init__(self, policy: Callable[[Any], bool] = keep_products) -> None:
        self.policy, self.first, self.again = policy, 0, 0

    def __call__(self, fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        """`fn(*args)`, of which inputs and kept results are held until backward."""
        raise NotImplementedError("selective: two contexts for each call")

    @property
    def overhead(self) -> float:
        """Products computed again, as a part of those of the forward; after the backward."""
        return self.again / self.first


class Keep(TorchDispatchMode):
    """On in a first run: runs every operation, and keeps the results that the policy asks for."""

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()
        self.way, self.kept = way, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError("selective: the first run")


class Replay(TorchDispatchMode):
    """On in a second run: gives back what was kept, and runs all other operations."""

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()
        self.way, self.kept = way, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError("selective: the second run")
