"""Predict how long a step takes: a cost model of one page, good enough to rank layouts.

Notebook 15. A step's time is a sum of a few terms; each axis makes some of them longer and others
shorter. Write them down for the rank that is busy longest, one of the last stage, which has the
output layer. The grader checks each term, and then whether your sums put layouts of known models in
the same order as `course_lib.plan.simulate`, which knows far more.

The model (`ModelConfig`, without experts) has L blocks, each with w = D·(2·D + 2·E) + D·F·(3 if it
is `gated`, else 2) weights, E = `kv_heads` · `head_width`; an embedding and an output layer of V·D
each, which are one weight if the model is `tied`. The layout (`Layout`) has L/pp blocks on each
stage, and tp cuts all of these weights. A micro-batch has `micro_batch_size` sequences, which are
n = `micro_batch_size` · `sequence` tokens.

Computing. A pass over W weights (this rank's part, after tp) with f FLOPs takes as long as the
slower of two: f/(efficiency · peak), and moving its bytes at the GPU's `bandwidth`. A forward moves
2 bytes per weight. A backward has 2·f FLOPs and moves 12 bytes per weight: 4 to read it twice, and
8 to add to its gradient in fp32. The peak is `cluster.gpu.peak[layout.precision]`.
- A block's forward has 2·n·w FLOPs, and 2·n·`sequence`·D inside attention (instead of 4, because
  the causal mask leaves half). tp cuts both.
- With `recompute="full"`, every block's forward runs twice; `selective` costs nothing extra here,
  because fused attention recomputes its scores anyway. The output layer is never computed again.
- The output layer's forward has 2·n·V·D FLOPs, cut by tp. The embedding and norms are free.

Sums. An all-reduce of S bytes over N ranks takes 2·(N-1) messages of S/N bytes, one after another.
Each takes α + (S/N)/β, where α is the `alpha` of a `Link` in seconds and β its `bandwidth` in bytes
per second.
- The group's ranks are `stride` apart. If `stride`·N is at most the `node` size, the group is
  inside a node: α and β are those of `cluster.inside`. Otherwise α is that of `cluster.between`,
  and β is that of `between` times the number of the group's ranks in a node, max(1, node //
  stride), because each has its own network adapter; but β is never more than that of `inside`.
- tp: each block sums a micro-batch's activation twice in forward, twice in backward, and twice more
  if it is recomputed: 2·n·D bytes each. Its ranks are neighbours: stride 1. `sequence` sends the
  same bytes. Leave out the sums at the ends of the model.
- dp: once per step, this rank's gradients are summed over ranks that are tp apart: 2 bytes for each
  of its weights, in blocks and tables. A stage at one end of a pipeline has one table; a model in a
  single stage has two, or one if they are tied. ZeRO-1 and 2 send the same bytes. The sum is hidden
  behind the backward of the last micro-batch's blocks (only the computing, and without forwards
  that run again), and only what exceeds it counts.

Pipeline (pp above 1). For each micro-batch, a rank sends one message, an activation or a gradient,
and waits for another: two messages of 2·n·D/tp bytes. They go through `inside` if all GPUs are in
one node, else through `between`. Before and after the m micro-batches of 1F1B, the rank is idle for
pp - 1 times the time that a stage *without* the output layer needs for one micro-batch: computing,
tp and messages.

The answer is arithmetic. `Link.seconds(size)` is α + size/β.

Your answer may use `layout`, `model.ModelConfig` and `plan.Cluster` of `course_lib`.
"""

from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan import Cluster


def all_reduce(size: float, ranks: int, stride: int, cluster: Cluster) -> float:
    """Returns the seconds of an all-reduce over a group.

    Args:
        size: S, bytes.
        ranks: N; nothing is sent if it is 1.
        stride: the distance between neighbours in the group, in ranks.
        cluster: GPUs in nodes, and their links.
    """
    raise NotImplementedError("step_time: a ring on the right link")


def step_time(
    config: ModelConfig, layout: Layout, cluster: Cluster, efficiency: float
) -> dict[str, float]:
    """Returns the seconds of a step, term by term.

    Args:
        config: the model; its sequences are all `config.sequence` tokens long.
        layout: how it is divided; `ep`, `cp` and `chunks` are 1, `zero` is at most 2.
        cluster: has as many GPUs as the layout, `cluster.node` of them in a node.
        efficiency: the fraction of the peak that products reach.

    Returns:
        The terms for a rank of the last stage: `compute`; `tp`, its sums; `pp`, its messages;
        `bubble`, its idle time; and `dp`, the part that is not hidden. The step takes their sum.
    """
    raise NotImplementedError("step_time: five terms")
