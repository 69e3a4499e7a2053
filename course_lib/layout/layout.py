"""How a training step is spread over GPUs, as data: what every prediction is a function of.

Notebook: 15 Choosing a strategy (memory_model, step_time, plan).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3, for the degrees and the micro-batches.
Costs nothing.
The production version (Megatron-LM) has these as options of its command line.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.trace import Refusal

RECOMPUTE = ("none", "selective", "full")
PRECISIONS = ("fp32", "fp16", "bf16", "fp8")


@dataclass(frozen=True)
class Layout:
    """Degrees of the axes, and all else that a step's time and memory depend on.

    Attributes:
        pp: pipeline stages' ranks.
        dp: replicas.
        ep: ranks that share the experts; they have other tokens too.
        cp: ranks that share each sequence.
        tp: ranks that share each layer.
        micro_batch_size: sequences in a micro-batch.
        micro_batches: of one data rank in a step; the global batch is micro_batch_size ·
            micro_batches · dp · ep.
        schedule: of the pipeline, by its name in `course_lib.schedule`.
        chunks: stages on each rank of the pipeline, more than one if interleaved.
        zero: 0 for replicas, 1 cuts optimizer state, 2 gradients too, 3 parameters too (FSDP).
        sequence: sequence parallelism over tp.
        recompute: `none`, `selective` (the attention's inside) or `full` (every block).
        precision: what products are computed in.

    Raises:
        Refusal: what is no whole number from 1 on, or a word that is none of those above.
    """

    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1
    tp: int = 1
    micro_batch_size: int = 1
    micro_batches: int = 1
    schedule: str = "1F1B"
    chunks: int = 1
    zero: int = 0
    sequence: bool = False
    recompute: str = "none"
    precision: str = "bf16"

    def __post_init__(self) -> None:
        degrees = (self.pp, self.dp, self.ep, self.cp, self.tp)
        counts = (*degrees, self.micro_batch_size, self.micro_batches, self.chunks)
        wrong = [count for count in counts if not isinstance(count, int) or count < 1]
        words = self.recompute in RECOMPUTE and self.precision in PRECISIONS
        if wrong or not words or self.zero not in range(4):
            raise Refusal(
                str(self),
                f"recompute {self.recompute!r}, precision {self.precision!r}, zero {self.zero!r}, "
                f"degrees {', '.join(map(repr, wrong)) or 'as they should be'}",
                "degrees are whole numbers from 1 on, zero is 0 to 3, recompute one of "
                f"{', '.join(RECOMPUTE)}, precision one of {', '.join(PRECISIONS)}",
            )

    @property
    def gpus(self) -> int:
        """How many there are."""
        return self.pp * self.dp * self.ep * self.cp * self.tp

    @property
    def replicas(self) -> int:
        """Ranks that have the same part of the model (experts apart) and other tokens."""
        return self.dp * self.ep * self.cp

    @property
    def batch(self) -> int:
        """Sequences in a step."""
        return self.micro_batch_size * self.micro_batches * self.dp * self.ep
