"""Where a run's tokens come from: what lies in a folder says which of the ways it is.

Notebook: 13 3D parallelism, for the course's own text.
Costs what the way costs, see `corpus`, `own_text`, `packed`, `hugging_face`.
The production version mixes many sources, each with a weight.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import torch

from course_lib.data.corpus import Corpus, load_corpus
from course_lib.data.hugging_face import MARKS, data_set_documents
from course_lib.data.own_text import text_documents
from course_lib.data.packed import ABOUT, HALVES, map_half, packed_vocabulary
from course_lib.trace import Refusal

EVERYTHING = 1 << 40  # tokens


def load_data(source: str, limit: int) -> Corpus:
    """Tokens to train and to validate on, with the places where documents begin.

    Args:
        source: a folder, or a file of text; "" for the text that the course ships.
        limit: tokens at which to stop; packed tokens are mapped whole.

    Raises:
        Refusal: there is nothing there, or not what it looks like.
    """
    if not source:
        return load_corpus(limit=limit)
    path = _existing(source)
    if (path / ABOUT).exists():
        (train, first), (validation, second) = (map_half(path, half) for half in HALVES)
        return Corpus(
            train, validation, len(first) + len(second), packed_vocabulary(path), first, second
        )
    if any((path / mark).exists() for mark in MARKS):
        return joined(*data_set_documents(path, limit))
    return joined(text_documents(path, limit), 256)


def joined(halves: dict[str, list[torch.Tensor]], vocabulary: int) -> Corpus:
    """Documents end to end.

    Args:
        halves: documents of `train` and of `validation`.
        vocabulary: tokens that there are.
    """
    for half in HALVES:
        if not any(map(len, halves[half])):
            raise Refusal(f"a corpus of documents to {half} on", "none", "each half needs one")
    train, validation = (torch.cat(halves[half]) for half in HALVES)
    first, second = (_starts(halves[half]) for half in HALVES)
    return Corpus(train, validation, len(first) + len(second), vocabulary, first, second)


def vocabulary_of(source: str) -> int:
    """How many tokens there are in a source's text, before it is read where that can be known."""
    if not source:
        return 256
    path = _existing(source)
    if (path / ABOUT).exists():
        return packed_vocabulary(path)
    if any((path / mark).exists() for mark in MARKS):
        return data_set_documents(path, EVERYTHING)[1]
    return 256


def _existing(source: str) -> Path:
    path = Path(source)
    if not os.path.exists(path):  # also for a name that no system takes
        raise Refusal(f"--data {source}", "no such folder or file", "give a path that is there")
    return path


def _starts(documents: Sequence[torch.Tensor]) -> torch.Tensor:
    lengths = [len(document) for document in documents if len(document)]
    return torch.tensor([0, *accumulate(lengths[:-1])])
