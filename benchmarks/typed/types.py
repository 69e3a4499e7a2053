"""Missing and doubled sums that the types of tensors find, over the exercises' known answers.

Each answer of sixteen exercises makes a training step on four ranks (`typed/scenes.py`), recorded;
`types_of` reads the records. Wrong answers counted are those whose fault is a collective that is
missing, made twice, or over the wrong ranks, where the step shows it (`SUMS` names them, chosen by
reading the edits, after a first run; the rules were written with these answers in view, so on
others expect less); ours is how many of them are *missed*. A wrong factor, a call that is not
waited for, or a wrong byte count is no type, and is not among them. Right answers are the solutions
and their variants; ours is how many raise an alarm. The peer of the last row is the same step
without the recorder.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.row import Row
from benchmarks.typed.run import answers, judge, recorded
from benchmarks.typed.scenes import SCENES
from course_lib.ranks import ForkServer
from course_lib.ranks.pool.pool import Pool

WORLD, ROUNDS = 4, 9
TIMED = "06_tensor_parallel/tensor_parallel_attention"
SUMS = {
    "02_ddp/naive_ddp": (
        "averages_in_forward averages_the_parameters no_synchronisation nothing_at_the_start "
        "works_on_a_copy"
    ),
    "02_ddp/overlap_ddp": (
        "before_it_is_accumulated no_hooks works_on_a_copy reduces_the_parameter"
    ),
    "02_ddp/bucketed_ddp": "never_begins_anew stale_view",
    "04_zero/zero1": "gather_first no_gather own_gradients",
    "04_zero/fsdp_unit": "own_gradient",
    "06_tensor_parallel/f_and_g": (
        "f_forgets_the_sum f_hooks_the_input f_sums_in_both_passes g_sums_in_both_passes swapped"
    ),
    "06_tensor_parallel/column_parallel_linear": (
        "forgets_the_sum g_for_f sums_twice reduces_the_weights_gradient"
    ),
    "06_tensor_parallel/row_parallel_linear": (
        "bias_added_on_one_rank bias_gradient_reduced bias_kept_on_one_rank bias_n_times "
        "bias_of_the_others_times_zero forgets_the_sum sums_in_the_backward_as_well"
    ),
    "06_tensor_parallel/async_row_parallel": "no_sum backward_sums",
    "06_tensor_parallel/tensor_parallel_attention": (
        "no_f no_g shared_gradients_not_summed summed_over_all_ranks"
    ),
    "06_tensor_parallel/vocab_parallel_embedding": "all_reduce_in_backward all_reduce_missing",
    "06_tensor_parallel/vocab_parallel_cross_entropy": (
        "all_reduce_in_backward fourth_reduction local_logsumexp local_max local_max_left_out "
        "local_max_target_alone logits_summed softmax_of_the_slice sum_not_reduced "
        "target_not_reduced"
    ),
    "07_context_parallel/sequence_parallel_block": (
        "bias_gradient_not_summed bias_n_times both_sums gather_only_cuts_back no_reduce "
        "norm_gradients_not_summed sums_every_gradient"
    ),
    "12_expert_parallel/expert_grad_sync": (
        "experts_forgotten experts_only_divided experts_over_the_world "
        "experts_summed_over_the_world others_forgotten others_over_replicas swapped twice_over "
        "weights_averaged"
    ),
    "13_3d_parallelism/finalize_grads": (
        "everything_over_tp finalized_twice norms_not_over_tp norms_over_tp_twice only_data "
        "only_the_first sequence_ignored"
    ),
    "14_profiling_and_debugging/museum_gradients": (
        "copies_before_but_hooks_before hooks_on_all hooks_on_norms_alone"
    ),
}


def rows() -> Iterator[Row]:
    """Missed faults and false alarms by exercise, in all, and what recording costs."""
    totals = [0, 0, 0, 0]
    with ForkServer() as server, Pool(WORLD, server) as pool:
        for place in SCENES:
            counts, missed = _counts(pool, place)
            totals = [a + b for a, b in zip(totals, counts, strict=True)]
            yield from _two_rows(place.partition("/")[2], counts, ", ".join(missed))
        yield from _two_rows("all", totals, "")
        yield _cost(pool)


def _counts(pool: Pool, place: str) -> tuple[list[int], list[str]]:
    """Faults, those missed, right answers, those with an alarm; and the names of the exceptions."""
    faults, missed, right, alarms, names = SUMS[place].split(), 0, 0, 0, []
    for answer in answers(place):
        if answer.wrong and answer.name not in faults:
            continue
        found = bool(judge(pool, place, answer).findings)
        right += not answer.wrong
        alarms += found and not answer.wrong
        missed += answer.wrong and not found
        if found is not answer.wrong:
            names.append(answer.name)
    return [len(faults), missed, right, alarms], names


def _two_rows(name: str, counts: list[int], note: str) -> Iterator[Row]:
    faults, missed, right, alarms = counts
    of = ("wrong sums", "right answers")
    yield Row("types", f"{name} missed", WORLD, 0, missed, faults, of[0], "answers", note)
    yield Row("types", f"{name} false alarms", WORLD, 0, alarms, right, of[1], "answers")


def _cost(pool: Pool) -> Row:
    text = answers(TIMED)[0].text
    pool.run(recorded, TIMED, text)
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for record, found in times.items():
            values = pool.run(recorded, TIMED, text, record)
            found.append(1e3 * max(value["seconds"] for value in values))
    ours, peer = (statistics.median(times[each]) for each in (True, False))
    note = "one step of attention on 4 ranks"
    return Row("types", "recorded step", WORLD, 0, ours, peer, "not recorded", "ms", note)
