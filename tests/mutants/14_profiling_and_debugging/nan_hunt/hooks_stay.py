"""mutant: hooks that were left on modules"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def hunt(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], group: Group
) -> tuple[int, str, str] | None:
    """Runs one step and finds who made its first bad value.

    Args:
        model: returns the loss, a scalar; the same modules on every rank.
        inputs: this rank's batch; tensors of floats require a gradient.
        group: the replicas.

    Returns:
        The rank, the module's name as in `model.named_modules()`, and `forward` or `backward`; None
        if every value on every rank was finite. The same on all ranks.
    """
    seen: list[tuple[str, str]] = []  # everything that ended, in order: the same on all ranks
    made: list[int] = []  # the numbers of those that made a bad value

    def finite(values: Any) -> bool:
        tensors = values if isinstance(values, tuple) else (values,)
        return all(bool(t.isfinite().all()) for t in tensors if t is not None)

    def look(name: str, way: str, given: Any, result: Any) -> None:
        if finite(given) and not finite(result):
            made.append(len(seen))
        seen.append((name, way))

    look("inputs", "forward", (), inputs)
    hooks = []
    for name, module in model.named_modules():
        hooks.append(
            module.register_forward_hook(
                lambda _, given, result, name=name: look(name, "forward", given, result)
            )
        )
        hooks.append(
            module.register_full_backward_hook(
                lambda _, result, given, name=name: look(name, "backward", given, result)
            )
        )
    loss = model(*inputs)
    if not made:
        loss.backward()
    never = 1 << 40
    first = torch.tensor(min(made, default=never) * group.size + group.index, device=group.device)
    all_reduce(first, group, "min")  # the number and the rank in one: ties go to the lowest
    number, index = divmod(int(first), group.size)
    return None if number == never else (group.ranks[index], *seen[number])
