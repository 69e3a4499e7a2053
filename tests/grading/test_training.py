"""The reference of the data-parallel suites: what one process makes of all ranks' batches."""

from __future__ import annotations

import torch

from grading.references.data_parallel import replicas
from grading.references.data_parallel.replicas import Net


def batches(count: int, rows: int = 4, width: int = 3) -> list[replicas.Batch]:
    draw = torch.Generator().manual_seed(7)
    return [(torch.randn(rows, width, generator=draw, dtype=torch.float64),
             torch.randn(rows, generator=draw, dtype=torch.float64))
            for _ in range(count)]  # fmt: skip


def test_the_mean_of_equal_batches_is_the_gradient_of_all_rows() -> None:
    parts = batches(3)
    whole = (torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
    mean = replicas.mean_gradients(Net(5, 3), parts)
    all_at_once = replicas.mean_gradients(Net(5, 3), [whole])
    for name, gradient in mean.items():
        torch.testing.assert_close(gradient, all_at_once[name], rtol=1e-12, atol=1e-14)


def test_every_trained_parameter_has_a_gradient_that_is_not_zero() -> None:
    """Otherwise a suite would compare zeros with zeros."""
    for seed in (5, 11, 23, 42):
        for width in (3, 4, 5):
            net = Net(seed, width)
            found = replicas.mean_gradients(net, batches(2, width=width))
            assert set(found) == {n for n, p in net.named_parameters() if p.requires_grad}
            assert all(bool(gradient.any()) for gradient in found.values()), (seed, width)


def test_the_net_has_the_traps_that_it_promises() -> None:
    net = Net(5, 4)
    assert net.first.weight is net.second.weight
    assert not net.transposed.is_contiguous()
    assert not net.frozen.requires_grad
    assert set(dict(net.named_buffers())) - set(net.state_dict()) == {"mask"}


def test_one_rank_alone_is_plain_training() -> None:
    for name in replicas.OPTIMIZERS:
        steps = batches(3)
        said = replicas.train(Net(5, 3), lambda module: module, lambda module: None, steps, name)
        alone = replicas.one_process(Net(5, 3), [[batch] for batch in steps], name)
        for key, weight in alone.items():
            torch.testing.assert_close(said["weights"][key], weight, rtol=1e-12, atol=1e-14)
