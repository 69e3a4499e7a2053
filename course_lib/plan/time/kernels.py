"""How long a rank computes: the roofline, product by product.

Notebook: 14 Profiling and debugging (roofline), 15 Choosing a strategy (step_time).
Paper: Williams, Waterman and Patterson, "Roofline" (2009).
Costs nothing.
The production version looks each shape up in a table of measured times.
"""

from __future__ import annotations

import math

from course_lib.layout import Layout
from course_lib.plan.inputs.calibration import EAGER, STREAMING, Fitted
from course_lib.plan.inputs.hardware import Gpu
from course_lib.plan.inputs.software import Software
from course_lib.plan.time.block import Product, Work

# Of FlashAttention-2's rate is that of one in Triton: Dao (2023), section 4.1, says that his is 1.3
# to 1.5 times as fast forward. Chosen within that with llm-foundry's A100 rows in view.
FIRST = 0.7
Parts = dict[str, float]


def filled(product: Product, gpu: Gpu) -> float:
    """Part of the multiprocessors that have a tile of the result, over all of the product's waves.

    A result is cut into tiles, either way round, and each multiprocessor takes one at a time; in
    the last wave some have none.
    """
    best = 0.0
    for height, width in (gpu.tile, gpu.tile[::-1]):
        down, across = product.rows / height, product.columns / width
        tiles = math.ceil(down) * math.ceil(across) * product.copies
        used = down * across * product.copies
        best = max(best, used / (math.ceil(tiles / gpu.units) * gpu.units))
    return best


def product_seconds(product: Product, gpu: Gpu, precision: str, fitted: Fitted) -> float:
    """The longer of computing and of moving what it reads and writes."""
    rate = gpu.reached[precision] * fitted.sustained * filled(product, gpu)
    width = {"fp32": 4, "fp8": 1}.get(precision, 2)
    moved = product.values * width / (gpu.bandwidth * STREAMING)
    return max(product.flops / rate, moved)


def compute(work: Work, gpu: Gpu, layout: Layout, software: Software, fitted: Fitted) -> Parts:
    """Seconds of a rank's work, by kind."""
    precision = layout.precision
    parts = gpu.attention if software.attention > 2 or not any(gpu.second) else gpu.second
    attention = gpu.peak["bf16"] * parts[work.backward] * fitted.sustained
    attention *= FIRST if software.attention == 1 else 1
    streamed = gpu.bandwidth * STREAMING
    return {
        "products": sum(product_seconds(p, gpu, precision, fitted) for p in work.products),
        "attention": work.attention / attention,
        "element-wise": work.traffic / (min(streamed, EAGER) if software.eager else streamed),
    }


def add(*parts: Parts, times: float = 1.0) -> Parts:
    """Sums by kind."""
    kinds = [kind for one in parts for kind in one]
    return {kind: times * sum(one.get(kind, 0.0) for one in parts) for kind in kinds}
