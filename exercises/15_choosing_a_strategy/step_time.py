"""How long a step will take: a cost model of one page, good enough to put layouts in order.

Notebook 15. A step's time is a sum of a few terms, each of which some axis makes longer and another
shorter. Write them down for the rank that is busy longest, one of the last stage, which has the
output layer. The grader checks each term, and then whether your sums put layouts of known models in
the same order as `course_lib.plan.simulate`, which knows far more.

The model (`ModelConfig`, without experts) has L blocks, each with w = D·(2·D + 2·E) + D·F·(3 if it
is `gated`, else 2) weights, E = `kv_heads` · `head_width`; an embedding and an output layer of V·D
each, which are one weight if the model is `tied`. The layout (`Layout`) has L/pp blocks on each
stage, and tp cuts all of these weights. A micro-batch has `micro_batch_size` sequences, which are
n = `micro_batch_size` · `sequence` tokens.

Computing. A pass over W weights (what tp left of them) with f FLOPs takes as long as the slower of
two: f/(efficiency · peak), and moving its bytes at the GPU's `bandwidth`. A forward moves 2 bytes a
weight. A backward has 2·f FLOPs and moves 12 bytes a weight: 4 to read it twice, 8 to add to its
gradient in fp32. The peak is `cluster.gpu.peak[layout.precision]`.
- A block's forward has 2·n·w FLOPs, and n·`sequence`·D ·2 inside attention (of four, the causal
  mask leaves two). tp cuts both.
- `recompute="full"` makes every block's forward twice; `selective` costs nothing more here, since
  fused attention does so anyway. The output layer is never computed again.
- The output layer's forward has 2·n·V·D FLOPs, cut by tp. The embedding and norms are free.

Sums. An all-reduce of S bytes over N ranks is 2·(N-1) messages of S/N bytes in a row, each of which
takes α + (S/N)/β: seconds `alpha`, and bytes per second `bandwidth`, of a `Link`.
- The group's ranks lie `stride` apart. If `stride`·N is at most the `node` size, it is all inside a
  node: α and β of `cluster.inside`. Otherwise α is that of `cluster.between`, and β is that of
  `between` times the ranks that a node has of the group, max(1, node // stride), since each has a
  network adapter of its own, but never more than that of `inside`.
- tp: in each block two sums of a micro-batch's activation forward, two backward, and two more if it
  is computed again: 2·n·D bytes each. Its ranks are neighbours: stride 1. `sequence` sends the same
  bytes. What the ends of the model sum is left out.
- dp: once a step, over ranks that lie tp apart, the gradients of this rank: 2 bytes for each of its
  weights, blocks' and tables'; a stage at an end of a pipeline has one table, a model in one stage
  two, or one if they are tied. ZeRO-1 and 2 send the same bytes. It hides behind the backward of
  the last micro-batch's blocks (computing alone), and only what is left over counts.

Pipeline (pp above 1). In each micro-batch a rank sends an activation on or a gradient back, and
waits for another: two messages of 2·n·D/tp bytes. They go through `inside` if all GPUs are in one
node, else through `between`. Before and after the m micro-batches of 1F1B the rank stands idle for
pp - 1 times what a stage *without* the output layer needs for one: computing, tp and messages.

The answer is arithmetic. `Link.seconds(size)` is α + size/β.

Your answer may use `layout`, `model.ModelConfig` and `plan.Cluster` of `course_lib`.
"""

from course_lib.layout import Layout
from course_lib.model import ModelConfig
from course_lib.plan import Cluster


def all_reduce(size: float, ranks: int, stride: int, cluster: Cluster) -> float:
    """Seconds of a sum over a group.

    Args:
        size: S, bytes.
        ranks: N; nothing is sent if it is 1.
        stride: how far neighbours of the group lie apart.
        cluster: GPUs in nodes, and their links.
    """
    raise NotImplementedError("step_time: a ring on the right link")


def step_time(
    config: ModelConfig, layout: Layout, cluster: Cluster, efficiency: float
) -> dict[str, float]:
    """Seconds of a step, term by term.

    Args:
        config: the model; its sequences are all `config.sequence` tokens long.
        layout: how it is spread; `ep`, `cp` and `chunks` are 1, `zero` is at most 2.
        cluster: as many GPUs as the layout has; `cluster.node` of them in a node.
        efficiency: the part of the peak that products reach.

    Returns:
        Of the last stage's rank in a step: `compute`; `tp`, its sums; `pp`, its messages;
        `bubble`, its idle time; and `dp`, what nothing hides. The step takes their sum.
    """
    raise NotImplementedError("step_time: five terms")
