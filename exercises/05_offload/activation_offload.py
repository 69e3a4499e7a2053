"""Activations on the host: what backward will need goes down when it is saved, and comes up again.

Notebook 05. Forward saves tensors for backward, and at the end of forward all of them are on the
device. `torch.autograd.graph.saved_tensors_hooks(pack, unpack)` makes a context in which autograd,
instead of keeping a tensor, keeps what `pack(tensor)` returns, and when backward needs the tensor
calls `unpack` with that. So a tensor can wait elsewhere.

The device's tensors and the host's do not meet (an operation that is given one of each raises, as
on a GPU). Between the two there is a link, which counts bytes:

- `link.down(tensor)` returns a copy of a device tensor on the host;
- `link.up(host)` returns a copy of a host tensor on the device.

Rules: return a context manager. What is saved inside it waits on the host, except for two kinds,
which stay on the device and do not travel: the weights, and tensors of less than `smallest` bytes.
Weights are recognised by their memory, since operations also save views of them, such as `w.t()`:
`tensor.untyped_storage().data_ptr()` is the same for a tensor and its views. Backward may come
after the context has ended, may come twice (`retain_graph=True`), and finds the same values. It
leaves nothing on the device. A tensor that two operations save may travel twice.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch


def activation_offload(
    weights: Sequence[torch.Tensor], link: Any, smallest: int
) -> AbstractContextManager[Any]:
    """A context in which what autograd saves waits on the host.

    Args:
        weights: stay on the device.
        link: to the device, as above.
        smallest: bytes from which on a tensor travels.
    """
    raise NotImplementedError("activation_offload: write your answer here")
