"""mutant: no room for layer 2"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    copies = [pool.fetch(layer) for layer in layers]
    for copy in copies:
        copy.wait()
        yield copy.weights
    for copy in copies:
        pool.free(copy)
