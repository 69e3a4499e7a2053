"""Find where the first NaN was made: the rank, the module and the pass, on every rank.

Notebook 14. The loss is NaN. By then, most of the model is NaN too: a NaN (or an infinity, which
soon becomes one) spreads to everything that is computed after it, and in the next step to all
ranks. The module to look at is the one that *made* the first one, on the rank where that happened.

`hunt` runs one step, `model(*inputs)` and then the backward of the loss it returns, and watches
every module, the containers and the model itself included:

- In the *forward*, a module made a bad value if its output has one and its inputs have none. That
  may be a container: `x * 1e300` between two layers belongs to the block that says so.
- In the *backward*, a module made one if the gradients of its inputs have one and the gradients of
  its outputs have none. (Gradients of parameters are not looked at: they go into no other module.)
- If `inputs` are bad already, no module made the value: the name is `inputs`, and the pass is
  `forward`.

*First* is the order of execution in the step: `inputs`, then the modules in the order in which
their forwards end, then in the order in which their backwards end. The ranks hold replicas of one
model, so the same modules run in the same order on all of them; but the data differ, and a weight
may be bad on one rank alone. What comes first on any rank is the answer, and where several ranks
are equally early, the one with the lowest index in the group. All ranks return the same answer.

Rules
- Bad is NaN, +infinity and -infinity.
- Modules get tensors and return a tensor or a tuple of tensors; in the backward, some of a tuple's
  gradients may be None.
- `module.register_forward_hook(hook)` calls `hook(module, inputs, output)` when a forward ends;
  `module.register_full_backward_hook(hook)` calls `hook(module, input_gradients,
  output_gradients)` when a backward ends. Inputs and gradients are tuples. Both return a handle,
  and `handle.remove()` takes the hook away: none is left when `hunt` returns.
- Each hunt makes one collective of `course_lib.comm`, on every rank, to which each rank contributes
  at most 64 bytes: a rank that sees nothing cannot know whether another one does.
- What is left in the parameters' `grad` does not matter. `model` itself has the name "".

Your answer may use `comm` of `course_lib`.
"""

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
        The rank (its number in the world), the module's name as in `model.named_modules()`, and
        `forward` or `backward`; None if every value on every rank was finite. The same on all
        ranks.
    """
    raise NotImplementedError("nan_hunt: write your answer here")
