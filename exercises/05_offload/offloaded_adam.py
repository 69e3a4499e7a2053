"""Adam on the host: gradients go down, new parameters come up, and nothing else travels.

Notebook 05. Adam keeps two numbers for each parameter, and training in 16 bits needs a copy of the
parameter in 32 bits as well, the *master*. None of them is used in forward or backward, so none has
to be on the device. In each step the gradients are copied to the host, the host's processor makes
the update, and the new parameters are copied back.

The parameters are on a device, and the device's tensors and the host's do not meet: an operation
that is given one of each raises, as on a GPU. Between the two there is a link, which counts bytes:

- `link.down(tensor)` returns a copy of a device tensor on the host;
- `link.up(host, target)` copies a host tensor into the device tensor `target`; shape and dtype must
  be the same.

Rules: the update is that of `torch.optim.AdamW`, which you may use, on the host. The device holds
no optimizer state and no masters. A master has at least 32 bits: float32 for a parameter in
bfloat16 or float16, else the parameter's own dtype. In a step travel the gradients, in the dtype
that they have, and the parameters, in the dtype that they have; a parameter that has no gradient in
this step stays as it is, and nothing of it travels. Parameters that need no gradient are left
alone. When the optimizer is made, each parameter may go down once.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    """AdamW with its state on the host.

    Args:
        parameters: on the device, each once.
        link: to the device, as above.
        options: of `torch.optim.AdamW`: lr, betas, eps, weight_decay.

    Attributes:
        param_groups: as every optimizer has them; a learning-rate schedule writes the `lr` of the
            next step into `param_groups[0]["lr"]`.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        raise NotImplementedError("offloaded_adam: the masters, and the optimizer over them")

    def step(self) -> None:
        """One update, from the gradients that are on the device now."""
        raise NotImplementedError("offloaded_adam: down, update, up")

    def zero_grad(self) -> None:
        """Forgets the gradients of all parameters."""
        raise NotImplementedError("offloaded_adam: the gradients")
