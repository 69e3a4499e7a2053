"""fastest_layout: choose layouts that fit, and whose step on a simulated cluster is short.

Notebook 16. This exercise is open: it has no single right answer. Valid layouts are compared by the
time of a step of the course's own training program on a simulated cluster.

There are four fixed cases, below. You return the options that describe the layout, as fields of
`RunConfig`: pp, dp, tp, zero, micro_batches, recompute, sequence_parallel, schedule and chunks.
What you leave out keeps its default. A layout is valid if
- the training command accepts it (`find_problems` finds nothing), and its mesh has as many ranks as
  the cluster has GPUs;
- it has at most 16 micro-batches, which limits how long the grader simulates;
- no rank ever holds more than `room` GB (10⁹ bytes).

How you find your layouts is up to you: with the formulas of the lessons, by hand, or by a search
with the simulator, which takes a second or two for each layout. This line simulates one, and says
how much memory its ranks hold; `--help` lists what each option may be, and its default:

    python -m course_lib.train.run --simulate 4x8xH100 --layers 8 ... --dp 32 --zero 3

All cases together may take 20 s of processor time, so do not simulate inside the function.

Measured: the time of a step, divided by the time that the model's own operations would take on all
GPUs at their peak rate; less is better, and less than 1 is impossible. (The inverse is the MFU.)
The figure is the mean over the four cases.
"""

from typing import Any

SMALL = {"layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn": 5632, "sequence": 2048,
         "precision": "bf16"}  # fmt: skip
LARGE = {"layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "sequence": 4096,
         "precision": "bf16"}  # fmt: skip
# The cluster, the GB that a rank may hold, and the run.
CASES = (
    ("16x8xH100", 20, {**SMALL, "batch": 128}),
    ("4x8xH100", 3, {**SMALL, "batch": 128}),
    ("4x8xH100", 20, {**LARGE, "batch": 4}),
    ("4x8xA100", 6, {**LARGE, "batch": 64}),
)


def fastest_layout(cluster: str, room: int, run: dict[str, Any]) -> dict[str, Any]:
    """Chooses a layout for one of the cases.

    Args:
        cluster: nodes x GPUs per node x GPU.
        room: GB that a rank may hold.
        run: the other fields of `RunConfig`.

    Returns:
        The fields of the layout.
    """
    # BEGIN SOLUTION: the layout of each case
    # The best of all combinations, each of which was simulated.
    gathered = {"zero": 3, "sequence_parallel": True}
    layouts: dict[tuple[str, int], dict[str, Any]] = {
        ("16x8xH100", 20): {**gathered, "dp": 64, "tp": 2},
        ("4x8xH100", 3): {"dp": 32, "zero": 3, "micro_batches": 2, "recompute": "selective"},
        ("4x8xH100", 20): {
            **gathered, "pp": 4, "tp": 8, "micro_batches": 4, "schedule": "interleaved",
        },
        ("4x8xA100", 6): {**gathered, "dp": 16, "tp": 2, "micro_batches": 4},
    }  # fmt: skip
    return layouts[cluster, room]
    # END SOLUTION
