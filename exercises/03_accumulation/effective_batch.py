"""effective_batch: what accumulation buys, what it costs, and what it leaves as it is.

Notebook 03. An update takes k micro-batches of b samples on each of N ranks, one after the other.
Write four small functions that say, before anything runs, how large the batch really is, what a
rank holds at most, how long an update takes, and the smallest k that fits.

The model is trained in float32 with Adam (4 bytes a number), replicated on every rank:

- parameters: as many as there are; a gradient for each, which stays from the first micro-batch to
  the update; Adam's two moments for each;
- activations: the graph of one micro-batch, `activation_bytes` a sample. It is gone when the
  backward ends, before the next forward begins.

Time: a micro-batch takes `overhead` seconds, however small it is (kernels are launched, the
pipeline of the hardware is filled), and `sample_seconds` for each of its samples. Each
synchronisation is an all-reduce of all gradients on a ring: a rank sends 2(N-1)/N·S bytes at
`bandwidth`, and nothing overlaps with it. With `no_sync` there is one for each update, without it
one for each micro-batch. A single rank sends nothing.

Rules: plain Python. Everything runs on one process.

Your answer may use nothing of `course_lib`.
"""


def effective_batch(micro_batch: int, k: int, ranks: int) -> int:
    """Samples that one update has seen."""
    raise NotImplementedError("effective_batch: the samples")


def peak_bytes(parameters: int, activation_bytes: int, micro_batch: int, k: int) -> dict[str, int]:
    """The most that a rank holds of each kind during an update.

    Args:
        parameters: how many numbers the model has.
        activation_bytes: bytes of the graph of one sample.
        micro_batch: samples of a micro-batch.
        k: micro-batches of an update.

    Returns:
        Bytes of `parameters`, `gradients`, `optimizer state` and `activations`.
    """
    raise NotImplementedError("effective_batch: the peaks")


def update_seconds(
    parameters: int,
    micro_batch: int,
    k: int,
    ranks: int,
    sample_seconds: float,
    overhead: float,
    bandwidth: float,
    no_sync: bool = True,
) -> float:
    """Seconds of one update.

    Args:
        parameters: how many numbers the model has.
        micro_batch: samples of a micro-batch.
        k: micro-batches of an update.
        ranks: N.
        sample_seconds: forward and backward of one sample.
        overhead: of each micro-batch.
        bandwidth: bytes a second that a rank can send.
        no_sync: whether gradients are synchronised once an update only.
    """
    raise NotImplementedError("effective_batch: the time")


def smallest_k(
    parameters: int, activation_bytes: int, global_batch: int, ranks: int, budget: int
) -> int:
    """The fewest micro-batches of equal size with which an update fits into a rank's memory.

    It fits if the peaks of all kinds, added up, are not above the budget.

    Args:
        parameters: how many numbers the model has.
        activation_bytes: bytes of the graph of one sample.
        global_batch: samples of an update over all ranks.
        ranks: N.
        budget: bytes of a rank's memory.

    Raises:
        ValueError: `global_batch` does not divide by the ranks, or one sample does not fit.
    """
    raise NotImplementedError("effective_batch: the smallest k")
