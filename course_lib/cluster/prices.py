"""What an operation takes on a GPU: the roofline, operation by operation as it is dispatched.

Notebook: 14 Profiling and debugging (roofline), 13 The mesh (a cluster in the cell).
Paper: Williams, Waterman and Patterson, "Roofline" (2009).
Costs a look into a table for each operation.
The production version measures each kernel once, and looks it up.

Nothing is fused that the program does not fuse: where the planner takes a norm as one pass through
memory, code that is written out makes one for each of its operations.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from course_lib.cluster.operations import name_of, tensors_in
from course_lib.plan.inputs.calibration import FITTED, STREAMING, Fitted
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.time.block import Product
from course_lib.plan.time.kernels import product_seconds
from course_lib.trace import Refusal

PRECISIONS = {torch.float16: "fp16", torch.bfloat16: "bf16"}
# Where the two factors of each product stand among its arguments.
PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "_scaled_mm": 0}
BACKWARD = 2.5  # of attention's forward: five products for two
FREE = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach")


@cache
def is_product(func: Any) -> bool:
    """Whether an operation is a matrix product."""
    return func is not None and name_of(func).removesuffix("_") in PRODUCTS


class Prices:
    """Seconds of operations on one GPU.

    Args:
        cluster: its GPU counts.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.gpu = cluster.gpu
        self.fitted = FITTED.get(self.gpu.name, Fitted())

    def seconds(self, func: Any, args: Any, result: Any) -> float:
        """Of one operation, from what went in and what came out."""
        name = name_of(func).removesuffix("_")
        if name in PRODUCTS:
            return self._product(*args[PRODUCTS[name] : PRODUCTS[name] + 2])
        if "scaled_dot_product" in name:
            return self._attention(name, args)
        if name in FREE:
            return 0.0
        return sum(t.nbytes for t in tensors_in((args, result))) / (self.gpu.bandwidth * STREAMING)

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> float:
        copies = left.shape[0] if left.dim() == 3 else 1
        product = Product(left.shape[-2], left.shape[-1], right.shape[-1], copies)
        if not product.flops:
            return 0.0
        precision = "fp8" if left.dtype.itemsize == 1 else PRECISIONS.get(left.dtype, "fp32")
        if precision == "fp8" and self.gpu.peak["fp8"] == self.gpu.peak["bf16"]:
            raise Refusal(
                f"a product of 8-bit numbers on {self.gpu.name}",
                "a GPU without units for them",
                "take one that has them, as H100, or compute in bf16",
            )
        return product_seconds(product, self.gpu, precision, self.fitted)

    def _attention(self, name: str, args: Any) -> float:
        """Two products of each query with each key; half of them if it is causal."""
        backward = "backward" in name
        query, key = args[1:3] if backward else args[:2]
        causal = any(value is True for value in args)
        pairs = math.prod(query.shape[:-1]) * key.shape[-2] * (0.5 if causal else 1.0)
        work = 4 * pairs * query.shape[-1] * (BACKWARD if backward else 1.0)
        precision = PRECISIONS.get(query.dtype, "fp32")
        rate = self.gpu.peak[precision] * self.gpu.attention[backward] * self.fitted.sustained
        return float(work / rate)
