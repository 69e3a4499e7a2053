"""The corpus is the same every time, and every window is seen once, whoever reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from course_lib.data import Corpus, WindowSampler, load_corpus, load_data, shard_indices
from course_lib.trace import Refusal


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus(limit=1 << 20)


def test_the_corpus_is_python_source_and_stable(corpus: Corpus) -> None:
    again = load_corpus(limit=1 << 20)
    assert torch.equal(corpus.train, again.train)
    assert torch.equal(corpus.validation, again.validation)
    assert corpus.train.dtype == torch.uint8
    text = bytes(corpus.train[:200_000].tolist())
    assert b"import " in text
    assert b"def " in text
    assert corpus.train.numel() > 5 * corpus.validation.numel() > 0


def test_the_split_is_by_file(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"m{number}.py").write_text(f"# only in {number}\n")
    corpus = load_corpus(tmp_path)
    train, validation = (bytes(half.tolist()) for half in (corpus.train, corpus.validation))
    for number in range(40):
        mark = f"# only in {number}\n".encode()
        assert (mark in train) != (mark in validation)


def test_names_need_not_be_text_and_links_may_lead_nowhere(tmp_path: Path) -> None:
    """As those that an editor locks a file with."""
    for number in range(40):
        Path(tmp_path, os.fsdecode(b"\xff%d.py" % number)).write_text("x = 1\n")
    (tmp_path / ".#lock.py").symlink_to("nobody@nowhere")
    assert load_corpus(tmp_path).files == 40
    corpus = load_data(str(tmp_path), 1000)
    assert corpus.files == 40 and len(corpus.validation) < len(corpus.train)


def test_too_few_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("x = 1")
    with pytest.raises(Refusal, match="both halves need at least one file"):
        load_corpus(tmp_path)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_shares_cover_everything_once(size: int, drop_last: bool) -> None:
    shares = [shard_indices(10, i, size, epoch=3, drop_last=drop_last) for i in range(size)]
    assert len({len(share) for share in shares}) == 1, "unequal steps hang the last all-reduce"
    seen = torch.cat(shares).tolist()
    if drop_last:
        assert len(seen) == len(set(seen)) == 10 // size * size
    else:
        assert set(seen) == set(range(10))
        assert len(seen) == -(-10 // size) * size


def test_epochs_differ_and_repeat() -> None:
    first, second = shard_indices(50, 0, 2, epoch=0), shard_indices(50, 0, 2, epoch=1)
    assert not torch.equal(first, second)
    assert torch.equal(first, shard_indices(50, 0, 2, epoch=0))


def test_fewer_examples_than_ranks() -> None:
    shares = [shard_indices(2, i, 5) for i in range(5)]
    assert all(len(share) == 1 for share in shares)


def test_a_share_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="index 3 of 2"):
        shard_indices(10, 3, 2)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_global_batch_does_not_depend_on_the_ranks(size: int) -> None:
    tokens = torch.randint(0, 256, (5000,), dtype=torch.uint8)
    whole = WindowSampler(tokens, 16, 8, seed=5)
    parts = [WindowSampler(tokens, 16, 8, i, size, seed=5) for i in range(size)]
    for step in (0, 7, whole.steps_per_epoch + 1):
        inputs, targets = whole.batch(step)
        assert torch.equal(inputs, torch.cat([part.batch(step)[0] for part in parts]))
        assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_an_epoch_sees_every_window_once() -> None:
    tokens = torch.arange(16 * 12 + 1)
    sampler = WindowSampler(tokens, 16, 4)
    starts = torch.cat([next(sampler)[0][:, 0] for _ in range(sampler.steps_per_epoch)])
    assert sorted(starts.tolist()) == list(range(0, 16 * 12, 16))


def test_resume_on_another_number_of_ranks() -> None:
    tokens = torch.randint(0, 256, (5000,), dtype=torch.uint8)
    before = WindowSampler(tokens, 16, 8, seed=1)
    for _ in range(5):
        next(before)
    after = WindowSampler(tokens, 16, 8, index=1, size=2, seed=1)
    after.load_state_dict(before.state_dict())
    assert torch.equal(next(after)[0], next(before)[0][4:])
    other = WindowSampler(tokens, 16, 8, seed=2)
    with pytest.raises(ValueError, match="another seed"):
        other.load_state_dict(before.state_dict())


def test_batches_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="part 0 of 3"):
        WindowSampler(torch.zeros(1000, dtype=torch.uint8), 16, 8, 0, 3)


@pytest.mark.parametrize(("sequence", "batch", "size"), [(0, 8, 1), (4, 0, 1), (4, -2, 1),
                                                         (-4, 8, 1), (4, 8, 0)])  # fmt: skip
def test_numbers_below_one_are_refused(sequence: int, batch: int, size: int) -> None:
    with pytest.raises(Refusal, match=f"batches of {batch} windows of {sequence} tokens"):
        WindowSampler(torch.zeros(1000, dtype=torch.uint8), sequence, batch, 0, size)
