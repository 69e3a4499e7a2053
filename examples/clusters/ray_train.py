"""Ray Train: its workers are the ranks; each calls the training command in the environment it got.

Usage: python examples/clusters/ray_train.py 16, on a Ray cluster with so many GPUs.
"""

import shlex
import sys

COMMAND = (
    "--pp 2 --dp 1 --tp 8 --micro-batches 8 --batch 64 --zero 1 --precision bf16 "
    "--layers 16 --hidden 2048 --heads 16 --kv-heads 8 --ffn 5632 --sequence 2048 "
    "--steps 10000 --folder /runs/course-3d --save-every 500 --resume"
)


def rank(config: dict[str, str]) -> None:
    """One rank. The command makes the process group itself, in a process of its own.

    Ray has one for the worker already, and set MASTER_ADDR and MASTER_PORT for it: the port after
    that is ours.
    """
    import os
    import subprocess

    from ray import train

    here = train.get_context()
    environment = {
        **os.environ,
        "RANK": str(here.get_world_rank()),
        "WORLD_SIZE": str(here.get_world_size()),
        "LOCAL_RANK": str(here.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(here.get_local_world_size()),
        "MASTER_PORT": str(int(os.environ["MASTER_PORT"]) + 1),
    }
    words = [sys.executable, "-m", "course_lib.train.run", *shlex.split(config["command"])]
    subprocess.run(words, env=environment, check=True)


def main(workers: int) -> None:
    """Starts so many ranks, a GPU each, and starts them again up to three times."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    TorchTrainer(
        rank,
        train_loop_config={"command": COMMAND},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=True),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    ).fit()


if __name__ == "__main__":
    main(int(sys.argv[1]))
