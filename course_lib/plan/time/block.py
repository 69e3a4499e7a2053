"""What one rank computes for one micro-batch in one block: products, attention, bytes.

Notebook: 14 Profiling and debugging (roofline), 15 Choosing a strategy (step_time).
Paper: Narayanan et al., "Megatron-LM" (2021), section 5.1, for the products; Korthikanti et al.
(2022), section 4, for the tensors between them, of which each is written once and read again.
Costs nothing: sizes of tensors.
The production version reads them off a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs.software import Software


@dataclass(frozen=True)
class Product:
    """A matrix multiplication (rows × inner) · (inner × columns), done `copies` times."""

    rows: float
    inner: float
    columns: float
    copies: float = 1.0

    @property
    def flops(self) -> float:
        """A multiplication and an addition are two."""
        return 2 * self.rows * self.inner * self.columns * self.copies

    @property
    def values(self) -> float:
        """Numbers that are read and written."""
        rows, inner, columns = self.rows, self.inner, self.columns
        return (rows * inner + inner * columns + rows * columns) * self.copies

    def for_input(self) -> Product:
        """The product of the backward that gives the gradient of its input."""
        return Product(self.rows, self.columns, self.inner, self.copies)

    def for_weight(self) -> Product:
        """The product of the backward that gives the gradient of its weight."""
        return Product(self.inner, self.rows, self.columns, self.copies)


@dataclass(frozen=True)
class Work:
    """Something that a rank computes.

    Attributes:
        products: matrix multiplications.
        attention: FLOPs inside fused attention.
        traffic: bytes of kernels that only read and write.
        backward: fused attention is slower on the way back.
    """

    products: tuple[Product, ...] = ()
    attention: float = 0.0
    traffic: float = 0.0
    backward: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Passes:
    """A block or the head in the parts of which a schedule is made.

    Attributes:
        forward: F.
        again: what of the forward is computed again before the backward.
        input: I, gradients of what came in.
        weight: W, gradients of weights.
    """

    forward: Work
    again: Work
    input: Work
    weight: Work


def token_count(config: ModelConfig, layout: Layout) -> float:
    """n, tokens of a micro-batch on a rank."""
    return layout.micro_batch_size * config.sequence / layout.cp


def _matrices(config: ModelConfig, layout: Layout) -> tuple[Product, ...]:
    """The products of a block with a weight in each."""
    c, t, n = config, layout.tp, token_count(config, layout)
    attention = _projections(c, n, t)
    wide = (2 if c.gated else 1) * c.ffn / t
    if c.moe is None:
        return (*attention, Product(n, c.hidden, wide), Product(n, c.ffn / t, c.hidden))
    if c.moe.shared:
        every = c.moe.shared
        attention += (Product(n, c.hidden, every * wide), Product(n, every * c.ffn / t, c.hidden))
    here = c.moe.experts / layout.ep
    rows = n * c.moe.top_k / here  # as many tokens come from other ranks as go to them
    return (
        *attention,
        Product(n, c.hidden, c.moe.experts),
        Product(rows, c.hidden, wide, here),
        Product(rows, c.ffn / t, c.hidden, here),
    )


def _projections(c: ModelConfig, n: float, tp: int) -> tuple[Product, ...]:
    """Attention's products with weights; of latent ones each rank of tp makes the vectors."""
    way = c.latent
    if way is None:
        own = c.heads * c.head_width
        return Product(n, c.hidden, (own + c.key_value_width) / tp), Product(n, own / tp, c.hidden)
    return (
        Product(n, c.hidden, way.queries + way.keys + way.turned),
        Product(n, way.queries, c.heads * c.query_width / tp),
        Product(n, way.keys, c.heads * (way.plain + way.values) / tp),
        Product(n, c.heads * way.values / tp, c.hidden),
    )


def _scores(config: ModelConfig, layout: Layout) -> float:
    """Entries of the T×T matrices of all heads of a rank."""
    return token_count(config, layout) * config.sequence * config.heads / layout.tp


def _core(config: ModelConfig, layout: Layout, software: Software) -> tuple[Work, Work]:
    """Attention between its projections, forward and backward.

    Fused, it is FLOPs, half of them under the mask, and the backward computes the scores again:
    five products for two. Otherwise two products in a batch of heads, and every kernel between them
    reads and writes all scores: softmax with scale and mask, dropout, and the products themselves.
    """
    scores, d = _scores(config, layout), config.head_width
    if software.recipe.flash:
        flops = 4 * scores * config.score_width / 2
        return Work(attention=flops), Work(attention=2.5 * flops, backward=True)
    heads = layout.micro_batch_size * config.heads / layout.tp
    rows = token_count(config, layout) / layout.micro_batch_size
    one = Product(rows, d, config.sequence, heads)
    two = Product(rows, config.sequence, d, heads)
    softmax, drop = (4, 6), (5, 5) if software.recipe.dropout else (0, 0)
    return (
        Work((one, two), traffic=scores * (softmax[0] + drop[0])),
        Work((one, one, two, two), traffic=scores * (softmax[1] + drop[1])),
    )


def _between(config: ModelConfig, layout: Layout, software: Software) -> tuple[float, float]:
    """Bytes of a block's element-wise kernels in 16 bits, forward and backward.

    Two norms (read, write; backward reads both, writes one, and sums for its weights), two
    additions to the residual (with bias and dropout in one kernel where there is dropout), the
    activation, and rotary embedding where the network is gated, as in LLaMA. Attention that is not
    fused copies queries, keys and values and its result into the order its products need, and
    programs of that age have biases, whose gradients read every gradient once more.
    """
    c, n = config, token_count(config, layout)
    stream = n * c.hidden / (layout.tp if layout.sequence else 1)
    inner = n * c.ffn / layout.tp * (c.moe.top_k + c.moe.shared if c.moe else 1)
    turned = n * (c.heads + c.kv_heads) * c.query_width / layout.tp if c.gated else 0
    copied = (
        0 if software.recipe.flash else n * 2 * (c.heads + c.kv_heads) * c.head_width / layout.tp
    )
    drop = (1, 5) if software.recipe.dropout else (0, 0)
    biases = 2 * (2 * stream + inner + copied) if software.recipe.dropout else 0
    act = (6, 10) if c.gated else (4 * software.activations, 6 * software.activations)
    forward = stream * 2 * (4 + 6 + drop[0]) + inner * act[0] + 4 * (turned + copied)
    backward = stream * 2 * (10 + 6 + drop[1]) + inner * act[1] + 4 * (turned + copied) + biases
    return forward, backward


def _casts(products: tuple[Product, ...], layout: Layout) -> float:
    """Bytes to bring products' inputs into 8 bits: read 2, write 1, and once more transposed."""
    if layout.precision != "fp8":
        return 0.0
    return sum(4 * p.rows * p.inner * p.copies for p in products)


def block(config: ModelConfig, layout: Layout, software: Software) -> Passes:
    """A block's work on one rank for one micro-batch."""
    products = _matrices(config, layout)
    core, core_back = _core(config, layout, software)
    forward, backward = _between(config, layout, software)
    cast, weights = _casts(products, layout), sum(p.inner * p.columns * p.copies for p in products)
    whole = Work(products + core.products, core.attention, core.traffic + forward + cast)
    full = Work(whole.products[:-1], core.attention, whole.traffic) if _stops(software) else whole
    again = {"none": Work(), "selective": Work() if software.recipe.flash else core, "full": full}
    return Passes(
        forward=whole,
        again=again[layout.recompute],
        input=Work(
            tuple(p.for_input() for p in products) + core_back.products,
            core_back.attention,
            core_back.traffic + backward + cast,
            backward=True,
        ),
        weight=Work(
            tuple(p.for_weight() for p in products), traffic=_sum(layout) * weights, backward=True
        ),
    )


def _stops(software: Software) -> bool:
    """Whether a block's last product is spared: fused attention comes before it in the list."""
    return software.early_stop and software.recipe.flash


def _sum(layout: Layout) -> int:
    """Bytes a weight to add a micro-batch's gradients to the sum: read 4, write 4.

    With ZeRO-3 there is no sum of whole gradients, only of the pieces that a rank keeps. Megatron
    adds inside the product, and pays all the same: without these 8 bytes the errors of its 19 runs
    on H100 in bf16 more than double (0.7 to 1.8 %, root mean square, fitted again). Its runs of
    zero-bubble schedules on A100 say otherwise (3.5 to 2.5 %), those of SC21 nothing.
    """
    return 0 if layout.zero == 3 else 8


def head(config: ModelConfig, layout: Layout) -> Passes:
    """The last norm's output times the vocabulary, and the loss, in 32 bits, cut over tp.

    The loss: cast (2 + 4 bytes), maximum, difference and exponential, sum (4 + 8 + 4); backward:
    the difference to the target and the cast back (8 + 6).
    """
    n, columns = token_count(config, layout), config.vocabulary / layout.tp
    product = Product(n, config.hidden, columns)
    return Passes(
        forward=Work((product,), traffic=n * columns * 22),
        again=Work(),
        input=Work((product.for_input(),), traffic=n * columns * 14, backward=True),
        weight=Work(
            (product.for_weight(),),
            traffic=_sum(layout) * config.hidden * columns,
            backward=True,
        ),
    )


def embedding(config: ModelConfig, layout: Layout, software: Software) -> Passes:
    """Rows of a table: read and written, and in the backward added to the table's gradient."""
    values = token_count(config, layout) * config.hidden
    table = config.vocabulary * config.hidden / layout.tp
    return Passes(
        forward=Work(traffic=values * (9 if software.recipe.dropout else 4)),
        again=Work(),
        input=Work(backward=True),
        weight=Work(traffic=4 * values + 8 * table, backward=True),
    )
