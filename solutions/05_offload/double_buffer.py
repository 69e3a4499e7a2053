"""Double buffering: one layer computes on the device while the next one arrives.

Notebook 05. A model that does not fit on the device can still be computed there, if its layers wait
on the host and are copied when they are needed. If every copy had to finish before its layer
computes, and the next began only afterwards, the device would be idle half the time. So there is
room for two layers: while layer i computes in one place, layer i+1 is copied into the other.

Write a generator. The caller writes `for weights in double_buffer(layers, pool): ...`, and computes
with the weights in the body of the loop; the body is done when the loop asks for the next layer.
The device is `pool`:

- `copy = pool.fetch(layer)` reserves room for a layer, starts to copy it to the device and returns
  at once. Copies run one after another, in the order in which they were started. If there is no
  room, it raises.
- `copy.weights` is the list of the layer's tensors on the device. Until the copy has ended, they do
  not hold the layer's values.
- `copy.wait()` returns when the copy has ended; a second call returns at once.
- `pool.free(copy)` releases the room for the next copy. A copy that is still under way goes on, and
  overwrites whatever gets that room next.

Rules: yield the layers in the order of the list, each once. At most two layers have room at a time.
While the body computes with layer i, the copy of layer i+1 is under way; wait for it when the loop
asks for layer i+1, not earlier. At the end nothing is left on the device and no copy is under way,
even if the body breaks out of the loop: a generator that is closed gets a `GeneratorExit` at its
`yield`, and runs its `finally`. One that is closed before it was asked for a layer runs nothing, so
it must not have started a copy. The list may have one layer, or none. For the backward, the caller
passes the reversed list.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    """Yields each layer's weights on the device, in order.

    Args:
        layers: the layers on the host, in a form that `pool.fetch` takes.
        pool: the device, as above.
    """
    # BEGIN SOLUTION
    here = [pool.fetch(layer) for layer in layers[:1]]
    try:
        for number in range(len(layers)):
            here[0].wait()  # mutate: same
            here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
            yield here[0].weights
            pool.free(here.pop(0))
    finally:
        for copy in here:
            copy.wait()
            pool.free(copy)
    # END SOLUTION
