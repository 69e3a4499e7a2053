"""global_loss_and_tokens: one loss and one number of tokens, the same on every rank of a mesh.

Notebook 13. The loss of a batch is a mean over *tokens*:

    loss = sum of the losses of all counted tokens / number of all counted tokens

where a token counts if its target is not -100 (padding, or a prompt that is not to be learnt). On a
mesh pp × dp × ep × cp × tp, no rank has all tokens. After the forwards of a step:

    axis         two ranks that differ only in it have
    dp, ep, cp   different tokens of the batch: other rows (dp, ep), other positions (cp)
    tp           the same tokens, and the same losses
    pp           the same targets, but only the last stage has losses

Every rank needs the number of tokens, to scale its gradients, and the loss, to report it and to
notice when it is not finite. So each rank calls this function, and gets both.

Rules
- The loss is not a mean of means: micro-batches and ranks have very different numbers of counted
  tokens. Some have none; in the whole batch, at least one token counts.
- A rank without losses has an empty list. The ranks with losses are not always those with the last
  index on pp: a V-shaped schedule has the first and the last stage on index 0.
- Numbers of tokens are exact: a batch may have more than the 16,777,216 up to which float32 can
  count. Sum losses in float64, whatever their dtype.
- A rank passes at most 32 bytes in all to its collectives (for example two sums of 8 bytes), and
  nothing is sent between ranks that differ in tp.
- Do not change the arguments: neither the lists nor their tensors.

You may use all of `course_lib.comm`. `mesh["dp"]` is this rank's group along one axis, and
`mesh["dp", "cp"]` the group of all ranks that differ from it only in these axes. An axis may have
size 1. A group on several axes may be made when it is first asked for: then all ranks of the mesh
must ask for it. `all_reduce(tensor, group)` sums in place; no call on a group returns before all
its ranks have made it.
"""

from collections.abc import Sequence

import torch

from course_lib.comm import Mesh, all_reduce

IGNORED = -100  # a target that does not count


def global_loss_and_tokens(
    losses: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], mesh: Mesh
) -> tuple[torch.Tensor, int]:
    """Returns the mean loss per counted token of the whole batch, and their number; collective.

    Args:
        losses: on ranks of the last stage, for each of this rank's micro-batches the sum of the
            losses of its counted tokens: numbers without a graph, shape (). Elsewhere empty.
        targets: those of each of this rank's micro-batches, int64 [rows, positions]; on all stages.
        mesh: with the axes pp, dp, ep, cp and tp.

    Returns:
        The loss, float64, shape (), and the number of tokens, a Python int; on all ranks the same.
    """
    # BEGIN SOLUTION: two sums, over different ranks
    data, told = mesh["dp", "ep", "cp"], mesh["pp", "dp", "ep", "cp"]  # mutate: same
    counted = sum(int((target != IGNORED).sum()) for target in targets)
    tokens = torch.tensor(counted)
    all_reduce(tokens, data)  # mutate: same
    total = torch.zeros((), dtype=torch.float64)
    for loss in losses:
        total += loss.to(total)
    all_reduce(total, told)  # stages without losses add 0, and learn the sum
    return total / tokens, int(tokens)
    # END SOLUTION
