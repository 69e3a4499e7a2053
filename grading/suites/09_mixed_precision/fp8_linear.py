"""fp8_linear: three products of 8-bit numbers, a scale for each tensor, one byte kept."""

from __future__ import annotations

from typing import Any

import torch

from course_lib.grade.suite import Exercise, Run, check, describe, diagnosis
from course_lib.trace.memory import LiveMemory

EXERCISE = Exercise(
    title="A linear layer with 8-bit products",
    core=True,
    minutes=35,
    order=5,
    defines=("quantize", "fp8_linear"),
    library=(),
    hints=(
        "Three tensors become 8-bit numbers, each once: x and W in forward, dy in backward. Each "
        "of them enters two products. Which tensor is never quantized?",
        "`quantize`: `amax = x.float().abs().amax()`, the scale is amax / torch.finfo(dtype).max, "
        "or 1 where amax is 0 (`torch.where`). Divide by it, then cast. Forward saves what "
        "`quantize` gave for x and W, so that backward dequantizes the same numbers.",
        "`dy = dequantize(*quantize(grads[0], E5M2))`; dx is `dy @ W`, for any number of dims; "
        "for dW, flatten both to matrices of tokens: `dy.flatten(0, -2).t() @ x.flatten(0, -2)`. "
        "The bias's gradient is `grads[0].float().flatten(0, -2).sum(0)`, if there is a bias.",
    ),
)

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TOKENS, INPUTS, OUTPUTS = 256, 64, 32  # of the layer whose memory is measured
SCALARS = 256  # bytes, more than scales take
BF16 = torch.bfloat16
Case = dict[str, Any]
Kinds = dict[str, "torch.dtype | None"]

RIGHT: Kinds = {"x": E4M3, "W": E4M3, "dy": E5M2, "x again": E4M3, "W again": E4M3}
SLIPS: dict[str, Kinds] = {
    "the gradient is in e4m3, which has too little range for it: e5m2": {"dy": E4M3},
    "this product was computed from unquantized numbers":
        {"x": None, "W": None, "dy": None, "x again": None, "W again": None},
    "dy was not quantized": {"dy": None},
    "x was not quantized": {"x": None, "x again": None},
    "W was not quantized": {"W": None, "W again": None},
    "x and W are in e5m2: e4m3 has more precision": dict.fromkeys(RIGHT, E5M2),
}  # fmt: skip


# --- what runs on the rank -----------------------------------------------------------------------
def drive_quantize(
    learner: Any, group: Any, cases: list[tuple[torch.Tensor, torch.dtype]]
) -> list[dict[str, Any]]:
    """Quantizes tensors, and transposes of them."""
    found = []
    for x, dtype in cases:
        pair = learner.quantize(x.clone().t(), dtype)
        good = isinstance(pair, (tuple, list)) and len(pair) == 2
        found.append(dict(zip(("data", "scale"), pair if good else (pair, None), strict=True)))
    return found


def drive(learner: Any, group: Any, cases: list[Case]) -> list[dict[str, Any]]:
    """Forward and backward of layers; x and the gradient of y are not contiguous."""
    found = []
    for case in cases:
        given = {
            name: None if case[name] is None else case[name].clone().requires_grad_()
            for name in ("x", "W", "b")
        }
        x = given["x"]
        assert x is not None, "of the three, a case may leave out b alone"
        y = learner.fp8_linear(x.transpose(0, -1), given["W"], given["b"])
        if not isinstance(y, torch.Tensor) or y.shape != case["slopes"].transpose(0, -1).shape:
            found.append({"y": y})
            continue
        (y.transpose(0, -1) * case["slopes"]).sum().backward()
        found.append({"y": y} | {name: t.grad for name, t in given.items() if t is not None})
    return found


def drive_memory(learner: Any, group: Any, x: torch.Tensor, weight: torch.Tensor) -> dict[str, int]:
    """What a layer holds between forward and backward, beside its output."""
    leaf, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    with LiveMemory() as memory:
        h = leaf * 1.0
        y = learner.fp8_linear(h, weight)
        del h
        held = memory.now - y.untyped_storage().nbytes()
        y.sum().backward()
        return {"held": held}


# --- what it must bring back ---------------------------------------------------------------------
def scale_of(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The scale by the rule."""
    amax = x.abs().max().float()
    return amax / torch.finfo(dtype).max if amax else torch.ones(())


def coded(x: torch.Tensor, dtype: torch.dtype | None, scale: torch.Tensor | None) -> torch.Tensor:
    """What is meant after quantization, in float64; the scale by the rule if there is none."""
    if dtype is None:
        return x.double()
    scale = scale_of(x, dtype) if scale is None else scale
    return (x.float() / scale).to(dtype).double() * scale.double()


def layer(
    case: Case,
    slip: Kinds | None = None,
    scales: dict[str, torch.Tensor] | None = None,
    bias: float = 1.0,
) -> dict[str, torch.Tensor]:
    """Output and gradients in float64, with slips if asked.

    Args:
        case: a layer.
        slip: other formats than the right ones; None for a tensor that stays as it is.
        scales: of some tensors, instead of their own.
        bias: times which the bias is added.
    """
    kinds, scales = RIGHT | (slip or {}), scales or {}
    x, dy = (case[name].transpose(0, -1) for name in ("x", "slopes"))
    dy = dy.to(x.dtype)  # y has that dtype, so its gradient has
    every = {"x": x, "W": case["W"], "dy": dy, "x again": x, "W again": case["W"]}
    q = {name: coded(tensor, kinds[name], scales.get(name)) for name, tensor in every.items()}
    y = q["x"] @ q["W"].t()
    found = {
        "x": (q["dy"] @ q["W again"]).transpose(0, -1),
        "W": q["dy"].flatten(0, -2).t() @ q["x again"].flatten(0, -2),
    }
    if case["b"] is not None:
        y = y + bias * case["b"].double()
        found["b"] = dy.double().flatten(0, -2).sum(0)
    dtypes = {"y": x.dtype} | {name: case[name].dtype for name in found}
    return {name: tensor.to(dtypes[name]) for name, tensor in (found | {"y": y}).items()}


def clear(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Zeros in place of numbers that a last bit of float32 would round to another neighbour."""
    small = x.double() / scale_of(x, dtype).double()
    below, above = (((1 + e) * small).to(dtype).float() for e in (-1e-6, 1e-6))
    return torch.where(below == above, x, 0)


def _cases(run: Run) -> dict[str, Case]:
    """Hidden sizes and magnitudes; the first dim of x and of the slopes becomes the last one."""
    k, n, t, batch = run.number(17, 40), run.number(9, 16), run.number(5, 9), run.number(2, 4)
    wide = torch.float32
    forms = {"T×K, no bias": ((t,), False, wide, wide), "B×T×K": ((t, batch), True, wide, wide),
             "B×T×K, x in bf16": ((t, batch), True, BF16, wide),
             "T×K, W and b in bf16": ((t,), True, wide, BF16)}  # fmt: skip
    cases = {}
    for name, (tokens, bias, x_dtype, dtype) in forms.items():
        x, slopes = run.random((k, *tokens)) * 30, run.random((n, *tokens))
        slopes = slopes * (3e-7 if bias else 3e-3)  # without a scale some are lost, or all
        weight = clear((run.random((n, k)) * 0.02).to(dtype), E4M3)
        b = (run.random(n) * 5).to(dtype) if bias else None
        cases[name] = {"x": clear(x.to(x_dtype), E4M3), "W": weight, "b": b,
                       "slopes": clear(slopes.to(x_dtype), E5M2)}  # fmt: skip
    return cases


def _layers(run: Run) -> list[tuple[str, Case, dict[str, Any]]]:
    """Each layer's name, what it was given and what it gave, of which the output is looked at."""
    cases = _cases(run)
    found = run(drive, {"cases": list(cases.values())}).outputs[0]
    for (form, case), got in zip(cases.items(), found, strict=True):
        shape = case["slopes"].transpose(0, -1).shape
        _formed(run, got["y"], f"the output ({form})", case["x"].dtype, shape)
    return list(zip(cases, cases.values(), found, strict=True))


def likely(case: Case, name: str, actual: Any, wanted: torch.Tensor) -> dict[str, torch.Tensor]:
    """Known wrong values for the output or a gradient."""
    known = {why: layer(case, slip)[name] for why, slip in SLIPS.items()}
    of_x, of_w = scale_of(case["x"], E4M3), scale_of(case["W"], E4M3)
    none, forward = torch.ones(()), set(RIGHT) - {"dy"}
    slips = {
        "cast without a scale: small numbers are lost":
            dict.fromkeys(RIGHT, none) if name == "y" else {"dy": none},
        "one scale for all tensors: each needs its own":
            dict.fromkeys(forward, torch.maximum(of_x, of_w)),
        "dy has the scale of x: each tensor needs its own": {"dy": of_x},
    }  # fmt: skip
    known |= {why: layer(case, scales=scales)[name] for why, scales in slips.items()}
    if name == "y":
        known["the bias is forgotten"] = layer(case, bias=0)[name]
        known["the bias is added twice"] = layer(case, bias=2)[name]
    if isinstance(actual, torch.Tensor) and actual.shape == wanted.shape:
        error = (actual.double() - wanted.double()).abs().max() / wanted.double().abs().max()
        if error < 2**-7:
            known["this is the error of 16 bits: multiply and sum in float32"] = actual
    return known


def _compare(run: Run, name: str, what: str) -> None:
    """The output or one gradient of all layers."""
    for form, case, found in _layers(run):
        wanted = layer(case)
        if name in wanted:
            actual = found.get(name)
            terms = 64 if wanted[name].dtype == torch.float32 else 2
            known = likely(case, name, actual, wanted[name])
            run.close(actual, wanted[name], f"{what} ({form})", terms=terms, likely=known)


@check("quantize: 8-bit numbers, and the scale that they were divided by", points=4, code="P")
@diagnosis("number ≈ data · scale; scale = largest magnitude / largest number")
def check_quantize(run: Run) -> None:
    """P: bit for bit; both formats, large and tiny numbers, bf16, not contiguous."""
    cases = []
    for dtype in (E4M3, E5M2):
        for kind, size in ((torch.float32, 3e6), (torch.float32, 2e-9), (BF16, 1.0)):
            x = run.random((run.number(5, 9), run.number(5, 9))) * size
            x[0, 0] = -x.abs().max() * 1.7  # the largest magnitude is a negative number's
            cases.append((clear(x.to(kind), dtype), dtype))
    for (x, dtype), got in zip(
        cases, run(drive_quantize, {"cases": cases}).outputs[0], strict=True
    ):
        _formed(run, got["data"], "quantize's data", dtype, x.t().shape)
        _formed(run, got["scale"], "quantize's scale", torch.float32, torch.Size())
        scale, most = scale_of(x, dtype), torch.finfo(dtype).max
        known = {
            "the scale is inverted: largest magnitude / largest number": 1 / scale,
            "the largest number was taken, not the largest magnitude": x.max().float() / most,
            "448 is the largest number of e4m3: this is e5m2, use the dtype's": scale_of(x, E4M3),
            "57344 is the largest number of e5m2: this is e4m3, use the dtype's": scale_of(x, E5M2),
            "it is always 1, whatever the numbers are": torch.ones(()),
        }
        what = f"the scale of numbers up to {x.abs().max():.3g}"
        run.close(got["scale"], scale, what, likely=known)
        run.close(got["data"].float(), (x.t().float() / scale).to(dtype).float(),
                  f"the data in {str(dtype)[6:]} of numbers up to {x.abs().max():.3g}", likely={
            "multiplied by the scale: divide, so that the largest becomes the format's largest":
                (x.t().float() * scale).to(dtype).float(),
            "cast without a scale": x.t().float().to(dtype).float(),
        })  # fmt: skip


def _formed(run: Run, value: Any, what: str, dtype: torch.dtype, shape: torch.Size) -> None:
    def form(tensor: Any) -> str:
        return f"{str(tensor.dtype).removeprefix('torch.')}, {tuple(tensor.shape)}"

    wanted, is_tensor = form(torch.empty(shape, dtype=dtype)), isinstance(value, torch.Tensor)
    there = form(value) if is_tensor else describe(value)
    run.true(
        there == wanted,
        f"{what} has the wrong dtype or shape",
        expected=f"a tensor {wanted}",
        measured=f"a tensor {there}" if is_tensor else there,
    )


@check("the output: x in 8 bits times W in 8 bits, plus the bias", points=3, code="E")
@diagnosis("y = dequantized x · dequantized Wᵀ + b in float32")
def check_output(run: Run) -> None:
    """E: tokens in one and two dims, with and without bias, float32 and bf16, not contiguous."""
    _compare(run, "y", "the output")


@check("the gradient of x: dy in e5m2 times W in 8 bits", points=3, code="E")
@diagnosis("dx = dequantized dy · dequantized W")
def check_input_gradient(run: Run) -> None:
    """E: of the same layers."""
    _compare(run, "x", "the gradient of x")


@check("the gradient of W: the same dy times x in 8 bits", points=3, code="E")
@diagnosis("dW = dequantized dyᵀ · dequantized x, over all tokens")
def check_weight_gradient(run: Run) -> None:
    """E: of the same layers."""
    _compare(run, "W", "the gradient of W")


@check("the gradient of the bias: the sum of dy itself", points=2, code="E")
@diagnosis("the bias takes part in no product: sum dy over all tokens")
def check_bias_gradient(run: Run) -> None:
    """E: of the same layers."""
    for form, case, found in _layers(run):
        if case["b"] is not None:
            dy = case["slopes"].transpose(0, -1).to(case["x"].dtype)
            wanted = layer(case)["b"]
            terms = 64 if wanted.dtype == torch.float32 else 2
            run.close(found.get("b"), wanted, f"the gradient of the bias ({form})", terms=terms,
                      likely={
                "this is the sum of dy in 8 bits: sum dy itself":
                    coded(dy, E5M2, None).flatten(0, -2).sum(0).to(wanted.dtype),
                "this is the mean over tokens: the bias is added to each of them, so take the sum":
                    dy.double().flatten(0, -2).mean(0).to(wanted.dtype),
            })  # fmt: skip


@check("tensors of zeros", points=2, code="E")
@diagnosis("0/0: the scale of a tensor of zeros is 1")
def check_zeros(run: Run) -> None:
    """E: x, then W, then the gradient of y is all zeros; nothing becomes NaN."""
    plain = _cases(run)["B×T×K"]
    cases = [plain | {name: torch.zeros_like(plain[name])} for name in ("x", "W", "slopes")]
    found = run(drive, {"cases": cases}).outputs[0]
    for name, case, got in zip(("x", "W", "dy"), cases, found, strict=True):
        for key, wanted in layer(case).items():
            actual = got.get(key)
            bad = isinstance(actual, torch.Tensor) and not bool(actual.isfinite().all())
            what = "the output" if key == "y" else f"the gradient of {key}"
            run.true(
                not bad,
                f"{what} is NaN or infinite where {name} is all zeros",
                expected=describe(wanted),
                measured=describe(actual),
                cause="divided by a scale of 0: it must be 1 there",
            )


@check("one byte for each number of x and of W until backward", points=2, code="M")
@diagnosis("save what `quantize` gave, not what it was given")
def check_memory(run: Run) -> None:
    """M: every byte that is alive after forward, but x, W and y."""
    x, weight = (
        run.random(shape, torch.float32) for shape in ((TOKENS, INPUTS), (OUTPUTS, INPUTS))
    )
    held = run(drive_memory, {"x": x, "weight": weight}).outputs[0]["held"]
    most = x.numel() + weight.numel()
    run.at_most(
        held,
        most + SCALARS,
        f"bytes held after forward ({most:,} numbers)",
        cause="x is kept in high precision: 8 bits are all that backward needs"
        if held >= 2 * x.numel()
        else "",
    )
