"""Activations on the host: tensors saved for backward go to the host, and come back when needed.

Notebook 05. Forward saves tensors for backward, and at the end of forward all of them are on the
device. `torch.autograd.graph.saved_tensors_hooks(pack, unpack)` makes a context in which autograd
keeps what `pack(tensor)` returns instead of the tensor. When backward needs the tensor, autograd
calls `unpack` with that. So a tensor can wait somewhere else.

Device tensors and host tensors cannot be mixed: an operation on both kinds raises, as on a GPU. A
link between the two copies tensors, and counts the bytes:

- `link.down(tensor)` returns a copy of a device tensor on the host;
- `link.up(host)` returns a copy of a host tensor on the device.

Rules: return a context manager. Tensors that autograd saves inside it wait on the host. Two kinds
stay on the device and are not copied: the weights, trained or not, and tensors of fewer than
`smallest` bytes.
Recognise weights by their memory, since operations also save views of them, such as `w.t()`:
`tensor.untyped_storage().data_ptr()` is the same for a tensor and its views. Backward may run after
the context has ended, and may run twice (`retain_graph=True`); it must find the same values each
time. It leaves nothing on the device. A tensor that two operations save may be copied twice.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch


def activation_offload(
    weights: Sequence[torch.Tensor], link: Any, smallest: int
) -> AbstractContextManager[Any]:
    """Returns a context in which the tensors that autograd saves wait on the host.

    Args:
        weights: the tensors that stay on the device, with all their views.
        link: the link between device and host, as above.
        smallest: the fewest bytes that a tensor must have to be copied to the host.
    """
    raise NotImplementedError("activation_offload: write your answer here")
