"""variant: fetches the next before it waits for this one"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    queue = []
    rest = iter(layers)

    def fetch() -> None:
        layer = next(rest, None)
        if layer is not None:
            queue.append(pool.fetch(layer))

    fetch()
    try:
        while queue:
            fetch()
            queue[0].wait()
            yield queue[0].weights
            pool.free(queue.pop(0))
    finally:
        while queue:
            copy = queue.pop()
            copy.wait()
            pool.free(copy)
