"""Parts of tensors: who has them, in which file they are, and which bytes of it somebody needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.trace import Refusal


class WholeTensor(NamedTuple):
    """A tensor of the model.

    Attributes:
        shape: its global shape.
        item: bytes of an element.
    """

    shape: tuple[int, ...]
    item: int

    @property
    def size(self) -> int:
        """Bytes of all of it."""
        return math.prod(self.shape) * self.item


class TensorPart(NamedTuple):
    """A box of a tensor that a rank has, writes or wants.

    Attributes:
        rank: which.
        tensor: name of the tensor.
        offsets: where the box begins, one number for each dim.
        sizes: how far it reaches.
    """

    rank: int
    tensor: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def common(self, other: TensorPart) -> TensorPart | None:
        """What this has in common with another part, as this rank's; None if that is nothing."""
        if self.tensor != other.tensor:
            return None
        low = tuple(map(max, self.offsets, other.offsets))
        ends = map(min, _ends(self), _ends(other))
        sizes = tuple(end - start for start, end in zip(low, ends, strict=True))
        return TensorPart(self.rank, self.tensor, low, sizes) if min(sizes, default=1) > 0 else None


class StoredPart(NamedTuple):
    """A part in a file.

    Attributes:
        part: which, of the rank that writes it.
        file: name of the file.
        at: where its first byte is in the file.
    """

    part: TensorPart
    file: str
    at: int


def _ends(part: TensorPart) -> list[int]:
    return [offset + size for offset, size in zip(part.offsets, part.sizes, strict=True)]


def stretches(shape: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]) -> list[range]:
    """Which elements of a flattened tensor a box holds: one range where they lie together.

    A cut of the last dim gives a range for each row.
    """
    found = [range(1)]
    for whole, offset, size in zip(shape, offsets, sizes, strict=True):
        if size == whole:
            found = [range(r.start * whole, r.stop * whole) for r in found]
        else:
            starts = [index * whole + offset for r in found for index in r]
            found = [range(start, start + size) for start in starts]
    return [r for r in found if r]


@dataclass(frozen=True)
class Story:
    """A checkpoint that is saved by some ranks and loaded by others.

    Attributes:
        tensors: all of them, by name.
        held: what each rank has that saves; replicas are there several times.
        stored: what is in the files, every element once.
        wanted: what each rank is to have that loads.
        manifest: bytes of the manifest.
    """

    tensors: Mapping[str, WholeTensor]
    held: Sequence[TensorPart]
    stored: Sequence[StoredPart]
    wanted: Sequence[TensorPart]
    manifest: int

    @property
    def savers(self) -> list[int]:
        """Ranks that save."""
        return sorted({part.rank for part in self.held})

    @property
    def loaders(self) -> list[int]:
        """Ranks that load."""
        return sorted({part.rank for part in self.wanted})

    @property
    def files(self) -> dict[str, int]:
        """Bytes of each file."""
        ends: dict[str, int] = {}
        for part, file, at in sorted(self.stored, key=lambda stored: stored.file):
            ends[file] = max(ends.get(file, 0), at + self.count(part))
        return ends

    @property
    def size(self) -> int:
        """Bytes of all tensors, each once."""
        return sum(tensor.size for tensor in self.tensors.values())

    def count(self, part: TensorPart) -> int:
        """Bytes of a part."""
        return math.prod(part.sizes) * self.tensors[part.tensor].item

    def total(self, parts: Sequence[TensorPart], rank: int) -> int:
        """Bytes of one rank's parts."""
        return sum(self.count(part) for part in parts if part.rank == rank)

    def sources(self, wanted: TensorPart) -> list[TensorPart]:
        """What a wanted part is made of, each with the rank that wrote it."""
        found = (stored.part.common(wanted) for stored in self.stored)
        return [part for part in found if part is not None]

    def needed(self, rank: int, file: str) -> list[range]:
        """The bytes of a file that a rank needs, in order, those that touch as one range."""
        ranges = [
            bytes_
            for wanted in self.wanted
            if wanted.rank == rank
            for stored in self.stored
            if stored.file == file
            for bytes_ in self._bytes(stored, wanted)
        ]
        joined: list[range] = []
        for bytes_ in sorted(ranges, key=lambda r: (r.start, r.stop)):
            if joined and bytes_.start <= joined[-1].stop:
                joined[-1] = range(joined[-1].start, max(joined[-1].stop, bytes_.stop))
            else:
                joined.append(bytes_)
        return joined

    def _bytes(self, stored: StoredPart, wanted: TensorPart) -> list[range]:
        """Where in the file the bytes are that a stored and a wanted part have in common."""
        part = stored.part
        common = part.common(wanted)
        if common is None:
            return []
        inside = [a - b for a, b in zip(common.offsets, part.offsets, strict=True)]
        item, at = self.tensors[part.tensor].item, stored.at
        found = stretches(part.sizes, inside, common.sizes)
        return [range(at + item * r.start, at + item * r.stop) for r in found]


def check_story(story: Story) -> None:
    """Refuses what is no checkpoint, or too much to be drawn.

    Raises:
        Refusal: there are no or too many ranks or tensors, a part lies outside its tensor, or
            the files do not hold every element exactly once.
    """
    ranks, tensors = max(len(story.savers), len(story.loaders)), len(story.tensors)
    if not (story.savers and story.loaders and ranks <= 6 and 1 <= tensors <= 12):
        raise Refusal(
            f"a map of {tensors} tensors, {len(story.savers)} ranks that save and "
            f"{len(story.loaders)} that load",
            "room for 1 to 12 tensors and 1 to 6 ranks",
            "a tensor must be large enough to be seen",
        )
    stored = [part for part, _, _ in story.stored]
    for part in (*story.held, *stored, *story.wanted):
        _check_inside(part, story.tensors)
    for name, tensor in story.tensors.items():
        parts = [part for part in stored if part.tensor == name]
        count = sum(math.prod(part.sizes) for part in parts)
        twice = any(a.common(b) for i, a in enumerate(parts) for b in parts[:i])
        if twice or count != math.prod(tensor.shape):
            raise Refusal(
                f"a map of files that hold {name}, shape {tensor.shape}",
                f"{count} elements in {len(parts)} parts, {'some' if twice else 'none'} "
                "of them twice",
                "in a checkpoint every element is stored exactly once",
            )


def _check_inside(part: TensorPart, tensors: Mapping[str, WholeTensor]) -> None:
    """Refuses a part that does not lie in one of the tensors."""
    shape = tensors[part.tensor].shape if part.tensor in tensors else None
    if (
        shape is None
        or not len(shape) == len(part.offsets) == len(part.sizes)
        or any(n < 0 for n in (*part.offsets, *part.sizes))
        or any(end > size for end, size in zip(_ends(part), shape, strict=True))
    ):
        raise Refusal(
            str(part),
            "no such tensor" if shape is None else f"shape {shape}",
            "a part lies in the tensor that it is of",
        )
