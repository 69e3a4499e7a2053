"""What a training program keeps of each parameter and of each operation, as data.

Notebook: 04 ZeRO (the memory table), 09 Mixed precision, 10 Activation checkpointing,
    15 Choosing a strategy (memory_model).
Paper: Rajbhandari et al., "ZeRO" (2020), section 3.1, for the 16 bytes; Korthikanti et al. (2022),
section 4, for dropout's masks; Dao et al., "FlashAttention" (2022) for what is not kept.
Costs nothing.
The production version is spread over the flags of a launch script and the code of each kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.layout import Layout


@dataclass(frozen=True)
class Recipe:
    """Bytes of each parameter in its three classes, and what the kernels keep for the backward.

    Attributes:
        weight: bytes of a parameter as it is kept between steps; ZeRO-3 cuts it.
        gradient: bytes of its gradient; ZeRO-2 cuts it.
        state: bytes of what the optimizer keeps, the fp32 master copy of a 16-bit weight included;
            ZeRO-1 cuts it.
        copy: bytes of a narrower copy of each weight inside a block, which is not cut.
        gathered: bytes of a parameter that ZeRO-3 has collected to compute with.
        activation: bytes of a value between two operations.
        product_input: bytes of a value that is kept only to be multiplied with in backward.
        flash: attention is one kernel. It keeps no matrix of T×T, and it computes nothing that
            the mask hides.
        dropout: there is dropout after attention's softmax, after attention and after the
            feed-forward network, each with a mask of a byte for a value.
        eager: every operation is a kernel of its own and keeps its inputs, as in the course's
            model; otherwise norms, rotary embedding and activation function are fused.
    """

    weight: float = 2
    gradient: float = 4
    state: float = 12
    copy: float = 0
    gathered: float = 2
    activation: float = 2
    product_input: float = 2
    flash: bool = True
    dropout: bool = False
    eager: bool = False

    @property
    def parameter(self) -> float:
        """Bytes of a parameter in all classes, where nothing is cut."""
        return self.weight + self.gradient + self.state + self.copy


# Gradients of a step are added up in fp32 (Megatron-LM): 18 bytes a parameter.
MEGATRON = Recipe()
# Gradients stay in 16 bits (DeepSpeed): the 16 bytes of ZeRO's table.
DEEPSPEED = Recipe(gradient=2)
# fp32 pieces, gathered in 16 bits (FSDP2): 16 bytes, and no copy in 16 bits between steps.
FSDP = Recipe(weight=4, state=8)
# TransformerEngine keeps each weight of a block in 8 bits too, once for each way to multiply.
FP8 = Recipe(copy=2, product_input=1)
FP32 = Recipe(weight=4, state=8, gathered=4, activation=4, product_input=4)
# The course's own model in fp32.
COURSE = Recipe(weight=4, state=8, gathered=4, activation=4, product_input=4, eager=True)


def usual_recipe(layout: Layout) -> Recipe:
    """The recipe of a production program for a layout's precision and stage of ZeRO."""
    if layout.precision == "fp32":
        return FP32
    if layout.precision == "fp8":
        return FP8
    return FSDP if layout.zero == 3 else MEGATRON
