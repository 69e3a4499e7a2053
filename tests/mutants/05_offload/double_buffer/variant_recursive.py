"""variant: a generator that hands over to itself"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def double_buffer(layers: Sequence[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    layers = list(layers)
    if layers:
        yield from walk(pool.fetch(layers[0]), layers[1:], pool)


def walk(copy: Any, rest: list[Any], pool: Any) -> Iterator[list[torch.Tensor]]:
    coming = None
    try:
        copy.wait()
        if rest:
            coming = pool.fetch(rest[0])
        yield copy.weights
    except BaseException:
        if coming is not None:
            coming.wait()
            pool.free(coming)
        raise
    finally:
        pool.free(copy)
    if coming is not None:
        yield from walk(coming, rest[1:], pool)
