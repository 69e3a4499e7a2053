"""The two ends of a language model, cut along the vocabulary: embedding and cross-entropy.

Notebook: 06 Tensor parallel (vocab_parallel_embedding, vocab_parallel_cross_entropy).
Paper: Shoeybi et al., "Megatron-LM" (2019), section 3: logits are never gathered.
Costs: the embedding sends 2(N-1)/N·S forward, S the bytes of [B, T, D]; the loss three all-reduces
of B·T values forward, whatever the size of the vocabulary, and nothing backward.
The production version pads the vocabulary to a multiple of 128·N; here the parts may be uneven.

Shapes: B batch, T sequence, D hidden, V vocabulary, R this rank's part of it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from course_lib.comm import CommError, Group, all_reduce
from course_lib.parallel.tensor.tensor_parallel import TensorRegion, own_part, own_range


class VocabParallelEmbedding(nn.Module):
    """Looks up the tokens of this rank's part of the vocabulary; the others give zeros.

    Args:
        full: the embedding, the same on every rank.
        region: where the output leaves: a sum over the ranks, of which one summand is not zero.

    Raises:
        CommError: the embedding has an option that this one does not know.

    Raises (in a forward):
        CommError: a token is not in the vocabulary; on every rank, before anything is sent.
    """

    def __init__(self, full: nn.Embedding, region: TensorRegion) -> None:
        super().__init__()
        options = (full.padding_idx is not None, full.max_norm is not None, full.sparse)
        if any(options) or full.scale_grad_by_freq:
            raise CommError(
                f"an embedding of {full.num_embeddings} tokens cut over {region.group.size} ranks",
                f"{full} on rank {region.group.rank}",
                "padding_idx, max_norm, sparse and scale_grad_by_freq are not cut: leave them out",
            )
        self.region = region
        self.vocabulary = full.num_embeddings
        self.own = own_range(full.num_embeddings, region.group)
        self.weight = own_part(full.weight, 0, self.own)

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """int64 [B, T] to [B, T, D] on every rank."""
        refuse_strangers(tokens_BT, self.vocabulary, self.region.group, "the embedding of a token")
        local_BT, mine_BT = own_index(tokens_BT, self.own)
        if not self.own:  # more ranks than tokens: this one has nothing to look up
            zeros = self.weight.new_zeros(*tokens_BT.shape, self.weight.shape[1])
            return self.region.leave(zeros + self.weight.sum())
        part_BTD = F.embedding(local_BT, self.weight)
        # A product with 0 would be NaN where row 0, which stands in for the others', is infinite.
        return self.region.leave(part_BTD.masked_fill(~mine_BT[..., None], 0))


def vocab_parallel_cross_entropy(
    logits_BTR: torch.Tensor,
    targets_BT: torch.Tensor,
    vocabulary: int,
    group: Group,
    ignore_index: int = -100,
) -> torch.Tensor:
    """Negative log-likelihood of each target, in nats, from logits that no rank has whole.

    Args:
        logits_BTR: this rank's part of the logits, floats; computed in float32 or wider.
        targets_BT: tokens of the whole vocabulary, int64, the same on every rank.
        vocabulary: V.
        group: the ranks that share the vocabulary, as `own_range` cuts it.
        ignore_index: targets of this value have a loss and a gradient of zero, as in torch.

    Returns:
        [B, T], the same on every rank. The gradient is softmax minus one-hot, each rank its part.

    Raises:
        CommError: the logits are not of this rank's part of the vocabulary, or a target is not in
            the vocabulary.
    """
    own = own_range(vocabulary, group)
    if logits_BTR.shape[-1] != len(own) or logits_BTR.shape[:-1] != targets_BT.shape:
        raise CommError(
            f"a loss over {len(own)} of {vocabulary} logits for targets {tuple(targets_BT.shape)}",
            f"logits of shape {tuple(logits_BTR.shape)} on rank {group.rank}, {group}",
            "the last dim is this rank's part of the vocabulary, the others are the targets'",
        )
    counted_BT = targets_BT != ignore_index
    refuse_strangers(targets_BT[counted_BT], vocabulary, group, "the loss of a target")
    loss_BT = _CrossEntropy.apply(logits_BTR, targets_BT, own, group)
    return loss_BT.masked_fill(~counted_BT, 0)


def refuse_strangers(tokens: torch.Tensor, vocabulary: int, group: Group, asked: str) -> None:
    """Stops what would find a token on no rank, and so take it for zeros.

    Raises:
        CommError: a token is below 0, or not below the vocabulary's size.
    """
    strange = tokens[(tokens < 0) | (tokens >= vocabulary)]
    if strange.numel():
        raise CommError(
            f"{asked} from a vocabulary of {vocabulary}",
            f"{int(strange[0])} on rank {group.rank}, and {strange.numel() - 1} others, {group}",
            f"the index is out of range: tokens are 0 to {vocabulary - 1}",
        )


def own_index(tokens_BT: torch.Tensor, own: range) -> tuple[torch.Tensor, torch.Tensor]:
    """Where tokens are in a rank's part (0 if they are not there), and whether they are."""
    mine_BT = (tokens_BT >= own.start) & (tokens_BT < own.stop)
    return (tokens_BT - own.start).masked_fill(~mine_BT, 0), mine_BT


class _CrossEntropy(torch.autograd.Function):
    """log Σ exp - logit of the target, each of the three terms reduced over the ranks."""

    @staticmethod
    def forward(
        ctx: Any, logits_BTR: torch.Tensor, targets_BT: torch.Tensor, own: range, group: Group
    ) -> torch.Tensor:
        wide = torch.promote_types(logits_BTR.dtype, torch.float32)
        # The same maximum on every rank, or the sums of exponentials do not add up.
        most_BT = logits_BTR.detach().to(wide).amax(-1) if own else _least(targets_BT, wide)
        all_reduce(most_BT, group, "max")
        shifted_BTR = logits_BTR.to(wide) - most_BT[..., None]
        local_BT, mine_BT = own_index(targets_BT, own)
        target_BT = torch.zeros_like(most_BT)
        if own:
            found_BT = shifted_BTR.gather(-1, local_BT[..., None])[..., 0]
            target_BT = found_BT.masked_fill(~mine_BT, 0)  # a product with -inf would be NaN
        all_reduce(target_BT, group)
        exps_BTR = shifted_BTR.exp_()
        sum_BT = exps_BTR.sum(-1)
        all_reduce(sum_BT, group)
        ctx.save_for_backward(exps_BTR.div_(sum_BT[..., None]), targets_BT)
        ctx.own, ctx.dtype = own, logits_BTR.dtype
        return sum_BT.log() - target_BT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        softmax_BTR, targets_BT = ctx.saved_tensors
        grad_BTR = softmax_BTR.clone()
        if ctx.own:
            local_BT, mine_BT = own_index(targets_BT, ctx.own)
            one = mine_BT.to(grad_BTR.dtype)[..., None]
            grad_BTR.scatter_add_(-1, local_BT[..., None], -one)
        return grad_BTR.mul_(grads[0][..., None]).to(ctx.dtype), None, None, None


def _least(targets_BT: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a rank without logits gives to a maximum."""
    return torch.full(targets_BT.shape, -torch.inf, dtype=dtype, device=targets_BT.device)
