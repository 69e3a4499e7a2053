"""One file per parallelism; each takes a plain module and a group."""

from course_lib.parallel.accumulate import accumulate, clip_grad_norm
from course_lib.parallel.activation_offload import offload_activations
from course_lib.parallel.bucket import Bucket, build_buckets
from course_lib.parallel.context_parallel import (
    Piece,
    SequenceLayout,
    join_sequence,
    shard_sequence,
)
from course_lib.parallel.ddp import BucketedDDP, NaiveDDP, OverlapDDP
from course_lib.parallel.device_pool import DevicePool, OutOfMemory
from course_lib.parallel.expert_gradients import TotalCounts, average_over_replicas
from course_lib.parallel.expert_parallel import ExpertParallel
from course_lib.parallel.flat_shard import Pack, Precision
from course_lib.parallel.fsdp import FSDP
from course_lib.parallel.layer_stream import LayerStream
from course_lib.parallel.nvme import NvmeStore, TornFile
from course_lib.parallel.nvme_optimizer import NvmeOptimizer
from course_lib.parallel.offload import OffloadedAdam, OffloadedOptimizer
from course_lib.parallel.pipeline import Pipeline
from course_lib.parallel.region_rng import RegionRng
from course_lib.parallel.ring_attention import ring_attention
from course_lib.parallel.schedule import split_stages
from course_lib.parallel.sequence_parallel import SequenceRegion
from course_lib.parallel.shard import FlatLayout, flatten
from course_lib.parallel.stages import sum_tied_gradient
from course_lib.parallel.sync_batch_norm import SyncBatchNorm, convert_sync_batch_norm
from course_lib.parallel.tensor_parallel import (
    ColumnParallelLinear,
    HeadCut,
    RowParallelLinear,
    TensorRegion,
    sum_gradients_of,
)
from course_lib.parallel.ulysses import ulysses_attention
from course_lib.parallel.vocab_parallel import VocabParallelEmbedding, vocab_parallel_cross_entropy
from course_lib.parallel.zero import Zero1
from course_lib.parallel.zero2 import Zero2

__all__ = [
    "FSDP",
    "Bucket",
    "BucketedDDP",
    "ColumnParallelLinear",
    "DevicePool",
    "ExpertParallel",
    "FlatLayout",
    "HeadCut",
    "LayerStream",
    "NaiveDDP",
    "NvmeOptimizer",
    "NvmeStore",
    "OffloadedAdam",
    "OffloadedOptimizer",
    "OutOfMemory",
    "OverlapDDP",
    "Pack",
    "Piece",
    "Pipeline",
    "Precision",
    "RegionRng",
    "RowParallelLinear",
    "SequenceLayout",
    "SequenceRegion",
    "SyncBatchNorm",
    "TensorRegion",
    "TornFile",
    "TotalCounts",
    "VocabParallelEmbedding",
    "Zero1",
    "Zero2",
    "accumulate",
    "average_over_replicas",
    "build_buckets",
    "clip_grad_norm",
    "convert_sync_batch_norm",
    "flatten",
    "join_sequence",
    "offload_activations",
    "ring_attention",
    "shard_sequence",
    "split_stages",
    "sum_gradients_of",
    "sum_tied_gradient",
    "ulysses_attention",
    "vocab_parallel_cross_entropy",
]
