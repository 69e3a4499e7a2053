"""heal: a new rank becomes what its peer is, and the next steps are the same, bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course_lib.grade.suite import Exercise, Run, check, diagnosis, in_part
from grading.references.checkpoint.no_files import no_files

EXERCISE = Exercise(
    title="The complete state from a living peer",
    core=True,
    minutes=30,
    order=2,
    library=("comm.Group", "comm.send", "comm.recv"),
    hints=(
        "What must a checkpoint on disk hold for the job to continue exactly (lesson 11)? Send "
        "the same over the wire. Which member knows its size?",
        "The source puts the five states into a dict, writes it to memory with `torch.save`, and "
        "sends first the number of bytes and then the bytes. Only two members do anything at all.",
        "`raw = torch.frombuffer(bytearray(memory.getvalue()), dtype=torch.uint8)` is a tensor of "
        "the bytes; `torch.load(io.BytesIO(raw.numpy().tobytes()))` is the dict again. Then call "
        "`load_state_dict` three times, `generator.set_state`, and set `step`.",
    ),
)

WIDTH, AFTER = 6, 2
# Members that live and their steps, in any order; who heals; inner channels of the model, once so
# many that the state has more bytes than anybody would guess. The others of three are not asked.
ROOMS: tuple[tuple[dict[int, int], int, int], ...] = (
    ({0: 3, 2: 4}, 1, 5),
    ({2: 5, 1: 5}, 0, 9000),
    ({0: 2, 1: 2}, 2, 5),
)


class Sampler:
    """Which numbers come next: an order of its own for each epoch, and a place in it."""

    def __init__(self, seed: int) -> None:
        self.seed, self.place = seed, 0

    def __next__(self) -> torch.Tensor:
        epoch, place = divmod(self.place, 5)
        order = torch.randperm(5, generator=torch.Generator().manual_seed(self.seed + epoch))
        self.place += 1
        made = torch.Generator().manual_seed(int(order[place]) + 100 * self.seed)
        return torch.randn(4, WIDTH, generator=made, dtype=torch.float64)

    def state_dict(self) -> dict[str, int]:
        """Everything."""
        return {"seed": self.seed, "place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from there."""
        self.seed, self.place = state["seed"], state["place"]


class Noise(nn.Module):
    """Dropout that draws from a generator of its own; it is the job's."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Zeros some of the numbers."""
        return x * (torch.rand(x.shape, generator=self.generator) > 0.2)


class Job:
    """A training with a buffer, moments, a place in the data, and noise."""

    def __init__(self, seed: int, inner: int) -> None:
        torch.manual_seed(seed)
        self.generator = torch.Generator().manual_seed(seed)
        layers = nn.Linear(WIDTH, inner), nn.BatchNorm1d(inner), nn.Linear(inner, 1)
        self.model = nn.Sequential(Noise(self.generator), *layers).double()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05 + 0.01 * (seed % 3))
        self.sampler = Sampler(seed)
        self.step = 0

    def make_step(self) -> None:
        """One step; a schedule changes the learning rate with the step's number."""
        self.optimizer.zero_grad()
        self.model(next(self.sampler)).square().mean().backward()
        self.optimizer.param_groups[0]["lr"] *= 1 + 0.1 / (1 + self.step)
        self.optimizer.step()
        self.step += 1

    def seen(self) -> dict[str, Any]:
        """All of it, as tensors and numbers."""
        kept = self.optimizer.state_dict()["state"]
        return {
            "weights and buffers": {n: t.clone() for n, t in self.model.state_dict().items()},
            "the optimizer's states": [
                [each["step"].clone(), each["exp_avg"].clone(), each["exp_avg_sq"].clone()]
                for each in kept.values()
            ],
            "the learning rate": self.optimizer.param_groups[0]["lr"],
            "the sampler": [self.sampler.seed, self.sampler.place],
            "the generator": self.generator.get_state(),
            "torch's own generator": torch.get_rng_state(),
            "step": self.step,
            "the gradients": [each.grad for each in self.model.parameters()],
            "training mode": self.model.training,
        }


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(
    learner: Any,
    group: Any,
    seed: int,
    inner: int,
    steps: int,
    rank: int,
    peers: dict[int, int],
) -> dict[str, Any]:
    """A member's job, healing, and some steps more."""
    job = Job(seed, inner)
    for _ in range(steps):
        job.make_step()
    with no_files():
        learner.heal(job, rank, dict(peers), group)
    at_once = job.seen()
    for _ in range(AFTER):
        job.make_step()
    return {"at_once": at_once, "later": job.seen()}


# --- what they must bring back -------------------------------------------------------------------
def after(seed: int, inner: int, steps: int) -> dict[str, Any]:
    """The same job in one process."""
    job = Job(seed, inner)
    for _ in range(steps):
        job.make_step()
    return job.seen()


def rooms(run: Run) -> list[tuple[int, int, dict[int, int], list[tuple[int, int]], Any]]:
    """Each room: who heals, its source, the peers, the jobs' arguments, and what came back."""
    found = []
    for peers, rank, inner in ROOMS:
        seeds = [run.number(10, 1000) * 3 + place for place in range(3)]
        source = min(p for p in peers if peers[p] == max(peers.values()))
        inputs = [
            {
                "seed": seeds[r],
                "inner": inner,
                "steps": peers.get(r, 0),
                "rank": rank,
                "peers": peers,
            }
            for r in range(3)
        ]
        jobs = [(seed, inner) for seed in seeds]
        found.append((rank, source, peers, jobs, run(drive, inputs, world=3)))
    return found


def compare(run: Run, names: tuple[str, ...], when: str = "at_once") -> None:
    """Some of the healed rank's numbers with those of its source."""
    for rank, source, peers, jobs, result in rooms(run):
        extra = AFTER if when == "later" else 0
        right = after(*jobs[source], peers[source] + extra)
        new = after(*jobs[rank], extra)
        others = [p for p in peers if p != source]
        other = after(*jobs[others[0]], peers[others[0]] + extra)
        for name in names:
            run.equal(
                result.outputs[rank][when][name],
                right[name],
                f"{name} of the healed rank {'after two more steps' if extra else ''}".strip(),
                rank=rank,
                likely={
                    "this is still the new job's: it was not sent": new[name],
                    "this is another peer's: everything comes from the lowest index with the "
                    "most steps":
                        other[name],
                },
            )  # fmt: skip


@check("weights and buffers", points=3, code="E")
@diagnosis("model.state_dict() has both")
@in_part
def check_weights(run: Run) -> None:
    """E: bit for bit, from the right peer."""
    compare(run, ("weights and buffers",))


@check("the optimizer's states and options", points=3, code="E")
@diagnosis("optimizer.state_dict() has both")
def check_optimizer(run: Run) -> None:
    """E: moments, step counters, and the learning rate that a schedule has set."""
    compare(run, ("the optimizer's states", "the learning rate"))


@check("place in the data, random numbers, step", points=4, code="E")
@diagnosis("the next step depends on all of them")
def check_rest(run: Run) -> None:
    """E: what is forgotten most often."""
    compare(run, ("the sampler", "the generator", "step"))


@check("two steps later it is still identical", points=3, code="E")
@diagnosis("something that the next step depends on was not sent")
def check_later(run: Run) -> None:
    """E: the steps of the peer."""
    compare(run, ("weights and buffers", "the optimizer's states"), "later")


@check("the others continue undisturbed", points=3, code="B")
@diagnosis("two members communicate; the others do nothing")
def check_others(run: Run) -> None:
    """B: bystanders send and receive nothing, and no peer's job changes."""
    for rank, source, peers, jobs, result in rooms(run):
        for index in peers:
            for name, right in after(*jobs[index], peers[index]).items():
                run.equal(result.outputs[index]["at_once"][name], right,
                          f"{name} of a living peer, after it has helped", rank=index)  # fmt: skip
        for index, ledger in enumerate(run.each(result.ledgers)):
            calls = [event.op for event in ledger.events if event.parent < 0]
            if index not in (rank, source):
                run.equal(calls, [], "the calls of a member that is neither the source nor heals")
