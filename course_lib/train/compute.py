"""What a model computes in, whichever way it is cut: a dtype for its modules, FP8 for its products.

Notebook: 09 Mixed precision and FP8, 13 3D parallelism.
Paper: Micikevicius et al., "Mixed Precision Training" (2018), section 3; Micikevicius et al., "FP8
Formats for Deep Learning" (2022), section 4, for the layers that stay wider.
Costs no message of its own; in 16 bits, tensor, context and pipeline parallelism send half the
bytes.
The production version (Megatron-core) keeps one narrow copy of the weights for all micro-batches.

    fp32    the weights' own dtype, whatever it is
    bf16    modules compute in bf16
    fp16    in fp16, with a loss scaler around it
    fp8     as bf16; the products inside the blocks are of 8-bit numbers, those of routers and of
            the output layer are not
"""

from __future__ import annotations

from functools import partial

import torch

from course_lib.model import Transformer
from course_lib.parallel import ColumnParallelLinear, RowParallelLinear
from course_lib.precision import CurrentScaling, Policy, cast_module, fp8_linear, fp8_linears
from course_lib.trace import Refusal

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


def lower_precision(
    model: Transformer, precision: str, *, gathered: bool = False
) -> torch.dtype | None:
    """Makes a model compute in another precision, in place; its parameters stay as they are.

    Args:
        model: cut by tensor and expert parallelism already, or whole.
        precision: a word of the list above.
        gathered: FSDP will cast what it gathers, so that nothing is cast here.

    Returns:
        The dtype of what blocks return; None for that of the parameters.

    Raises:
        Refusal: another word.
    """
    if precision not in DTYPES:
        raise Refusal(
            f"a model that computes in {precision!r}",
            ", ".join(DTYPES),
            "each of these is a recipe of this course, see course_lib/train/compute.py",
        )
    if precision == "fp8":
        _eight_bit_products(model)
    dtype = DTYPES[precision]
    if dtype is not None and not gathered:
        for module in (model.embedding, *model.blocks, model.norm, model.head):
            cast_module(module, Policy(param_dtype=dtype))
    return dtype


def _eight_bit_products(model: Transformer) -> None:
    """Each linear layer of a block gets scalers of its own; a router has none, and stays wide."""
    recipe = CurrentScaling()
    for block in model.blocks:
        fp8_linears(block, recipe)
        for module in block.modules():
            if isinstance(module, ColumnParallelLinear | RowParallelLinear):
                module.product = partial(fp8_linear, scalers=recipe.scalers())
