"""Predict what a rank will hold: parameters, gradients, optimizer state and activations.

Notebook 15. Most of a layout is decided by whether the model fits, and you can compute that without
a GPU: the bytes are sums of the sizes of tensors. Write down that sum for a rank of one pipeline
stage; the grader compares it with real tensors.

The model (`ModelConfig`, without experts) has L blocks. Each has two norms of D numbers; a query
and an output matrix [D, D]; key and value matrices [D, E], E = `kv_heads` · `head_width`; and a
feed-forward network, three matrices [D, F] if it is `gated`, else two. Before the blocks comes an
embedding [V, D]; after them come a norm of D numbers and the output layer [V, D]. If the model is
`tied`, embedding and output layer are one weight, and a rank that has both ends holds it once.

The layout (`Layout`) has `pp` stages, `dp` replicas and `tp` ranks that share each layer.
- Each stage has L/pp blocks; the first also has the embedding, and the last the final norm and the
  output layer.
- tp cuts every matrix and leaves norms whole.
- ZeRO divides a rank's n parameters, all tensors together, among the dp replicas, so that a rank
  keeps n/dp of them, rounded up once: the optimizer's from `zero` 1 on, gradients from 2 on, and
  parameters with 3.

Bytes per parameter, as in real programs (`precision` is "bf16" or "fp32"):

    precision, zero   parameter   gradient   optimizer
    bf16, 0 to 2          2           4          12     master copy in fp32, two moments (Megatron)
    bf16, 3               4           4           8     fp32 pieces, cast when gathered (FSDP2)
    fp32                  4           4           8     two moments

Activations: what a forward keeps for its backward. A value has 2 bytes in bf16 and 4 in fp32, and
the mask of a dropout 1. After Korthikanti et al. (2022), a block keeps of each token of a
micro-batch, which has b = `micro_batch_size` sequences of s = `sequence` tokens:
- the inputs of both norms, and the norms' results, which are inputs of products: 4·D values;
- after attention and after the network, a dropout mask of D numbers each;
- query, key, value and the result of attention: 2·D + 2·E values; in the network 3·F values if it
  is gated (both branches, and the input of the last product), otherwise 2·F;
- in each of the `heads`, s scores after the softmax, their dropout mask, and the s scores after
  dropout: 2·s values and s bytes. (This is attention without FlashAttention.) For a GPT, of F = 4·D
  and E = D, that is s·b·D·(34 + 5·heads·s/D) bytes in bf16.
- tp cuts the last two items of this list. It cuts the first two only with `sequence`.
- `recompute`: `selective` does not keep the last item; `full` keeps only the block's input, the
  first D values of the first item.
- The schedule is 1F1B: stage i holds its blocks' activations for min(`micro_batches`, pp - i)
  micro-batches at once.
- The head, on the last stage, keeps the input and the result of its norm, cut by tp only with
  `sequence`, and for the loss V numbers per token in fp32, cut by tp. It holds one micro-batch at a
  time.

Leave out short-lived tensors, such as those of a block that is recomputed or gathered parameters;
messages; and what the allocator wastes.

Everything divides evenly, except where ZeRO rounds up. The answer is arithmetic: make no tensor.

Your answer may use `layout` and `model.ModelConfig` of `course_lib`.
"""

from course_lib.layout import Layout
from course_lib.model import ModelConfig


def memory_model(config: ModelConfig, layout: Layout, stage: int) -> dict[str, int]:
    """Returns the bytes that a rank of this stage holds at its peak.

    Args:
        config: the model; its sequences are all `config.sequence` tokens long.
        layout: how it is divided; `ep`, `cp` and `chunks` are 1.
        stage: the rank's place on pp, from 0.

    Returns:
        Bytes, as ints: `parameters`, `gradients`, `optimizer`, the blocks' `activations`, and
        `head`, the activations of the head.
    """
    raise NotImplementedError("memory_model: five sums")


def fullest(config: ModelConfig, layout: Layout) -> int:
    """Returns the bytes of the rank that holds most, which decide whether the layout fits.

    Args:
        config: as in `memory_model`.
        layout: as in `memory_model`.
    """
    raise NotImplementedError("memory_model: over all stages")
