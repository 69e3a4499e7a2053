"""The table of operations: which family each of torch's belongs to, and where dims go.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: ATen's names; autograd's formulas (derivatives.yaml) for what a backward is linear in.
Costs nothing.
The production version has a rule for each of torch's two thousand operations.
"""

from __future__ import annotations

from course_lib.spmd import shapes


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MOVES: dict[str, shapes.Mover] = {
    **dict.fromkeys(
        _names("detach alias clone _to_copy contiguous lift_fresh neg view_as lift_fresh_copy "
               "cumsum flip tril triu"),
        shapes.kept,
    ),
    **dict.fromkeys(_names("t numpy_T transpose"), shapes.swapped),
    "permute": shapes.permuted,
    **dict.fromkeys(_names("view _unsafe_view reshape _reshape_alias"), shapes.viewed),
    "unsqueeze": shapes.inserted,
    **dict.fromkeys(_names("select squeeze unbind"), shapes.removed),
    "expand": shapes.broadcast,
    **dict.fromkeys(_names("slice narrow"), shapes.cut),
    **dict.fromkeys(_names("split split_with_sizes"), shapes.split),
    "slice_backward": shapes.padded,
    **dict.fromkeys(_names("sum mean nansum"), shapes.reduced),
}  # fmt: skip
SUMS = _names("sum mean nansum")
JOINS: dict[str, shapes.Mover] = {"cat": shapes.joined, "stack": shapes.inserted}
ADDS = _names("add sub rsub lerp")
PRODUCTS = _names("mul div where masked_fill addcmul")
MATRICES = _names("mm bmm mv dot addmm baddbmm addmv")
NONLINEAR = _names(
    "gelu relu silu tanh sigmoid exp log log1p expm1 sqrt rsqrt pow square abs sin cos reciprocal "
    "hardtanh leaky_relu elu softplus mish clamp clamp_min clamp_max maximum minimum erf "
    "log_sigmoid_forward"
)
OVER_A_DIM = _names("_softmax _log_softmax logsumexp amax amin argmax")
BACKWARDS = _names(
    "gelu_backward silu_backward tanh_backward sigmoid_backward threshold_backward elu_backward "
    "leaky_relu_backward hardtanh_backward softplus_backward native_dropout_backward "
    "_softmax_backward_data _log_softmax_backward_data"
)
NORMS = _names("native_layer_norm _fused_rms_norm")
NORM_BACKWARDS = _names("native_layer_norm_backward _fused_rms_norm_backward")
ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
LOSSES = _names("mse_loss nll_loss_forward nll_loss2d_forward")
LOSS_BACKWARDS = _names("mse_loss_backward nll_loss_backward")
LINEAR_PATH = {*MOVES, *JOINS, "copy"}  # on which a gradient is still that gradient
SAME_TENSOR = _names("detach alias view_as view _unsafe_view lift_fresh t transpose")
COPIES = _names("detach alias clone copy")
FACTORIES_OF_ZEROS = _names("zeros zeros_like new_zeros zero")
