"""Overlapping DDP: each gradient is sent as soon as it is complete, while backward goes on.

Notebook 02. The backward goes from the last layer to the first. When the last layer's gradients are
complete, most of the backward is still to come: that is the time in which to send them.

    ddp = OverlapDDP(model, group)    # registers a hook on each parameter
    loss(ddp(x), y).backward()        # the hooks launch the all-reduces, and nobody waits
    ddp.wait()                        # now all gradients are means
    optimizer.step()

After `parameter.register_post_accumulate_grad_hook(hook)`, autograd calls `hook(parameter)` when
`parameter.grad` is complete: when all paths to it, also those of a tied weight, are added up.

Rules:

- Each parameter that requires a gradient has one all-reduce in each backward, launched in its hook
  with `async_op=True`; a tied weight is one parameter. Frozen parameters have none.
- Wait for nothing before the backward has ended. `wait()` waits for all all-reduces that are under
  way. Until then a gradient may be the rank's own, a partial sum, or a sum that is not yet divided,
  and nobody may read or change it.
- After `wait()`, each gradient is the mean over the group. Every backward is followed by `wait()`.
  If gradients are not zeroed before the next backward, it adds to them, as always.

Here all ranks use all parameters that are not frozen, in the same order. The code that makes the
replicas equal is given: that was the exercise before this one.

`work = all_reduce(t, group, "avg", async_op=True)` returns at once; `work.wait()` returns when `t`
holds the mean.

Your answer may use `comm` of `course_lib`.
"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Work, all_reduce, broadcast


class OverlapDDP(nn.Module):
    """A replica of a module that sends its gradients during the backward.

    Args:
        module: this rank's replica.
        group: the ranks that have one.

    Attributes:
        module: the same object.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        for tensor in [*module.parameters(), *module.buffers()]:
            broadcast(tensor.detach(), 0, group)
        self._under_way: list[Work] = []
        raise NotImplementedError("overlap_ddp: register a hook on each parameter that requires a gradient")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward."""
        return self.module(*args, **kwargs)

    def _launch(self, parameter: torch.Tensor) -> None:
        """The hook, called when the gradient of this parameter is complete."""
        raise NotImplementedError("overlap_ddp: launch the all-reduce, and remember what is under way")

    def wait(self) -> None:
        """Returns when all gradients are means. Called between backward and step."""
        raise NotImplementedError("overlap_ddp: wait for all that is under way")
