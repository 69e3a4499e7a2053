"""Which numbers are computed with, summed and kept: formats, policies, masters, loss scales."""

from course_lib.precision.formats import (
    BF16,
    E2M1,
    E4M3FN,
    E5M2,
    E8M0,
    FP16,
    Format,
    round_to,
    values,
)
from course_lib.precision.fp8 import Fp8Linear, fp8_linear, fp8_linears
from course_lib.precision.fp8_gather import Fp8Pack, fp8_all_gather
from course_lib.precision.fp8_matmul import choose_way, scaled_matmul
from course_lib.precision.hadamard import hadamard, rotate
from course_lib.precision.loss_scaler import DynamicLossScaler
from course_lib.precision.master_weights import MasterWeights
from course_lib.precision.mixed_precision import Policy, cast_forward, cast_module, reduction_bound
from course_lib.precision.recipes import (
    BlockScaling,
    CurrentScaling,
    DelayedScaling,
    MxScaling,
    Nvfp4Scaling,
    Recipe,
    Scalers,
)
from course_lib.precision.scaling import Scaled, quantize, quantize_now
from course_lib.precision.small_blocks import mx_quantize, nvfp4_quantize
from course_lib.precision.tensor_core import unit_matmul

__all__ = [
    "BF16",
    "E2M1",
    "E4M3FN",
    "E5M2",
    "E8M0",
    "FP16",
    "BlockScaling",
    "CurrentScaling",
    "DelayedScaling",
    "DynamicLossScaler",
    "Format",
    "Fp8Linear",
    "Fp8Pack",
    "MasterWeights",
    "MxScaling",
    "Nvfp4Scaling",
    "Policy",
    "Recipe",
    "Scaled",
    "Scalers",
    "cast_forward",
    "cast_module",
    "choose_way",
    "fp8_all_gather",
    "fp8_linear",
    "fp8_linears",
    "hadamard",
    "mx_quantize",
    "nvfp4_quantize",
    "quantize",
    "quantize_now",
    "reduction_bound",
    "rotate",
    "round_to",
    "scaled_matmul",
    "unit_matmul",
    "values",
]
