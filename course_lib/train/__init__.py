"""The one room that knows both a model and a parallelism."""

from course_lib.train.parallelize import tensor_parallel
from course_lib.train.stage import TransformerStage, pipeline_stages

__all__ = ["TransformerStage", "pipeline_stages", "tensor_parallel"]
