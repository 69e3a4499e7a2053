"""The zoo: one row a model. A wrapper that `refused` does not name must equal one process."""

from __future__ import annotations

from torch import nn

from tests.parallel.zoo import architectures as arch
from tests.parallel.zoo import flows, weights
from tests.parallel.zoo.specimen import Specimen, sgd
from tests.parallel.zoo.wrappers import OURS

THREE = ("0", "1", "2")
ZERO, FSDPS = ("Zero1", "Zero2"), ("FSDP", "FSDP bf16")
ZERO_MEMORY = dict.fromkeys(ZERO, "same memory")
FSDP_MEMORY = dict.fromkeys(FSDPS, "same memory")

ROWS = [
    # what its parameters are
    Specimen("lora", "LoRA adapters: frozen layers under trained ones", weights.lora, THREE),
    Specimen("partly_frozen", "units that are frozen, or partly", weights.partly_frozen, THREE),
    Specimen("frozen_prelu", "a frozen PReLU in a trained unit", weights.frozen_prelu, ("0", "1")),
    Specimen("weight_norm", "weight_norm by hooks, on a unit and in one", weights.weight_norm,
             THREE),
    Specimen("parametrized", "parametrizations: weight_norm, orthogonal", weights.parametrized,
             THREE,
             unfit="the orthogonal map has a buffer in float64"),
    Specimen("spectral", "spectral_norm, which writes buffers", weights.spectral, ("0", "1"),
             unfit="its vectors are buffers in float64"),
    Specimen("tied", "one parameter under two names", weights.Tied, ("first", "middle", "last")),
    Specimen(
        "tied_by_storage", "two parameters in one memory", weights.tied_by_storage, ("middle",),
             refused=ZERO_MEMORY | FSDP_MEMORY),
    Specimen("embedding", "an embedding with padding", weights.Embedded, ("table", "body"),
             data=weights.tokens),
    Specimen("sparse", "an embedding with sparse gradients", weights.sparse, ("table",),
             data=weights.tokens, optimizer=sgd, tolerance=1e-5),
    Specimen("complex", "a complex parameter", weights.Complex, ("before",)),
    Specimen("mixed", "float32 among float64", weights.Mixed, ("first", "narrow"),
             close=1e-6),
    Specimen("scalars", "parameters of no dim and of one element", weights.Odd, ("body",)),
    Specimen("without_elements", "a parameter without elements", weights.without_elements,
             ("body",)),
    Specimen("transposed", "a parameter laid out in columns", weights.Laid, ("body",)),
    Specimen("expanded", "a frozen parameter that is an expanded row", weights.expanded, ("body",),
             refused=dict.fromkeys(("BucketedDDP", *ZERO), "single memory location")),
    Specimen("view", "a parameter that is a view of a buffer", weights.Part, ("body",),
             refused=ZERO_MEMORY | FSDP_MEMORY),
    Specimen("sibling", "weights read from outside of their unit", weights.Sibling,
             ("first", "second"),
             refused=dict.fromkeys(FSDPS, "in its forward only")),
    Specimen("lists", "a ModuleList and a ParameterList as units", weights.Lists,
             ("blocks", "shifts"),
             refused=dict.fromkeys(FSDPS, "has no forward")),
    Specimen("clamped", "a weight that its forward clamps", weights.clamped, ("0", "1"),
             refused=dict.fromkeys(FSDPS, "a write to a parameter")),
    Specimen("clamped_by_data", "the same through `.data`", weights.clamped_by_data, ("0", "1"),
             refused=dict.fromkeys(FSDPS, "a write to a parameter")),
    Specimen("max_norm", "an embedding with max_norm", weights.Renormed, ("table", "body"),
             data=weights.tokens, refused=dict.fromkeys(OURS, "max_norm")),
    Specimen("sparse_buffer", "a sparse buffer", weights.Neighbours, ("body",),
             refused=dict.fromkeys(("BucketedDDP", *FSDPS), "layout torch.sparse_coo")),
    Specimen("extra_state", "get_extra_state, in a checkpoint", weights.Counted, ("body",),
             refused=dict.fromkeys(OURS, "get_extra_state")),
    # what goes in, what comes out, what is used
    Specimen("hands_through", "a unit that hands an input on", flows.HandsThrough,
             ("blocks.0", "blocks.1", "blocks.2")),
    Specimen("dataclass", "dataclasses between units", lambda: flows.Speaks("dataclass"),
             ("inner.inner", "inner"), loss=flows.answered),
    Specimen("dict", "dicts, lists and None between units", lambda: flows.Speaks("dict"),
             ("inner.inner", "inner"), loss=flows.answered),
    Specimen("namedtuple", "named tuples between units", lambda: flows.Speaks("namedtuple"),
             ("inner.inner", "inner"), loss=flows.answered),
    Specimen("keywords", "inputs by keyword, nested", flows.Keywords, ("first", "last"),
             loss=flows.by_keyword),
    Specimen("methods", "other methods than forward", flows.Methods, ("body.0", "head"),
             loss=flows.encoded,
             refused=dict.fromkeys(FSDPS, "call_as_forward")),
    Specimen("methods_inside", "a unit used by another method", flows.Methods, ("body.0", "head"),
             refused=dict.fromkeys(FSDPS, "call_as_forward")),
    Specimen("twice", "a unit that is used twice", flows.Twice, ("again", "between")),
    Specimen("branches", "a branch that some ranks take", flows.Branches, ("left", "right"),
             data=flows.branching, unused=True),
    Specimen("unused", "an output that the loss leaves out", flows.Spare, ("body", "unused"),
             loss=flows.first_of_two, unused=True),
    Specimen("unasked", "the same without find_unused_parameters", flows.Spare, ("body", "unused"),
             loss=flows.first_of_two,
             refused=dict.fromkeys(OURS, "find_unused_parameters")),
    Specimen("double_backward", "a penalty on the gradient's norm", lambda: weights.chain(
             weights.block(), weights.block()), ("0", "1"), loss=flows.gradient_penalty,
             refused=dict.fromkeys(FSDPS, "create_graph")),
    Specimen("recomputed", "this course's checkpoint", flows.recomputed_by_us,
             ("blocks.0", "blocks.1")),
    Specimen("recomputed_torch", "torch's checkpoint", flows.recomputed_by_torch,
             ("blocks.0", "blocks.1")),
    Specimen("reentrant", "torch's reentrant checkpoint", flows.recomputed_reentrant,
             ("1.blocks.0", "1.blocks.1")),
    Specimen("in_place", "activations changed in place", flows.in_place, ("0", "2")),
    Specimen("hooks", "hooks of the user", flows.hooked, ("0", "1")),
    Specimen("function", "a custom autograd Function", flows.handmade, THREE),
    Specimen("loss_outside", "cross-entropy outside of the model", lambda: weights.chain(
             weights.block()), ("0",), loss=flows.cross_entropy),
    Specimen("compiled", "torch.compile of a unit's inside", flows.compiled, ("1",), slow=True),
    Specimen("accumulated", "three backwards a step, two in no_sync", lambda: weights.chain(
             weights.block(), weights.block()), ("0", "1"), micro=3, tolerance=0.02),
    Specimen("per_example", "vmap inside", flows.PerExample, ("inner",),
             refused=dict.fromkeys(FSDPS, "inside torch.func")),
    Specimen("scripted", "torch.jit of a unit", flows.scripted, ("0", "1"),
             refused=dict.fromkeys(FSDPS, "torch.jit")),
    # whole architectures
    Specimen("batch_norm", "BatchNorm, channels last", arch.Convolutions, ("body", "second"),
             data=arch.images,
             unfit="its averages are buffers in float64"),
    Specimen("recurrent", "LSTM and GRU", arch.Recurrent, ("lstm", "gru")),
    Specimen("experts", "a router and experts", arch.Experts,
             ("experts.0", "experts.1", "experts.2"), unused=True),
    Specimen("encoder_decoder", "cross-attention to an encoder", arch.EncoderDecoder,
             ("encoder.0", "encoder.1", "decoder.0", "decoder.1")),
    Specimen("buffers", "buffers of integers and bools, unsaved, and a view", arch.Buffers,
             ("body.0",)),
    Specimen("one_unit", "the root alone", lambda: nn.Sequential(nn.Linear(6, 3))),
]  # fmt: skip
SPECIMENS = {row.name: row for row in ROWS}
