"""Many tensors as W equal shards: every form of ZeRO and FSDP cuts a model like this.

Notebook 04. A model's parameters have all sizes, but each rank must get 1/W of them. So they are
laid out one after another in one flat row, zeros are appended until W divides its length, and the
row is cut into W equal shards. A shard may begin or end in the middle of a parameter. `restore` is
the inverse: it makes tensors of the old shapes from the shards.

Rules:

- `partition` returns W shards of one dimension and ceil(total / W) elements each, where total is
  the number of elements of all tensors. In the row, each tensor's elements are in their logical
  order (row by row), even if they are in a different order in memory.
- A tensor that is in the list twice (a tied weight: the very same object) is in the row once, at
  its first place. `restore` returns one and the same tensor at both places.
- Padding is zeros, so that it does not change norms over shards.
- Each shard has its own memory, since a rank keeps one and frees the rest. The input tensors must
  not be changed.
- `restore` takes the values only from the shards. From `like` it takes the shapes, and which
  tensors are the same object. It may return views or copies.

All tensors have one dtype, which the shards keep. W need not divide the number of elements; there
may be scalars, tensors without elements, and fewer elements than shards. Nothing is sent.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence

import torch


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    """Cuts tensors into equal shards.

    Args:
        tensors: at least one, all of one dtype. They may require gradients; the shards must not.
        parts: W, the number of shards.

    Returns:
        W shards of one dimension, all of the same size.
    """
    raise NotImplementedError("partition: write your answer here")


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Restores tensors from shards: the inverse of `partition`.

    Args:
        shards: all W of them, in order.
        like: tensors of the shapes wanted, in order. Where one object is in it twice, the result
            has the same tensor at both places.

    Returns:
        One tensor for each of `like`.
    """
    raise NotImplementedError("partition: write your answer here")
