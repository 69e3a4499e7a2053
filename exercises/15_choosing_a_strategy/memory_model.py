"""What a rank will hold: parameters, gradients, optimizer state, activations, before it is started.

Notebook 15. Whether a model fits decides most of a layout, and it can be known without a GPU: the
bytes are sums of the sizes of tensors. Write that sum down for a rank of one pipeline stage; the
grader holds it against tensors that are really made.

The model (`ModelConfig`, without experts) has L blocks. Each has two norms of D numbers; a query
and an output matrix [D, D]; key and value matrices [D, E], E = `kv_heads` · `head_width`; and a
feed-forward network, three matrices [D, F] if it is `gated`, else two. Before the blocks is an
embedding [V, D], behind them a norm of D numbers and the output layer [V, D]. If the model is
`tied`, the last two matrices are one weight, and a rank that has both ends has it once.

The layout (`Layout`) has `pp` stages, `dp` replicas and `tp` ranks that share each layer.
- Each stage has L/pp blocks; the first has the embedding too, the last the norm and output layer.
- tp cuts every matrix, and leaves norms whole.
- ZeRO deals n numbers out to the dp replicas, so that a rank keeps n/dp of them, rounded up: from
  `zero` 1 on those of the optimizer, from 2 on gradients too, with 3 parameters too.

Bytes of each parameter, as programs have them:

    precision, zero   parameter   gradient   optimizer
    bf16, 0 to 2          2           4          12     master copy in fp32, two moments (Megatron)
    bf16, 3               4           4           8     fp32 pieces, cast when gathered (FSDP2)
    fp32                  4           4           8     two moments

Activations: what a forward keeps for its backward. A value has 2 bytes in bf16 and 4 in fp32, and
the mask of a dropout 1. After Korthikanti et al. (2022), a block keeps of each token of a
micro-batch, which has b = `micro_batch_size` sequences of s = `sequence` tokens:
- the inputs of both norms, and the norms' results, which products take: 4·D values;
- after attention and after the network a mask of D numbers;
- query, key, value and what attention returns: 2·D + 2·E values. In the network 3·F values if it
  is gated (both branches, and what the last product takes), else 2·F;
- in each of the `heads`, s scores after the softmax, their mask, and s that the mask has been
  applied to: 2·s values and s bytes. (It is attention before FlashAttention.)
For a GPT, of F = 4·D and E = D, that is s·b·D·(34 + 5·heads·s/D) bytes in bf16.
- tp cuts the last two lines, and not the first two, unless `sequence`: then it cuts them as well.
- `recompute`: `selective` does not keep the last line; `full` keeps only the block's input, the
  first of the first line.
- The schedule is 1F1B: stage i holds blocks' activations of min(`micro_batches`, pp - i)
  micro-batches at once.
The head, on the last stage, keeps the input and the result of its norm, cut only if `sequence`, and
of the loss V numbers of a token in fp32, cut by tp. It has one micro-batch at a time.

Left out: what is there for a moment, such as a block that is computed again, or parameters that are
gathered; messages; and what the allocator wastes.

All sizes divide, the rounding up of ZeRO apart. The answer is arithmetic: make no tensor.

Your answer may use `layout` and `model.ModelConfig` of `course_lib`.
"""

from course_lib.layout import Layout
from course_lib.model import ModelConfig


def memory_model(config: ModelConfig, layout: Layout, stage: int) -> dict[str, int]:
    """The bytes that a rank holds when it holds most.

    Args:
        config: the model; its sequences are all `config.sequence` tokens long.
        layout: how it is spread; `ep`, `cp` and `chunks` are 1.
        stage: the rank's place on pp, from 0.

    Returns:
        Bytes, whole numbers: `parameters`, `gradients`, `optimizer`, `activations` of the blocks,
        and `head`, what the head keeps.
    """
    raise NotImplementedError("memory_model: five sums")


def fullest(config: ModelConfig, layout: Layout) -> int:
    """The bytes of the rank that holds most: they decide whether the layout fits.

    Args:
        config: as in `memory_model`.
        layout: as there.
    """
    raise NotImplementedError("memory_model: over all stages")
