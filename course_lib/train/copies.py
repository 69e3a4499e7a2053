"""Who has the same part of a parameter: what tensor parallelism cuts, and what it leaves whole.

Notebook: 13 3D parallelism (grad_norm_nd, finalize_grads).
Paper: Shoeybi et al., "Megatron-LM" (2019), section 3; Ainslie et al., "GQA" (2023) for few heads.
Costs nothing.
The production version (Megatron-core) writes an attribute on each parameter; DTensor's placements
say it for each axis.
"""

from __future__ import annotations

from torch import nn

from course_lib.comm import Group
from course_lib.model import ModelConfig
from course_lib.model.transformer import Attention
from course_lib.parallel import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding


def tensor_copies(model: nn.Module, config: ModelConfig, group: Group) -> dict[nn.Parameter, int]:
    """How many ranks of the tensor-parallel group have what this rank has of each parameter.

    Args:
        model: cut by `tensor_parallel` over the group, or whole if that is one rank.
        config: of the whole model, for its key-value heads.
        group: the tensor-parallel ranks.

    Returns:
        N for what is whole (norms, routers, biases added after the sum), N/K for key and value
        projections if there are only K < N heads of them, and 1 for all other matrices.
    """
    copies = dict.fromkeys(model.parameters(), group.size)
    for module in model.modules():
        if isinstance(module, ColumnParallelLinear | VocabParallelEmbedding):
            copies.update(dict.fromkeys(module.parameters(), 1))
        elif isinstance(module, RowParallelLinear):
            copies[module.weight] = 1
    for module in model.modules():
        if isinstance(module, Attention):
            heads = (*module.key.parameters(), *module.value.parameters())
            copies.update(dict.fromkeys(heads, max(1, group.size // config.kv_heads)))
    return copies
