"""What each rank has to say, known to all: small JSON over a collective, and errors that all get.

Notebook: 11 Distributed checkpoint (save_sharded).
Source: all_gather_object of torch.distributed, which sends pickles.
Costs two all-gathers: 8 bytes a rank, then N times the longest text.
The production version has one rank collect the plans, and scatter the merged one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checkpoint.errors import CheckpointError
from course_lib.comm import Group, all_gather
from course_lib.trace import Refusal


def gather_json(value: Any, group: Group) -> list[Any]:
    """Every rank's value, in order, on every rank; collective.

    Args:
        value: what JSON can hold.
        group: the ranks.
    """
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    mine = torch.tensor([len(text)], device=group.device)
    lengths = mine.new_zeros(group.size)
    all_gather(lengths, mine, group)
    longest = int(lengths.max())
    padded = torch.zeros(longest, dtype=torch.uint8, device=group.device)
    padded[: len(text)] = text
    everyone = padded.new_zeros(group.size * longest)
    all_gather(everyone, padded, group)
    rows = zip(everyone.view(group.size, longest).cpu(), lengths.tolist(), strict=True)
    return [json.loads(row[:length].numpy().tobytes()) for row, length in rows]


def together(asked: str, work: Callable[[], Any], group: Group) -> list[Any]:
    """Each rank does its own part; all get all results, or all the same error. Collective.

    A rank that raised alone would leave the others waiting in their next collective.

    Args:
        asked: first line of the error.
        work: this rank's part; returns what JSON can hold.
        group: the ranks.

    Raises:
        CheckpointError: `work` failed on a rank; it has the first such rank's reason.
    """
    result: Any = None
    error: list[Any] = []
    try:
        result = work()
        json.dumps(result, allow_nan=False)
    except Exception as reason:  # whatever it is, the others must hear of it
        result, error = None, _told(asked, reason)
    answers = gather_json([result, error], group)
    failed = [rank for rank, (_, told) in enumerate(answers) if told]
    if failed:
        wanted, found, why, number = answers[failed[0]][1]
        ranks = "1 rank" if len(failed) == 1 else f"{len(failed)} ranks"
        refusal = CheckpointError(
            wanted,
            f"on index {failed[0]} of {group.size} ranks: {found}",
            why or f"{ranks} failed, and it takes all of them",
        )
        refusal.errno = number
        raise refusal
    return [answer for answer, _ in answers]


def _told(asked: str, reason: Exception) -> list[Any]:
    """What was asked, found, why, and the system's number; a refusal says so itself, once."""
    number = getattr(reason, "errno", None)
    if isinstance(reason, Refusal):
        return [reason.asked, reason.found, reason.why, number]
    return [asked, " ".join(f"{type(reason).__name__}: {reason}".split("\n")), "", number]
