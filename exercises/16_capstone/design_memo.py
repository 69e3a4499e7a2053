"""The design memo: predict what a training run will hold and send, before any process is started.

Notebook 16. A mixture-of-experts model is to run on a mesh pp × dp × ep × tp. Write down for a rank
of each pipeline stage what it will hold, what it will send in a step on each axis, how many
micro-batches it has in flight, and how long it is idle. `rehearse`, below, runs such a step for
real, so that you can compare each number with a measurement.

The model (`ModelConfig`): every block has two norms of D numbers; a query and an output matrix [D,
D]; key and value matrices for K ≤ H heads, each of D/H channels; and a feed-forward network, three
matrices [D, F], or two if it is not `gated`. With `config.moe` there are `experts` such networks
instead, and a router [experts, D] that sends each token to `top_k` of them. The first stage has the
embedding [V, D] before its blocks, the last one a norm and the output layer [V, D]. If the model is
`tied`, embedding and output layer are one weight, and a rank that has both ends holds it once.

What each rank has:
- `blocks[i]` is the number of blocks of stage i; the stages are the ranks along pp.
- tp cuts every matrix except the router, along heads and inner channels; norms and router stay
  whole. ep divides the experts. Everything divides evenly. dp and ep both divide the batch, so
  everything outside the experts has dp · ep replicas, and an expert's part has dp.
- The optimizer is Adam: two numbers for each parameter, as wide as the parameters. ZeRO-1 cuts them
  over the replicas: of n parameters with r replicas, a rank keeps the state of n/r, rounded up.
  This is done once for the experts and once for all other parameters.

What a rank sends in a step of `micro_batches` micro-batches, each with `micro_batch_size` sequences
of T tokens. Every number has `item` bytes. An all-reduce of S bytes over N ranks sends 2(N-1)/N·S;
an all-to-all, a reduce-scatter and an all-gather send (N-1)/N·S.
- `tp`: all-reduces of D numbers per token. Each block has four: attention and network each have one
  in forward, where their region ends, and one in backward, where it begins. The embedding has one
  forward, the output layer one backward. With experts, each block has one more backward, of the
  `top_k` weights of each token. The loss has three forward, of one number a token.
- `pp`: D numbers per token to the next stage, and as many, the gradient, to the previous one. Every
  rank of tp sends all of them. If a tied weight is on two ranks, they also sum its gradient once
  per step: an all-reduce over these two ranks, of each rank's part of the weight.
- `ep`: assume that experts are used evenly. Each block has four all-to-alls of D numbers for each
  choice of each token: to the experts and back, in forward and in backward. In forward it has
  another one, of the numbers of rows: an integer of 8 bytes for each expert of the model.
- `data`: ZeRO-1's reduce-scatter of the gradients and all-gather of the parameters, once per step,
  over each part's replicas, with sizes rounded up to equal parts.
- Sums of a few bytes (loss, tokens, norm) and auxiliary losses are left out.

The pipeline: `GPipe` runs all forwards first. `1F1B` begins its backwards as early as it can: when
stage i runs its first backward, each of the stages i, i+1, ... has one micro-batch that is still in
flight. All stages take equally long.

Your answer is arithmetic: nothing is sent, and no model or tensor is made.

Your answer may use `comm`, `model`, `schedule`, `train.lay_out`, `train.make_optimizers`,
`train.own_micro_batches` and `train.train_step` of `course_lib`.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch

from course_lib.comm import Group, Mesh
from course_lib.model import ModelConfig, Transformer
from course_lib.schedule import gpipe, one_f_one_b
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step


def rehearse(
    world: Group,
    config: ModelConfig,
    sizes: Mapping[str, int],
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
) -> dict[str, int]:
    """Given: runs one real step in float64; `world.ledger` has what each axis sent.

    Returns:
        What this rank holds: `dense`, `experts` and `optimizer`, as in `design_memo`.
    """
    actions = {"GPipe": gpipe, "1F1B": one_f_one_b}[schedule](sizes["pp"], micro_batches)
    model = lay_out(Transformer(config).double(), Mesh(world, sizes), actions, zero=1)
    optimizers = make_optimizers(model, torch.optim.AdamW)
    count = micro_batch_size * micro_batches * sizes["dp"] * sizes["ep"]
    tokens = torch.arange(count * (config.sequence + 1)) % config.vocabulary
    tokens = tokens.view(count, -1)
    batches = own_micro_batches(tokens[:, :-1], tokens[:, 1:], model)
    train_step(model, batches, optimizers)
    experts = sum(p.numel() for p in model.experts)
    return {
        "dense": sum(p.numel() for p in model.parameters) - experts,
        "experts": experts,
        "optimizer": sum(optimizer.state_bytes() for optimizer in optimizers),
    }


def design_memo(
    config: ModelConfig,
    sizes: Mapping[str, int],
    blocks: Sequence[int],
    stage: int,
    *,
    micro_batch_size: int,
    micro_batches: int,
    schedule: str,
    item: int,
) -> dict[str, int | Fraction]:
    """Returns the numbers of a rank of one pipeline stage.

    Args:
        config: the model; `config.moe` is None for one without experts, and ep then 1.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`.
        blocks: number of blocks of each stage.
        stage: the rank's place on pp.
        micro_batch_size: sequences in a micro-batch of one rank, each of `config.sequence` tokens.
        micro_batches: of one rank, in a step.
        schedule: `GPipe` or `1F1B`.
        item: bytes of a number.

    Returns:
        Integers, and for the bubble a `Fraction`:
            `dense`: parameters that this rank holds, without those of experts; `experts`:
            parameters of its experts; `optimizer`: bytes of optimizer state that it keeps; `tp`,
            `pp`, `ep`, `data`: bytes that it sends in a step, as above; `in_flight`: the most
            micro-batches that are forward but not yet backward on it; `bubble`: the fraction of the
            step's time in which it is idle.
    """
    raise NotImplementedError("design_memo: write your answer here")
