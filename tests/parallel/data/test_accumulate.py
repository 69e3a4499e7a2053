"""Accumulation: equal to one large batch on one process, one synchronisation and 8 bytes more."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from course_lib.comm import CommError
from course_lib.parallel import BucketedDDP
from course_lib.parallel.data.accumulate import (
    accumulate,
    clip_grad_norm,
    count_tokens,
    token_loss_sum,
    windows,
)
from course_lib.trace import Refusal

VOCABULARY, LENGTH, IGNORED = 11, 6, -100


class Tiny(nn.Module):
    """Tokens to logits, with a tied and a frozen weight, in float64."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 8, dtype=torch.float64)
        self.middle = nn.Linear(8, 8, dtype=torch.float64)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.middle.bias.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.middle(self.embedding(tokens))) @ self.embedding.weight.t()


def micro_batches(rank: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches with very different numbers of counted targets; one of rank 0's has none."""
    generator = torch.Generator().manual_seed(17 + rank)
    found = []
    for number in range(count):
        both = torch.randint(0, VOCABULARY, (2, 3, LENGTH), generator=generator)
        kept = 0 if (rank, number) == (0, 1) else (1 + 5 * rank + 7 * number) % (3 * LENGTH)
        both[1].view(-1)[kept:] = IGNORED
        found.append((both[0], both[1]))
    return found


def step_alone(model: nn.Module, window: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """One batch on one process: the mean over all its counted tokens, by torch itself."""
    inputs = torch.cat([inputs for inputs, _ in window])
    targets = torch.cat([targets for _, targets in window])
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    loss.backward()
    return loss.detach()


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    trained = [p for p in model.parameters() if p.requires_grad]
    return getattr(torch.optim, name)(trained, lr=0.05)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_equal_to_one_process(ranks: Any, world: int, name: str) -> None:
    """7 micro-batches on each rank in windows of 3: the last window has one."""

    def run(group: Any) -> Any:
        torch.manual_seed(group.rank)
        model = Tiny()
        wrapped = BucketedDDP(model, group, 400, 400)
        optimizer = optimizer_of(name, model)
        losses, gradients = [], []
        for window in windows(micro_batches(group.rank, 7), 3):
            optimizer.zero_grad()
            losses.append(accumulate(wrapped, window, group))
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            optimizer.step()
        return losses, gradients, [p.detach() for p in model.parameters()]

    alone = Tiny()
    optimizer = optimizer_of(name, alone)
    found = ranks(run, world)
    for update in range(3):
        each = [micro_batches(rank, 7)[3 * update : 3 * update + 3] for rank in range(world)]
        optimizer.zero_grad()
        loss = step_alone(alone, [batch for window in each for batch in window])
        parts = torch.stack([losses[update] for losses, _, _ in found])
        torch.testing.assert_close(parts.sum(), loss, rtol=1e-9, atol=0, check_dtype=False)
        expected = [p.grad for p in alone.parameters() if p.grad is not None]
        for _, gradients, _ in found:
            torch.testing.assert_close(gradients[update], expected, rtol=1e-9, atol=1e-12)
        optimizer.step()
    for _, _, weights in found:
        torch.testing.assert_close(weights, [p.detach() for p in alone.parameters()], rtol=1e-9,
                                   atol=1e-12)  # fmt: skip


def test_one_synchronisation_and_one_count_for_each_update(ranks: Any) -> None:
    def run(group: Any, k: int) -> Any:
        wrapped = BucketedDDP(Tiny(), group)
        since = len(group.ledger.events)
        for window in windows(micro_batches(group.rank, 8), k):
            wrapped.zero_grad()
            accumulate(wrapped, window, group)
        events = group.ledger.events[since:]
        return [e.payload for e in events if e.op == "all_reduce"], len(wrapped.buckets)

    for k in (1, 4, 8):
        for payloads, buckets in ranks(run, 2, k):
            gradients = (VOCABULARY * 8 + 8 * 8) * 8
            assert buckets == 1
            assert payloads == [8, gradients] * (8 // k)


def test_ranks_may_have_windows_of_different_length(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Tiny()
        accumulate(BucketedDDP(model, group), micro_batches(2, 4)[: 1 + 3 * group.index], group)
        return model.middle.weight.grad

    alone = Tiny()
    step_alone(alone, micro_batches(2, 4)[:1] + micro_batches(2, 4))
    for gradient in ranks(run, 2):
        torch.testing.assert_close(gradient, alone.middle.weight.grad, rtol=1e-9, atol=1e-12)


def test_torchs_ddp_works_as_well(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = Tiny()
        synchronised = []

        def note(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            synchronised.append(bucket.buffer().numel())
            flat = bucket.buffer().div_(group.size)
            future = dist.all_reduce(flat, async_op=True).get_future()
            return future.then(lambda done: done.value()[0])

        wrapped = nn.parallel.DistributedDataParallel(model)
        wrapped.register_comm_hook(None, note)
        accumulate(wrapped, micro_batches(group.rank, 4), group)
        return model.middle.weight.grad, synchronised

    alone = Tiny()
    step_alone(alone, micro_batches(0, 4) + micro_batches(1, 4))
    for gradient, synchronised in ranks(run, 2):
        torch.testing.assert_close(gradient, alone.middle.weight.grad, rtol=1e-9, atol=1e-12)
        assert sum(synchronised) == VOCABULARY * 8 + 8 * 8, "once, not once a micro-batch"


def test_what_cannot_be_accumulated_is_refused(ranks: Any) -> None:
    def run(group: Any) -> list[str]:
        said = []
        nothing = [(inputs, torch.full_like(t, IGNORED)) for inputs, t in micro_batches(1, 2)]
        for model, window in (
            (BucketedDDP(Tiny(), group), []),
            (BucketedDDP(Tiny(), group), nothing),
            (Tiny(), micro_batches(1, 2)),
        ):
            try:
                accumulate(model, window, group)
            except CommError as error:
                said.append(str(error))
        return said

    for empty, padding, bare in ranks(run, 2):
        assert "0 micro-batches on rank" in empty
        assert "0 counted tokens in all" in padding
        assert "Tiny without no_sync()" in bare


def test_windows_and_counts() -> None:
    assert list(windows(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(windows([], 3)) == []
    with pytest.raises(ValueError, match="windows of 0"):
        list(windows([1], 0))
    targets = torch.tensor([[1, 2, IGNORED], [IGNORED, 5, 6]])
    assert count_tokens([(targets, targets), (targets, targets)]) == 8
    assert count_tokens([(targets, targets)], ignore_index=5) == 5
    logits = torch.randn(2, 3, 7)
    assert token_loss_sum(logits, torch.full((2, 3), IGNORED)) == 0
    assert token_loss_sum(logits.bfloat16(), targets).dtype == torch.float32


# --- clipping ------------------------------------------------------------------------------------
def with_gradients(size: float = 1.0, dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in ((4, 3), (5,), (2,))]
    for parameter in parameters[:2]:
        parameter.grad = (size * torch.randn(parameter.shape, generator=generator)).to(dtype)
    return parameters


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_clips_as_torch_does(norm_type: float, max_norm: float) -> None:
    ours, theirs = with_gradients(), with_gradients()
    places = [p.grad.data_ptr() for p in ours[:2] if p.grad is not None]
    norm = clip_grad_norm(iter(ours), max_norm, norm_type=norm_type)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs, max_norm, norm_type))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-12, atol=0)
    assert places == [p.grad.data_ptr() for p in ours[:2] if p.grad is not None], "in place"


def test_unscales_before_it_clips() -> None:
    scaled, plain = with_gradients(1024.0), with_gradients()
    norm = clip_grad_norm(scaled, 0.5, scale=1024.0)
    torch.testing.assert_close(norm, clip_grad_norm(plain, 0.5))
    torch.testing.assert_close([p.grad for p in scaled[:2]], [p.grad for p in plain[:2]])


def test_a_half_precision_norm_does_not_overflow() -> None:
    parameters = with_gradients(3e4, torch.float16)
    norm = clip_grad_norm(parameters, 1.0)
    assert norm.dtype == torch.float32
    assert norm > 65504, "the largest float16"
    assert all(p.grad.isfinite().all() for p in parameters[:2] if p.grad is not None)


def test_no_gradient_at_all_and_one_that_is_not_finite() -> None:
    assert clip_grad_norm([nn.Parameter(torch.zeros(2))], 1.0) == 0
    parameters = with_gradients()
    assert parameters[0].grad is not None
    parameters[0].grad[0, 0] = float("inf")
    with pytest.raises(Refusal, match="norm of inf"):
        clip_grad_norm(parameters, 1.0, error_if_nonfinite=True)
    assert parameters[0].grad[0, 1].isfinite(), "nothing was clipped"


def test_ranks_compare_their_norms_if_asked(ranks: Any) -> None:
    def run(group: Any, apart: bool) -> str:
        parameters = with_gradients(1.0 + apart * group.rank)
        try:
            return str(clip_grad_norm(parameters, 1.0, group).item())
        except CommError as error:
            return str(error)

    alone = str(clip_grad_norm(with_gradients(), 1.0).item())
    assert ranks(run, 3, False) == [alone] * 3
    for said in ranks(run, 3, True):
        assert "clip only synchronised gradients" in said


def test_a_rank_without_a_micro_batch_is_refused_on_all(ranks: Any) -> None:
    def run(group: Any) -> str:
        model = BucketedDDP(Tiny(), group)
        with pytest.raises(CommError) as said:
            accumulate(model, micro_batches(1, 2)[: 2 * group.index], group)
        return str(said.value)

    for rank, said in enumerate(ranks(run, 3)):
        assert f"{min(2 * rank, 2)} micro-batches on rank {rank}, a rank that has none" in said


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_an_overflow_on_one_rank_is_a_norm_that_differs(ranks: Any, wrong: float) -> None:
    def run(group: Any, where: int) -> str:
        parameter = nn.Parameter(torch.ones(2))
        parameter.grad = torch.tensor([wrong if where in (group.index, -1) else 1.0, 1.0])
        try:
            return str(clip_grad_norm([parameter], 1.0, group).item())
        except CommError as error:
            return str(error)

    for where in (0, 1):
        assert all("clip only synchronised" in said for said in ranks(run, 2, where))
    assert ranks(run, 2, -1) == [str(wrong)] * 2, "all have it: that is what they synchronised"


def test_one_parameter_by_itself_one_given_twice_and_complex_ones() -> None:
    one, twice = (nn.Parameter(torch.ones(4)) for _ in range(2))
    for parameter in (one, twice):
        parameter.grad = torch.full((4,), 10.0)
    assert clip_grad_norm(one, 1.0) == 20
    assert clip_grad_norm([twice, twice], 1.0, scale=2.0) == 10
    assert one.grad is not None and twice.grad is not None
    torch.testing.assert_close(one.grad.norm(), torch.tensor(1.0))
    torch.testing.assert_close(twice.grad.norm(), torch.tensor(1.0))
    ours, theirs = (with_gradients(dtype=torch.complex128) for _ in range(2))
    torch.testing.assert_close(clip_grad_norm(ours, 0.1), nn.utils.clip_grad_norm_(theirs, 0.1))
    torch.testing.assert_close([p.grad for p in ours[:2]], [p.grad for p in theirs[:2]])
