"""The words under a map of a checkpoint: who holds, writes and reads how many bytes."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.plot.checkpoint.checkpoint_parts import Story, TensorPart
from course_lib.plot.player.style import format_bytes

TITLES = (
    "1. What each rank holds",
    "2. Who writes what: each byte once",
    "3. On disk: a file for each rank",
    "4. The manifest comes last",
    "5. Another job: what each rank is to have",
)


def captions(story: Story) -> list[str]:
    """A caption for each frame: those of `TITLES`, then one for each rank that loads."""
    return [_held(story), _written(story), _files(story), _manifest(story), _wanted(story)] + [
        _read(story, rank) for rank in story.loaders
    ]


def titles(story: Story) -> list[str]:
    """A heading for each frame."""
    reads = [f"{6 + i}. Rank {rank} reads" for i, rank in enumerate(story.loaders)]
    return [*TITLES, *reads]


def _held(story: Story) -> str:
    """How much of what is held is there more than once."""
    held = sum(story.count(part) for part in story.held)
    whole = format_bytes(story.size)
    words = f"The tensors are {whole}. {_each(story, story.held, story.savers)}, "
    if held == story.size:
        return words + "together each byte once: nothing is held twice."
    copies = format_bytes(held - story.size)
    return words + f"together {format_bytes(held)}, of which {copies} are replicas."


def _written(story: Story) -> str:
    """What each rank writes, and what it leaves to others."""
    stored = [part for part, _, _ in story.stored]
    words = f"{_each(story, stored, story.savers)} to write: {format_bytes(story.size)} in all."
    left = sum(story.count(part) for part in story.held) - story.size
    if left:
        words += f" The pale parts, {format_bytes(left)}, are replicas that another rank writes."
    return words


def _files(story: Story) -> str:
    """What is on the disk before the manifest."""
    files = ", ".join(f"{name} {format_bytes(size)}" for name, size in story.files.items())
    return (
        f"Each rank writes its parts one after another: {files}. There is no manifest yet, so if "
        "the job dies now, no reader will load anything."
    )


def _manifest(story: Story) -> str:
    """What the manifest says."""
    return (
        f"The manifest, {format_bytes(story.manifest)}, says which box of which tensor lies at "
        "which byte of which file. It is written when all files are on the disk; then the folder "
        "gets its name, all at once."
    )


def _wanted(story: Story) -> str:
    """What the ranks that load are to have."""
    count = len(story.loaders)
    return (
        f"{count} rank{'s load' if count > 1 else ' loads'}. "
        f"{_each(story, story.wanted, story.loaders)} to read. Their number and their way "
        "to cut the tensors may differ from those of the ranks that saved."
    )


def _read(story: Story, rank: int) -> str:
    """Which bytes of which files a rank needs."""
    sources = []
    for file in story.files:
        ranges = story.needed(rank, file)
        if ranges:
            count = format_bytes(sum(map(len, ranges)))
            pieces = f"{len(ranges)} stretches" if len(ranges) > 1 else "one stretch"
            sources.append(f"{count} of {file} in {pieces}")
    total = format_bytes(story.total(story.wanted, rank))
    words = ", ".join(sources) or "nothing"
    return f"Rank {rank} needs {total}: {words}. The colour is the file's."


def _each(story: Story, parts: Sequence[TensorPart], ranks: Sequence[int]) -> str:
    """`Each rank has 4 KiB`, or one number for each rank."""
    counts = [format_bytes(story.total(parts, rank)) for rank in ranks]
    if len(set(counts)) == 1 < len(ranks):
        return f"Each rank has {counts[0]}"
    each = (f"rank {rank} has {count}" for rank, count in zip(ranks, counts, strict=True))
    return ", ".join(each).replace("rank", "Rank", 1)


def describe(story: Story) -> str:
    """The whole story: all captions, and for each tensor who writes which box."""
    tensors = [
        f"{name}, shape {_shape(tensor.shape)}: "
        + ", ".join(
            f"rank {part.rank} from {_shape(part.offsets)} sizes {_shape(part.sizes)}"
            for part, _, _ in story.stored
            if part.tensor == name and story.count(part)
        )
        for name, tensor in story.tensors.items()
    ]
    head = (
        f"A checkpoint of {len(tensors)} tensors, saved by {len(story.savers)} ranks and loaded "
        f"by {len(story.loaders)}."
    )
    return " ".join([head, *captions(story), f"Written: {'; '.join(tensors)}."])


def _shape(numbers: Sequence[int]) -> str:
    """`64×32`; a scalar's is `()`."""
    return "×".join(map(str, numbers)) or "()"


def name_and_size(story: Story, name: str) -> tuple[str, str]:
    """A tensor's name, its beginning left out where it is long; its shape and bytes."""
    tensor = story.tensors[name]
    short = name if len(name) <= 30 else f"…{name[-29:]}"
    return short, f"{_shape(tensor.shape)} · {format_bytes(tensor.size)}"
