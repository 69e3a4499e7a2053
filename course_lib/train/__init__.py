"""The one room that knows both a model and a parallelism."""

from course_lib.train.grad_norm import clip_grad_norm_nd, grad_norm_nd
from course_lib.train.layout import lay_out, make_optimizers
from course_lib.train.mesh_model import MeshModel
from course_lib.train.parallelize import expert_parallel, tensor_parallel
from course_lib.train.stage import TransformerStage, pipeline_stages
from course_lib.train.step import StepReport, finalize_grads, own_micro_batches, train_step

__all__ = [
    "MeshModel",
    "StepReport",
    "TransformerStage",
    "clip_grad_norm_nd",
    "expert_parallel",
    "finalize_grads",
    "grad_norm_nd",
    "lay_out",
    "make_optimizers",
    "own_micro_batches",
    "pipeline_stages",
    "tensor_parallel",
    "train_step",
]
