"""A box is a rectangular part of a tensor. As lists of boxes, all layouts can be compared.

Notebook: 11 Distributed checkpoint (save_sharded, load_resharded).
Source: ChunkStorageMetadata of torch.distributed.checkpoint, which has offsets and sizes as well.
Costs nothing; no communication.
The production version also keeps which mesh and which placements a box came from.

Tensor parallelism holds a box of a matrix, a pipeline stage a box that is the whole tensor, FSDP a
stretch of the flattened tensor, which is a few boxes. Two layouts meet where their boxes intersect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.checkpoint.errors import CheckpointError


@dataclass(frozen=True, order=True)
class Box:
    """The elements at `offsets[d] ≤ index[d] < offsets[d] + sizes[d]` in each dim d.

    Attributes:
        offsets: where it begins, one number for each dim.
        sizes: how far it reaches.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        """All of a tensor."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def count(self) -> int:
        """Elements in it; a tensor without dims has one."""
        return math.prod(self.sizes)

    @property
    def ends(self) -> tuple[int, ...]:
        """The first index behind it, in each dim."""
        return tuple(o + s for o, s in zip(self.offsets, self.sizes, strict=True))

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether it lies in a tensor of this shape."""
        if len(self.offsets) != len(shape) or len(self.sizes) != len(shape):
            return False
        if min((*self.offsets, *self.sizes), default=0) < 0:
            return False
        return all(end <= size for end, size in zip(self.ends, shape, strict=True))

    def intersect(self, other: Box) -> Box | None:
        """What the two have in common, in the same tensor; None if that is no element."""
        low = tuple(map(max, self.offsets, other.offsets))
        high = tuple(map(min, self.ends, other.ends))
        sizes = tuple(h - b for b, h in zip(low, high, strict=True))
        return Box(low, sizes) if min(sizes, default=1) > 0 else None

    def slices(self, outer: Box) -> tuple[slice, ...]:
        """Where it is in a tensor that holds just `outer`, in which it must lie."""
        starts = [mine - its for mine, its in zip(self.offsets, outer.offsets, strict=True)]
        return tuple(slice(b, b + s) for b, s in zip(starts, self.sizes, strict=True))

    def moved(self, by: Sequence[int]) -> Box:
        """The same box, moved by `by[d]` along each dim d."""
        return Box(tuple(o + d for o, d in zip(self.offsets, by, strict=True)), self.sizes)

    def range_in(self, outer: Box) -> range:
        """From its first to its last element in the flattened `outer`, in which it must lie."""
        first = last = 0
        for start, size, stride in zip(
            (s.start for s in self.slices(outer)), self.sizes, _strides(outer.sizes), strict=True
        ):
            first += start * stride
            last += (start + size - 1) * stride
        return range(first, last + 1)


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]


def boxes_of_range(shape: Sequence[int], start: int, stop: int) -> list[Box]:
    """The elements `start` to `stop` of a flattened tensor, as boxes, in the order they lie in.

    A stretch is the end of one row, some whole rows, and the beginning of another; the two ends are
    stretches of one dim less. So there are at most 2·dims - 1 boxes (one, if there is no dim).

    Args:
        shape: of the tensor.
        start: first element, row-major.
        stop: behind the last one, at most the number of elements.
    """
    if start >= stop:
        return []
    if not shape:
        return [Box((), ())]
    row = math.prod(shape[1:])
    first, last = -(-start // row), stop // row  # whole rows: first ≤ r < last
    if first > last:  # within one row
        return _in_row(shape, last, start - last * row, stop - last * row)
    boxes = _in_row(shape, first - 1, start - (first - 1) * row, row) if start < first * row else []
    if first < last:
        boxes.append(Box((first, *[0] * (len(shape) - 1)), (last - first, *shape[1:])))
    return boxes + _in_row(shape, last, 0, stop - last * row)


def _in_row(shape: Sequence[int], row: int, start: int, stop: int) -> list[Box]:
    inner = boxes_of_range(shape[1:], start, stop)
    return [Box((row, *box.offsets), (1, *box.sizes)) for box in inner]


def check_cover(name: str, shape: Sequence[int], boxes: Sequence[Box]) -> None:
    """Refuses boxes that do not hold every element of a tensor exactly once.

    Boxes that do not overlap and have as many elements as the tensor together cover it.

    Args:
        name: of the tensor, for the error.
        shape: of the tensor.
        boxes: replicas left out.

    Raises:
        CheckpointError: an element is missing, is there twice, or a box lies outside.
    """
    asked = f"every element of {name}, shape {tuple(shape)}, exactly once"
    outside = [box for box in boxes if not box.fits(shape)]
    if outside:
        raise CheckpointError(asked, f"{outside[0]}", "this box does not lie in the tensor")
    both = overlap([box for box in boxes if box.count])
    if both is not None:
        raise CheckpointError(
            asked, f"{both[0]} and {both[1]}", "parts overlap without being the same"
        )
    count, found = math.prod(shape), sum(box.count for box in boxes)
    if found != count:
        raise CheckpointError(
            asked, f"{found} of {count} elements, in {len(boxes)} boxes", "the rest is nowhere"
        )


def overlap(boxes: Sequence[Box]) -> tuple[Box, Box] | None:
    """Two of the boxes that have an element in common, if there are two.

    A sweep along the dim that is cut most often: a box is compared with those only that begin
    before it and have not ended.
    """
    dims = range(len(boxes[0].sizes)) if boxes else range(0)
    dim = max(dims, key=lambda d: len({box.offsets[d] for box in boxes}), default=0)
    open_: list[Box] = []
    for box in sorted(boxes, key=lambda box: (box.offsets[dim:], box)):
        open_ = [o for o in open_ if not o.sizes or o.ends[dim] > box.offsets[dim]]
        for other in open_:
            if box.intersect(other) is not None:
                return other, box
        open_.append(box)
    return None
