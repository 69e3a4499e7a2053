"""The one room that knows both a model and a parallelism."""

from course_lib.trace.readers.steps import read_steps as read_log
from course_lib.train.command.check import ConfigError, check
from course_lib.train.command.config import RunConfig
from course_lib.train.command.problems import find_problems
from course_lib.train.copies import tensor_copies
from course_lib.train.grad_norm import clip_grad_norm_nd, grad_norm_nd
from course_lib.train.layout import lay_out, make_optimizers, make_state
from course_lib.train.loop import Run, rate_at, train
from course_lib.train.mesh_checkpoint import mesh_training, whole_model
from course_lib.train.mesh_model import MeshModel
from course_lib.train.parallelize import expert_parallel, tensor_parallel
from course_lib.train.stage import (
    StagedModel,
    TransformerStage,
    pipeline_stages,
    stage_costs,
    tied_pair,
)
from course_lib.train.step import StepReport, finalize_grads, own_micro_batches, train_step

__all__ = [
    "ConfigError",
    "MeshModel",
    "Run",
    "RunConfig",
    "StagedModel",
    "StepReport",
    "TransformerStage",
    "check",
    "clip_grad_norm_nd",
    "expert_parallel",
    "finalize_grads",
    "find_problems",
    "grad_norm_nd",
    "lay_out",
    "make_optimizers",
    "make_state",
    "mesh_training",
    "own_micro_batches",
    "pipeline_stages",
    "rate_at",
    "read_log",
    "stage_costs",
    "tensor_copies",
    "tensor_parallel",
    "tied_pair",
    "train",
    "train_step",
    "whole_model",
]
