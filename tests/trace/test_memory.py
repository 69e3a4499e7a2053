"""LiveMemory counts what is alive, whoever made it and however it ends."""

from __future__ import annotations

import torch
from torch import nn

from course_lib.trace import Ledger
from course_lib.trace.memory import LiveMemory, held_bytes


def test_it_counts_what_is_alive_and_the_most_there_was() -> None:
    with LiveMemory() as memory:
        first = torch.zeros(1000)
        second = first + 1
        assert memory.now == 8000
        del second
        assert (memory.now, memory.peak) == (4000, 8000)
        view = first[10:]
        assert memory.now == 4000
        del first
        assert memory.now == 4000, "the view keeps the storage alive"
        del view
        assert memory.now == 0


def test_a_storage_that_is_given_back_and_taken_again() -> None:
    with LiveMemory() as memory:
        tensor = torch.zeros(1000)
        tensor.untyped_storage().resize_(0)
        assert memory.now == 0
        tensor.untyped_storage().resize_(4000)
        assert memory.now == 4000
    resize = torch.UntypedStorage.resize_
    tensor.untyped_storage().resize_(8)
    assert torch.UntypedStorage.resize_ is resize
    assert memory.now == 4000, "it looks no more once it is off"


def test_activations_are_seen_and_freed_by_the_backward() -> None:
    layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    gradients = sum(p.nbytes for p in layers.parameters())
    with LiveMemory() as memory:
        loss = layers(torch.randn(100, 32)).sum()
        after_forward = memory.now
        assert after_forward > 100 * 64 * 4, "the hidden layer is kept for the backward"
        loss.backward()
        del loss
        assert memory.now == gradients == held_bytes(p.grad for p in layers.parameters())


def test_shared_storages_are_counted_once() -> None:
    flat = torch.zeros(100)
    assert held_bytes([flat[:50], flat[50:], flat]) == 400


def test_the_ledger_keeps_marks_and_samples() -> None:
    ledger = Ledger(0)
    ledger.mark("ready head.weight")
    with ledger.hold("gradients", 100):
        ledger.add_memory("gradients", 20)
    again = Ledger.from_dict(ledger.to_dict())
    assert [(s.name, s.begin == s.end) for s in again.spans] == [("ready head.weight", True)]
    assert [(kind, count) for _, kind, count in again.samples] == [
        ("gradients", 100), ("gradients", 120), ("gradients", 20),
    ]  # fmt: skip


def test_a_ledger_is_told_of_every_change() -> None:
    ledger = Ledger(0)
    with LiveMemory(ledger) as memory:
        first = torch.zeros(1000)
        second = first + 1
        del first
    del second
    assert [count for _, _, count in ledger.samples] == [4000, 8000, 4000, 0]
    assert ledger.peak == {"activations": memory.peak} and memory.now == 0
