"""mutant: no room for layer 2"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    here = [pool.fetch(layer) for layer in layers[:1]]
    try:
        for number in range(len(layers)):
            here[0].wait()
            here += [pool.fetch(layer) for layer in layers[number + 1 : number + 2]]
            yield here[0].weights
            here.pop(0)
    finally:
        for copy in here:
            copy.wait()
            pool.free(copy)
