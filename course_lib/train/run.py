"""The training command: one line that trains a model in up to five dimensions.

Notebook: 13 3D parallelism, 16 Capstone.
Source: torchrun (torch.distributed.run), through whose environment the ranks find each other.
Costs: see `train/loop.py`. Starting costs an import of torch for each rank.
Production runs are started the same way, by a scheduler that starts them again after a failure.

    torchrun --nproc-per-node 8 -m course_lib.train.run --pp 2 --dp 2 --tp 2 --folder runs/first

A run that cannot work is refused before any process of it talks to another; `--check` does only
that, and needs no torchrun. On several nodes the same line runs on each, with torchrun's own
options for where they meet; `command/other_tools/slurm.sbatch` does it under Slurm. With
`--resume`, a run that was killed goes on from its last checkpoint, also on another mesh.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

import torch

from course_lib.comm import Group
from course_lib.comm.start import start_from_environment
from course_lib.trace import Refusal
from course_lib.trace.hangs.lost import lost_peer
from course_lib.train.command.agent import end_with_agent
from course_lib.train.command.check import check, refuse_without_room
from course_lib.train.command.config import RunConfig
from course_lib.train.command.folder import last_checkpoint
from course_lib.train.command.full_disk import full_disk
from course_lib.train.command.launch import SIGNALLED, launch
from course_lib.train.command.other_tools.deepspeed import read_deepspeed
from course_lib.train.command.other_tools.print_as import PRINT_AS
from course_lib.train.command.progress import WaitWatch
from course_lib.train.loop import train
from course_lib.train.simulated import simulated_step


@dataclass(frozen=True)
class Asked:
    """What a command line asks for, beside the run itself.

    Attributes:
        check: only say whether it can work.
        launch: start the ranks here.
        print_as: only print it in the words of another tool; "" for none.
        simulate: a cluster to simulate it on, as 64x8xH100; "" for real ranks.
    """

    check: bool = False
    launch: bool = False
    print_as: str = ""
    simulate: str = ""


def parse(words: Sequence[str]) -> tuple[RunConfig, Asked]:
    """The run that a command line asks for, and what is to be done with it.

    Raises:
        Refusal: the file of --deepspeed is none, or has what is not known here.
    """
    parser = _parser()
    given = vars(parser.parse_args(words))
    asked = Asked(
        given.pop("check"), given.pop("launch"), given.pop("print_as"), given.pop("simulate")
    )
    file = given.pop("deepspeed")
    config = RunConfig(**given)
    return (read_deepspeed(Path(file), config) if file else config), asked


def _parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").split("\n\n")[0]
    usage = "%(prog)s [--check | --launch] [--OPTION N ...]; --help lists the options"
    parser = argparse.ArgumentParser("course_lib.train.run", usage=usage, description=about)
    for each in fields(RunConfig):
        assert each.default is not MISSING
        name = f"--{(each.metadata['flag'] or each.name).replace('_', '-')}"
        about = each.metadata["about"]
        if isinstance(each.default, bool):
            parser.add_argument(name, dest=each.name, action="store_true", help=about)
        else:
            choices = each.metadata["choices"] or None
            letters = "PATH" if isinstance(each.default, str) else "N"
            parser.add_argument(
                name,
                dest=each.name,
                type=type(each.default),
                default=each.default,
                choices=choices,
                metavar=None if choices else letters,
                help=about if each.default == "" else f"{about} (%(default)s)",
            )
    parser.add_argument("--check", action="store_true", help="only say whether it can work")
    parser.add_argument("--launch", action="store_true", help="start the ranks, without torchrun")
    parser.add_argument("--deepspeed", default="", metavar="FILE", help="options from a ds_config")
    parser.add_argument(
        "--print-as", default="", choices=[*PRINT_AS], help="only say what it would be there"
    )
    parser.add_argument(
        "--simulate", default="", metavar="CLUSTER", help="one step on such ranks, as 64x8xH100"
    )
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command; every rank under torchrun calls it.

    Returns:
        The exit code: 0, 1 if the run could not go on, 2 if it cannot work.
    """
    end_with_agent()
    words = sys.argv[1:] if words is None else words
    rank, world = int(os.environ.get("RANK", "0")), os.environ.get("WORLD_SIZE")
    try:
        config, asked = parse(words)
        alone = asked.check or asked.launch or asked.print_as or asked.simulate
        check(config, None if alone else int(world or config.world))
        if asked.simulate:
            print(simulated_step(config, asked.simulate))
            return 0
    except Refusal as error:
        return _refuse(str(error), rank, 2)
    if asked.print_as:
        print(PRINT_AS[asked.print_as](config))
        return 0
    if asked.launch and world is None and not asked.check:
        return _launched([word for word in words if word != "--launch"], config)
    if asked.check or (world is None and config.world > 1):
        ranks = "1 rank" if config.world == 1 else f"{config.world} ranks"
        print(f"this run is possible on {ranks}:\n{config.command()}")
        start = "start it with that line, or with --launch: each rank is a process"
        return 0 if asked.check else _refuse(start, rank, 2)
    try:
        refuse_without_room(config, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except Refusal as error:
        return _refuse(str(error), rank, 2)
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    try:
        with start_from_environment() as group:
            return _train(config, group)
    except KeyboardInterrupt:  # the terminal sends it to every process: torchrun says so once
        return 130
    except RuntimeError as error:
        if not lost_peer(str(error)):
            raise
        print(f"rank {rank} has lost its connection to a rank that ended", file=sys.stderr)
        return 1


def _launched(words: Sequence[str], config: RunConfig) -> int:
    """Runs the command on ranks of this machine; says what can be gone on from if it was ended."""
    code = launch(words, config.world)
    saved = last_checkpoint(Path(config.folder)) if code > SIGNALLED and config.folder else 0
    if saved:
        again = f"the checkpoint of step {saved} is whole: start the same line with --resume"
        print(again, file=sys.stderr, flush=True)
    return code


def _train(config: RunConfig, group: Group) -> int:
    if group.size > 1 and group.index < 2:  # two: a rank that is frozen says nothing of itself
        WaitWatch(group).start()
    try:
        train(config, group)
    except Refusal as error:  # the same on every rank
        return _refuse(full_disk(error, config.folder) or str(error), group.rank, 1)
    return 0


def _refuse(text: str, rank: int, code: int) -> int:
    """Prints the reason on rank 0, and returns the exit code."""
    if rank == 0:
        print(text, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
