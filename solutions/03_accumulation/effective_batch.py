"""effective_batch: what accumulation buys, what it costs, and what it leaves as it is.

Notebook 03. In an update, each of N ranks runs k micro-batches of b samples, one after another.
Write four small functions that say, before anything runs, how large the batch really is, how much
memory a rank needs, how long an update takes, and which k is the smallest that fits.

The model is trained in float32 with Adam, and replicated on every rank. Every number has 4 bytes.
A rank holds

- the parameters; a gradient for each, which stays from the first micro-batch to the update; and
  Adam's two moments for each;
- activations: the graph of one micro-batch, `activation_bytes` per sample. It is freed when the
  backward ends, before the next forward begins.

A micro-batch takes `overhead` seconds, however small it is (kernels are launched, the pipeline of
the hardware fills up), plus `sample_seconds` for each of its samples. Each synchronisation is an
all-reduce of all gradients on a ring: a rank sends 2(N-1)/N·S bytes at `bandwidth`, with S the
bytes of the gradients, and nothing overlaps with it. With `no_sync` there is one synchronisation
per update, without it one per micro-batch. A single rank sends nothing.

Rules: use plain Python. Nothing is sent: the four functions are arithmetic.
"""


def effective_batch(micro_batch: int, k: int, ranks: int) -> int:
    """The number of samples in one update, over all ranks."""
    # BEGIN SOLUTION: the samples
    return micro_batch * k * ranks
    # END SOLUTION


def peak_bytes(parameters: int, activation_bytes: int, micro_batch: int, k: int) -> dict[str, int]:
    """The most bytes of each kind that a rank holds during an update.

    Args:
        parameters: how many numbers the model has.
        activation_bytes: bytes of the graph of one sample.
        micro_batch: samples in a micro-batch.
        k: micro-batches in an update.

    Returns:
        A dict of bytes with the keys `parameters`, `gradients`, `optimizer state`, `activations`.
    """
    # BEGIN SOLUTION: the peaks
    return {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer state": 8 * parameters,
        "activations": micro_batch * activation_bytes,
    }
    # END SOLUTION


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
    """The seconds that one update takes.

    Args:
        parameters: how many numbers the model has.
        micro_batch: samples in a micro-batch.
        k: micro-batches in an update.
        ranks: N.
        sample_seconds: seconds for forward and backward of one sample.
        overhead: seconds that each micro-batch costs besides.
        bandwidth: bytes per second that a rank can send.
        no_sync: whether gradients are synchronised only once per update, as they are if nothing
            is said.
    """
    # BEGIN SOLUTION: the time
    computing = k * (overhead + micro_batch * sample_seconds)
    sent = 2 * (ranks - 1) / ranks * 4 * parameters
    return computing + (1 if no_sync else k) * sent / bandwidth
    # END SOLUTION


def smallest_k(
    parameters: int, activation_bytes: int, global_batch: int, ranks: int, budget: int
) -> int:
    """The smallest number of micro-batches of equal size with which an update fits into memory.

    It fits if the sum of the peaks of all kinds is at most the budget.

    Args:
        parameters: how many numbers the model has.
        activation_bytes: bytes of the graph of one sample.
        global_batch: samples in an update, over all ranks.
        ranks: N.
        budget: bytes of memory that a rank has.

    Raises:
        ValueError: N does not divide `global_batch`, or not even one sample fits.
    """
    # BEGIN SOLUTION: the smallest k
    if global_batch % ranks:
        raise ValueError(f"{global_batch} samples cannot be shared equally by {ranks} ranks")
    mine = global_batch // ranks
    for k in range(1, mine + 1):
        if mine % k == 0:
            held = peak_bytes(parameters, activation_bytes, mine // k, k)
            if sum(held.values()) <= budget:
                return k
    raise ValueError(f"one sample does not fit into {budget} bytes")
    # END SOLUTION
