"""Double buffering: layers pass through the device, one computing while the next arrives.

Notebook 05. A model that does not fit on the device can still be computed there, if its layers wait
on the host and come when they are needed. If each copy were waited for, the device would be idle
half the time. So there is room for two: while layer i computes in one place, layer i+1 is copied
into the other.

Write it as a generator. Who uses it writes `for weights in double_buffer(layers, pool): ...`, and
computes with the weights in the body of the loop; the body ends when it asks for the next layer.
The device is `pool`:

- `copy = pool.fetch(layer)` makes room for a layer, starts to copy it to the device and returns at
  once. Copies are made one after the other, in the order in which they were begun. Without room it
  raises.
- `copy.weights` is the list of the layer's tensors on the device. What is in them before the copy
  has ended is not the layer.
- `copy.wait()` returns when the copy has ended; a second call returns at once.
- `pool.free(copy)` gives the room back, for the next copy. If this one is still under way, it goes
  on, and overwrites what comes after it.

Rules: the layers come in the order of the list, each once. At most two have room at a time. While
the body computes with layer i, the copy of layer i+1 is under way; it is waited for when the body
asks for it, not before. At the end nothing is left on the device and no copy is under way, also
where the body breaks out of the loop: a generator that is closed gets a `GeneratorExit` at its
`yield`, and carries out its `finally`. A list of one layer works, and an empty one. The way back is
the same function: it is given the reversed list.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    """Yields each layer's weights on the device, in order.

    Args:
        layers: on the host; each is what `pool.fetch` takes.
        pool: the device, as above.
    """
    raise NotImplementedError("double_buffer: write your answer here")
