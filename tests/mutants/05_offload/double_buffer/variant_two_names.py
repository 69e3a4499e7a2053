"""variant: two names instead of a list"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    coming = pool.fetch(layers[0]) if layers else None
    for number in range(len(layers)):
        now, coming = coming, None
        try:
            now.wait()
            if number + 1 < len(layers):
                coming = pool.fetch(layers[number + 1])
            yield now.weights
        except GeneratorExit:
            if coming is not None:
                coming.wait()
                pool.free(coming)
            raise
        finally:
            pool.free(now)
