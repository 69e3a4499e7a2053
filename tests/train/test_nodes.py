"""The training command on two nodes: a torchrun on each, with a slow link between them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from course_lib.comm import Group
from course_lib.ranks.hosts.hosts import LINK, SUBNET, EmulatedHosts, enter, why_not
from course_lib.train import RunConfig, read_log, train
from course_lib.train.command.folder import LEDGERS, LOG

ROOT = Path(__file__).resolve().parents[2]
REASON = why_not()
RUN = RunConfig(
    dp=2, tp=2, layers=2, hidden=32, heads=2, kv_heads=2, ffn=64, sequence=128, tied=True,
    weights="fp64", batch=8, steps=6, warmup=2, rate=0.01, corpus_mib=1, trace_steps=6,
)  # fmt: skip


def torchrun(network: EmulatedHosts, host: int, config: RunConfig) -> subprocess.Popen[bytes]:
    """What is typed on one of the two nodes."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={host}",
        "--nproc-per-node=2", f"--master-addr={SUBNET}.1", "--master-port=29500",
        "-m", "course_lib.train.run", *shlex.split(config.options()),
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
           "GLOO_SOCKET_IFNAME": LINK}  # fmt: skip
    namespace = network.namespace(host)
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=lambda: enter(os.dup(namespace)),
    )  # fmt: skip


def alone(group: Group) -> list[float]:
    one = replace(RUN, dp=1, tp=1, trace_steps=0)
    return [row["loss"] for row in train(one, group)]


@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=f"no emulated hosts here: {REASON}")
def test_two_nodes_train_as_one_process(ranks: Any, tmp_path: Path) -> None:
    """And of all that is sent only what dp sends goes over the link: tp stays in a node."""
    config = replace(RUN, folder=str(tmp_path))
    with EmulatedHosts(2, 200) as network:
        nodes = [torchrun(network, host, config) for host in (0, 1)]
        try:
            said = [node.communicate(timeout=120)[0].decode() for node in nodes]
        finally:
            for node in nodes:
                node.kill()
                node.wait()
        over_the_link = max(network.sent())
    assert [node.returncode for node in nodes] == [0, 0], said
    losses = [row["loss"] for row in read_log(tmp_path / LOG)]
    assert losses == pytest.approx(ranks(alone, 1)[0], rel=1e-9)
    sent = {"inside": 0, "between": 0}
    for book in json.loads((tmp_path / LEDGERS).read_text())[:2]:  # the first node's
        for event in book["events"]:
            nodes_of_it = {rank // 2 for rank in event["group"]}
            sent["inside" if len(nodes_of_it) == 1 else "between"] += event["sent"]
    assert sent["inside"] > 3 * sent["between"] > 0
    # Beside the ledger's bytes: headers, and how the ranks find each other.
    assert sent["between"] <= over_the_link < sent["between"] + sent["inside"] / 2
