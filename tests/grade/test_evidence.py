"""What an answer says about its own calls gives no points: the switch's book does."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.grade.catalog import PACKAGE, find
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card, as_text


def edited(name: str, *edits: tuple[str, str]) -> str:
    """The solution with some of its text replaced."""
    text = find(name, PACKAGE.parent).solution.read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def card_of(grader: Grader, name: str, text: str, folder: Path) -> Card:
    path = folder / f"{name}.py"
    path.write_text(text)
    return grader.grade(find(name, PACKAGE.parent), path)


# Nothing is sent; `CALLS` is what is booked by hand.
NOTHING_SENT = """
import threading
import torch
from course_lib.comm import Group

def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    CALLS

def by_hand(tensor, group):
    for op, peer in (("recv", group.previous), ("send", group.next)) * (2 * (group.size - 1)):
        count = tensor.nbytes // group.size
        sizes = {"sent": count} if op == "send" else {"received": count}
        event = group.ledger.begin(op, axis=group.axis, group=group.ranks, payload=count,
            peer=group.ranks[peer], via=group.transport.name, item=tensor.element_size(), **sizes)
        group.ledger.finish(event)
"""
IN_A_THREAD = (
    "work = threading.Thread(target=by_hand, args=(tensor, group)); work.start(); work.join()"
)
FORGED = {
    "booked by hand, nothing on the wire": (
        "ring_all_reduce",
        NOTHING_SENT.replace("CALLS", IN_A_THREAD),
        "has a call in its ledger that was never made",
    ),
    "called past the ledger": (
        "ring_all_reduce",
        edited(
            "ring_all_reduce",
            ("    data = tensor.contiguous().view(-1)\n",
             "    data = tensor.contiguous().view(-1)\n"
             "    if op == 'sum':\n"
             "        group.transport.collective('all_reduce', data, data).wait()\n"
             "        tensor.copy_(data.view(tensor.shape))\n"
             "        return\n"),
        ),
        "made a call that is not in its ledger: all_reduce",
    ),
    "fewer bytes in the ledger": (
        "ring_all_reduce",
        edited(
            "ring_all_reduce",
            ("    if op == \"avg\":\n",
             "    for event in group.ledger.events:\n"
             "        event.sent = event.sent and 8\n"
             "    if op == \"avg\":\n"),
        ),
        "carried were",
    ),
    "another operation in the ledger": (
        "overlap_ddp",
        edited(
            "overlap_ddp",
            ("all_reduce(parameter.grad, self.group, \"avg\", async_op=True)",
             "all_reduce(parameter.grad, self.group, \"avg\", async_op=True)\n"
             "        work.event.op = 'all_gather'"),
        ),
        "where all_reduce on",
    ),
    "no overlap, begun by hand in the hooks": (
        "overlap_ddp",
        edited(
            "overlap_ddp",
            ("        work = all_reduce(parameter.grad, self.group, \"avg\", async_op=True)\n"
             "        self._under_way.append(work)\n",
             "        grad, group = parameter.grad, self.group\n"
             "        sent = 2 * grad.nbytes * (group.size - 1) // group.size\n"
             "        event = group.book('all_reduce', payload=grad.nbytes, sent=sent,\n"
             "            received=sent, item=grad.element_size(), reduction='avg')\n"
             "        self._under_way.append((grad, event))\n"),
            ("            work.wait()\n",
             "            grad, event = work\n"
             "            wire = grad.contiguous()\n"
             "            call = self.group.transport.collective\n"
             "            call('all_reduce', wire, wire, event=event).wait()\n"
             "            grad.copy_(wire / self.group.size)\n"
             "            self.group.ledger.finish(event)\n"),
        ),
        "in its ledger before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_ledger_is_tampering(name: str, grader: Grader, tmp_path: Path) -> None:
    exercise, text, words = FORGED[name]
    card = card_of(grader, exercise, text, tmp_path)
    assert card.status == "tampered", as_text(card)
    assert card.score == 0 and words in " ".join(as_text(card).split())


def test_nothing_on_the_wire_is_seen_with_an_empty_ledger(grader: Grader, tmp_path: Path) -> None:
    """No rank can know the sum without it: they share no file either."""
    card = card_of(grader, "ring_all_reduce", NOTHING_SENT.replace("CALLS", "pass"), tmp_path)
    assert card.status == "failed", as_text(card)
    lost = {check.check.code for check in card.checks if check.state == "failed"}
    assert {"B", "E"} <= lost, as_text(card)


def test_an_answer_is_in_no_process_group(grader: Grader, tmp_path: Path) -> None:
    text = edited(
        "ring_all_reduce",
        ("import torch\n", "import torch\nimport torch.distributed as dist\n"),
        ("    data = tensor", "    assert not dist.is_initialized()\n    data = tensor"),
    )
    card = card_of(grader, "ring_all_reduce", text, tmp_path)
    assert card.status == "full", as_text(card)
