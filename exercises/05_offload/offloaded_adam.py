"""Adam on the host: gradients go down, new parameters come up, and nothing else is copied.

Notebook 05. Adam keeps two numbers for each parameter, and training in 16 bits also needs a copy of
the parameter in 32 bits, the *master*. Forward and backward use none of these, so none has to be on
the device. In each step the gradients are copied to the host, the host's processor makes the
update, and the new parameters are copied back.

The parameters are on a device. Device tensors and host tensors cannot be mixed: an operation on
both kinds raises, as on a GPU. A link between the two copies tensors, and counts the bytes:

- `link.down(tensor)` returns a copy of a device tensor on the host;
- `link.up(host, target)` copies a host tensor into the device tensor `target`; shape and dtype must
  be the same.

Rules: the update is that of `torch.optim.AdamW`, which you may use on the host. The device holds no
optimizer state and no masters. A master has at least 32 bits: float32 for a parameter in bfloat16
or float16, else the parameter's own dtype. A step copies only the gradients down and the parameters
up, each once and in the dtype that it has on the device. A parameter without a gradient in this
step does not change, and nothing of it is copied. Parameters that need no gradient are left alone.
When the optimizer is constructed, each parameter may be copied down once, and nothing up.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    """AdamW with its state on the host.

    Args:
        parameters: the parameters on the device, each once.
        link: the link between device and host, as above.
        options: any of `torch.optim.AdamW`'s lr, betas, eps, weight_decay; it has defaults.

    Attributes:
        param_groups: a list of dicts, as in every optimizer; a learning-rate schedule writes the
            `lr` of the next step to `param_groups[0]["lr"]`.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        raise NotImplementedError("offloaded_adam: the masters, and the optimizer over them")

    def step(self) -> None:
        """Makes one update from the gradients that are on the device now."""
        raise NotImplementedError("offloaded_adam: down, update, up")

    def zero_grad(self) -> None:
        """Sets the gradients of the parameters that need one to None."""
        raise NotImplementedError("offloaded_adam: the gradients")
