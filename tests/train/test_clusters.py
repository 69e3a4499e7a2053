"""The files for clusters: each is whole, and asks for as many ranks as its training needs."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from typing import Any

import pytest

from course_lib.train import check
from course_lib.train.run import parse

CLUSTERS = Path(__file__).resolve().parents[2] / "examples/clusters"
MARK = "course_lib.train.run"


def load(name: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load((CLUSTERS / name).read_text())


def works_on(words: str, ranks: int) -> None:
    config, _ = parse(shlex.split(words.replace("\\\n", " ")))
    check(config, ranks)
    assert config.resume and config.save_every and config.folder, "what is started again goes on"


def test_trainjob() -> None:
    job = load("trainjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    spec = job["spec"]["trainer"]
    assert job["spec"]["runtimeRef"]["name"] and spec["image"] and spec["command"] == ["torchrun"]
    assert spec["args"][:2] == ["-m", MARK]
    gpus = spec["resourcesPerNode"]["limits"]["nvidia.com/gpu"]
    works_on(shlex.join(spec["args"][2:]), spec["numNodes"] * gpus)


def test_pytorchjob() -> None:
    job = load("pytorchjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"}
    nodes = sum(each["replicas"] for each in replicas.values())
    (container,) = replicas["Master"]["template"]["spec"]["containers"]
    assert container["name"] == "pytorch", "the operator looks for this name"
    line = container["command"][-1]
    assert f"--nnodes={nodes}" in line and f"--nproc-per-node={job['spec']['nprocPerNode']}" in line
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    works_on(line.partition(MARK)[2], nodes * gpus)


def test_skypilot() -> None:
    job = load("skypilot.yaml")
    assert set(job) <= {"name", "num_nodes", "resources", "workdir", "file_mounts", "setup", "run"}
    gpus = int(job["resources"]["accelerators"].partition(":")[2])
    works_on(job["run"].partition(MARK)[2], job["num_nodes"] * gpus)


def test_ray_train() -> None:
    tree = ast.parse((CLUSTERS / "ray_train.py").read_text())
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "COMMAND"
    )  # type: ignore
    works_on(ast.literal_eval(value), 16)
