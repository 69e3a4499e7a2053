"""Selective checkpointing: keep results that are expensive to compute, and recompute the others.

Notebook 10. A checkpointed block computes everything twice. But its operations are not alike. A
transformer block of hidden size h, with s tokens in each of b sequences, does

    products with weights        24·b·s·h²  operations, whose results are  9·b·s·h  numbers
    attention's two products      4·b·s²·h                                 b·heads·s² + b·s·h
    softmax, norms, dropout, ...  next to none                             much of what is saved

So keep the results of the products with weights, and compute all else again: softmax, norms and
element-wise operations are nearly free, and attention's scores, s² of them for each head, are a lot
of memory for few operations. That costs s/(6h + s) of a forward instead of a whole one.

    way = Selective(keep_products)
    for block in blocks:
        x = way(block, x)             instead of     x = block(x)
    loss.backward()
    way.overhead                      operations computed again / operations of the forward

What runs a block again is given: PyTorch's `checkpoint(fn, *args, use_reentrant=False,
context_fn=contexts)`. It drops what the block saves, and restores random numbers and autocast for
the second run. It calls `contexts()` once for each call of a block, and gets two contexts: the
first is active while the block runs, the second while the same call runs again.

You write the policy and both contexts. The contexts are dispatch modes: while one is active, torch
passes each operation to its `__torch_dispatch__(func, types, args, kwargs)` instead of running it.
`func` is the low-level operation that autograd finally calls: a linear layer becomes
`aten.addmm.default` (`aten.mm.default` without bias), softmax `aten._softmax.default`, attention's
products `aten.bmm.default`, the same object each time: compare with `==` or `in`. `func(*args,
**(kwargs or {}))` runs it. The caller gets what the method returns as the operation's result.

Rules
- `policy(func)` says whether to keep an operation's result. Such an operation returns one tensor
  and draws no random numbers. It runs once; all other operations of the block run once in forward
  and once more in backward.
- Both runs are the same: the n-th kept operation of the second is the n-th of the first. The same
  operation occurs many times, often with the same shapes. A `way` is called many times, also with
  the same block, and backward reaches the last call first.
- Keep what the operation returned, whatever the block does with it later: `h.relu_()` changes `h`
  itself. And do not keep the very tensor on which autograd builds the graph: that graph refers to
  the function that runs the block again, which refers to your queue, and such a cycle is never
  freed. A clone avoids both. (It costs no memory, because the original is soon dropped.)
- Between forward and backward, only the blocks' inputs and the kept results are held. After the
  backward, nothing of either run is held, even if `way` and the output still exist.
- `overhead` counts only products, as `flops` does: those that the second runs computed, divided by
  those of the first runs, for all calls so far. The products of backward itself count for neither.

PyTorch's `create_selective_checkpoint_contexts` makes two such modes, and `course_lib.recompute`
has them as `selective`. Neither makes copies: the version counter shows them when a kept result was
changed in place, and then they raise an error.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry


def flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Counts multiplications and additions if the operation is a matrix product; 0 for others."""
    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **(kwargs or {}), out_val=result)) if formula else 0  # mutate: same


def keep_products(func: Any) -> bool:
    """The paper's policy: keep products with weights, and nothing of attention.

    Args:
        func: an operation, such as `torch.ops.aten.mm.default`.
    """
    # BEGIN SOLUTION: the policy
    return func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    # END SOLUTION


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
        """Returns `fn(*args)`, and holds only its inputs and kept results until backward."""
        # BEGIN SOLUTION: two contexts for each call
        kept: deque[torch.Tensor] = deque()
        modes = Keep(self, kept), Replay(self, kept)
        return checkpoint(fn, *args, use_reentrant=False, context_fn=lambda: modes)
        # END SOLUTION

    @property
    def overhead(self) -> float:
        """Products computed again, divided by those of the forward; read it after the backward."""
        return self.again / self.first


class Keep(TorchDispatchMode):
    """Active in a first run: runs every operation, and keeps what the policy asks for."""

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()  # mutate: same
        self.way, self.kept = way, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # BEGIN SOLUTION: the first run
        result = func(*args, **(kwargs or {}))
        self.way.first += flops(func, args, kwargs, result)  # mutate: same
        if self.way.policy(func):
            self.kept.append(result.clone())
        return result
        # END SOLUTION


class Replay(TorchDispatchMode):
    """Active in a second run: returns what was kept, and runs all other operations."""

    def __init__(self, way: Selective, kept: deque[torch.Tensor]) -> None:
        super().__init__()  # mutate: same
        self.way, self.kept = way, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # BEGIN SOLUTION: the second run
        if self.way.policy(func):
            return self.kept.popleft()
        result = func(*args, **(kwargs or {}))
        self.way.again += flops(func, args, kwargs, result)
        return result
        # END SOLUTION
