"""peer_checkpoint: nodes that go at bad moments, and shards that must come back bit for bit."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import torch

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part

EXERCISE = Exercise(
    title="Each shard in the memory of another node",
    core=True,
    minutes=35,
    order=4,
    defines=("PeerCheckpoint",),
    hints=(
        "There are two slots, each with the rank's own shard, a copy and a step. Which of them "
        "may `copy` write to, and what must its step be until `seal`?",
        "Write to the slot with the lower step; its step is -1 until it is sealed. In `restore`, "
        "all ranks gather each other's two steps. The answer is the largest step that all "
        "surviving ranks have.",
        "A lost rank receives from its partner, (index + offset) % N. A surviving rank sends its "
        "copy if member (index - offset) % N is lost. Then all ranks call `copy` and `seal` "
        "again.",
    ),
)

SAVES = 5


class Story(NamedTuple):
    """What happens, to four or three ranks.

    Attributes:
        name: in words.
        world: how many ranks.
        offset: how far the partners are.
        saves: for each save who seals it: "all", "none", or the indices.
        lost: one node after the other, which is lost, and what is to be restored: a save's number.
        cut: whether a save that nobody seals follows each restore.
        shape: of the shards.
        dtype: of the shards.
    """

    name: str
    world: int
    offset: int
    saves: tuple[Any, ...]
    lost: tuple[tuple[tuple[int, ...], int], ...]
    cut: bool = False
    shape: tuple[int, ...] = (7,)
    dtype: torch.dtype = torch.float32


NODES = (
    Story("node 1 fails", 4, 2, ("all", "all"), (((2, 3), 1),)),
    Story("node 0 fails", 4, 2, ("all",), (((0, 1), 0),)),
    Story("one rank of three fails", 3, 1, ("all", "all", "all"), (((2,), 2),)),
    Story("neighbours are on one node", 4, 3, ("all", "all"), (((1,), 1),),
          shape=(3, 4), dtype=torch.float64),
)  # fmt: skip
TORN = (
    Story("a node fails in the middle of a save", 4, 2, ("all", "all", "none"), (((0, 1), 1),)),
    Story("only rank 0 has sealed", 4, 2, ("all", (0,)), (((2, 3), 0),)),
    Story("rank 0 has not sealed", 4, 2, ("all", "all", (1, 2, 3)), (((2, 3), 1),)),
    Story("no rank has sealed the second save", 3, 1, ("all", "none"), (((1,), 0),)),
)
AGAIN = (
    Story("one node fails after another", 4, 2, ("all", "all"), (((2, 3), 1), ((0, 1), 1))),
    Story("no rank is lost, but all go back", 3, 2, ("all", "all", "none"), (((), 1), ((0,), 1))),
)
CUT = (
    Story("a save is cut short after a restore", 4, 2, ("all", (0,)), (((2, 3), 0),) * 2, cut=True),
    Story("the only rank that had not sealed is lost", 3, 1, ("all", (0, 1)),
          (((), 0), ((2,), 0)), cut=True),
)  # fmt: skip


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any, group: Any, offset: int, saves: list[Any], lost: list[Any], shards: Any, cut: bool
) -> dict[str, Any]:
    """One story: saves, losses, and what comes back."""
    live = torch.zeros_like(shards[0])
    kept = learner.PeerCheckpoint(group, offset, live)
    moments = learner.PeerCheckpoint(group, offset, torch.zeros(2))  # has its own slots
    for number, (sealed, shard) in enumerate(zip(saves, shards, strict=True)):
        live.copy_(shard)
        kept.copy(10 * number, live)
        live.fill_(-1.0)  # training goes on
        if sealed == "all" or (sealed != "none" and group.index in sealed):
            kept.seal(10 * number)
    moments.copy(5, torch.ones(2))
    moments.seal(5)
    found = []
    for gone in lost:
        live.fill_(-2.0)
        if group.index in gone:
            kept = learner.PeerCheckpoint(group, offset, live)
        step = kept.restore(live, list(gone))
        found.append([step, live.clone()])
        if cut:  # under the number of a save that was given up
            kept.copy(step + 10, live.fill_(-3.0))
    return {"found": found}


def drive_bytes(learner: Any, group: Any, offset: int, shard: Any) -> dict[str, Any]:
    """Some saves; the bytes that are kept after them."""
    before = held()
    kept = learner.PeerCheckpoint(group, offset, shard.clone())
    for step in range(SAVES):
        kept.copy(step, shard)
        kept.seal(step)
    return {"kept": held() - before}


def held() -> int:
    """Bytes of this process's tensors, each storage once."""
    gc.collect()
    storages = [t.untyped_storage() for t in gc.get_objects() if isinstance(t, torch.Tensor)]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


# --- what they must bring back -------------------------------------------------------------------
def tell(run: Run, stories: tuple[Story, ...]) -> None:
    """Plays each story and compares what every rank has."""
    for story in stories:
        shards = [
            [run.random(story.shape, story.dtype) for _ in story.saves] for _ in range(story.world)
        ]
        inputs = [
            {"offset": story.offset, "saves": list(story.saves),
             "lost": [list(gone) for gone, _ in story.lost], "shards": own, "cut": story.cut}
            for own in shards
        ]  # fmt: skip
        result = run(drive, inputs, world=story.world)
        for rank, output in enumerate(run.each(result.outputs)):
            for (gone, save), (step, shard) in zip(story.lost, output["found"], strict=True):
                what = f"{story.name}, ranks {list(gone)} are lost"
                likely = {
                    "that save is not complete: some surviving ranks have not sealed it":
                        10 * len(story.saves) - 10,
                    "the newest complete save was given up too early": 10 * save - 10,
                }  # fmt: skip
                run.equal(step, 10 * save, f"{what}: the step", likely=likely)
                own = shards[rank][save]
                slips = {
                    "the save has the values that training wrote later: copy the tensor":
                        torch.full_like(own, -1.0),
                    "`shard` was not filled, or `copy` kept the tensor itself":
                        torch.full_like(own, -2.0),
                    "the save that nobody sealed was written over the restored one":
                        torch.full_like(own, -3.0),
                    "the shard was kept in float32: keep its own dtype": own.float().to(own),
                }  # fmt: skip
                for other in range(story.world):
                    if other != rank:
                        slips[f"this is the shard of rank {other}"] = shards[other][save]
                for number, other_shard in enumerate(shards[rank]):
                    if number != save:
                        slips[f"this is the shard of save {number + 1}"] = other_shard
                run.equal(shard, own, f"{what}: the shard", likely=slips)


@check("any one node may fail", points=5, code="E")
@diagnosis("the copy is `offset` ranks away, and comes back from there")
@in_part
def check_nodes(run: Run) -> None:
    """E: four ranks on two nodes, three on three, an offset that is not 1."""
    tell(run, NODES)


@check("a save that was interrupted", points=5, code="E")
@diagnosis("only a save that all surviving ranks have sealed is complete")
def check_torn(run: Run) -> None:
    """E: failures between `copy` and `seal`, between two ranks' `seal`, and after a restore."""
    tell(run, TORN + CUT)


@check("another node fails afterwards", points=3, code="E")
@diagnosis("after a restore each shard is on two nodes again")
def check_again(run: Run) -> None:
    """E: a second loss right after the first."""
    tell(run, AGAIN)


@check("each shard is sent once, and two slots are kept", points=2, code="B")
@diagnosis("each rank sends S bytes, to one partner")
def check_bytes(run: Run) -> None:
    """B: S bytes from every rank, to the partner; what is kept after some saves."""
    shard = run.random(500, torch.float32)
    result = run(drive_bytes, {"offset": 1, "shard": shard}, world=4)
    sent = SAVES * shard.nbytes
    run.bytes(result, sent, likely={"every rank received every shard": 3 * sent})
    for kept in run.each(result.column("kept")):
        cause = "two own shards and two copies are enough: what is older is given up"
        what = "the bytes that are kept after five saves"
        run.at_most(kept, 4.5 * shard.nbytes, what, cause=cause)
    for rank, ledger in enumerate(run.each(result.ledgers)):
        for event in ledger.events:
            if event.op == "send":
                likely = {"it is the one `offset` before, not after": (rank - 1) % 4}
                what = "the rank that a shard is sent to"
                run.equal(event.peer, (rank + 1) % 4, what, likely=likely)
