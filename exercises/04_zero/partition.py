"""Many tensors as W equal shards: what every form of ZeRO and FSDP cuts a model into.

Notebook 04. A model's parameters have all sizes, and a rank must get 1/W of them, whatever they
are. So they are laid out one after the other in one flat row, zeros are put at its end until its
length divides by W, and the row is cut into W equal shards. A shard may begin or end in the middle
of a parameter. `restore` is the way back: from the shards to tensors of the old shapes.

Rules:

- `partition` returns W shards of one dimension and ceil(total / W) elements each, total being the
  elements of all tensors. In the row, each tensor's elements stand in their logical order (row by
  row), also if its memory is in another order.
- A tensor that is in the list twice (a tied weight: the very same object) is in the row once, at
  its first place. `restore` returns one and the same tensor at both places.
- Padding is zeros: norms over shards must not see it.
- Each shard has memory of its own, since a rank keeps one and frees the rest. The tensors that
  were given stay as they are.
- `restore` takes the values from the shards alone; of `like` it uses the shapes, and which tensors
  are the same. What it returns may be views or copies.

All tensors have one dtype, which stays. Sizes need not divide; scalars, tensors without elements
and fewer elements than shards occur. Nothing is sent.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Sequence

import torch


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    """Cuts tensors into equal shards.

    Args:
        tensors: of one dtype, at least one; may need gradients, the shards do not.
        parts: W, how many shards.

    Returns:
        W shards of one dimension, all of the same size.
    """
    raise NotImplementedError("partition: write your answer here")


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Puts tensors together from shards: the inverse of `partition`.

    Args:
        shards: all W of them, in order.
        like: tensors of the shapes wanted, in order, tied where the result is to be tied.

    Returns:
        One tensor for each of `like`.
    """
    raise NotImplementedError("partition: write your answer here")
