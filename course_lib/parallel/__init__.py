"""One file per parallelism; each takes a plain module and a group."""

from course_lib.parallel.compress.compressed_ddp import CompressedDDP
from course_lib.parallel.compress.compressors import Compressor, Int8, Sign, TopK
from course_lib.parallel.compress.feedback import Compressed, ErrorFeedback, Reducer
from course_lib.parallel.compress.gathered_mean import GatheredMean
from course_lib.parallel.compress.one_bit_adam import OneBitAdam
from course_lib.parallel.compress.powersgd import PowerSGD
from course_lib.parallel.context.context_parallel import (
    Piece,
    SequenceLayout,
    join_sequence,
    shard_sequence,
)
from course_lib.parallel.context.ring_attention import ring_attention
from course_lib.parallel.context.ulysses import ulysses_attention
from course_lib.parallel.data.accumulate import accumulate, clip_grad_norm, token_loss_sum
from course_lib.parallel.data.bucket import Bucket, build_buckets
from course_lib.parallel.data.ddp import BucketedDDP, NaiveDDP, OverlapDDP
from course_lib.parallel.data.sync_batch_norm import SyncBatchNorm, convert_sync_batch_norm
from course_lib.parallel.expert.expert_gradients import TotalCounts, average_over_replicas
from course_lib.parallel.expert.expert_parallel import ExpertParallel, dispatch, plan_route
from course_lib.parallel.flat_mean import FlatMean
from course_lib.parallel.local.diloco import DiLoCo, nesterov
from course_lib.parallel.local.local_sgd import LocalSGD
from course_lib.parallel.local.streaming import StreamingDiLoCo
from course_lib.parallel.matrix.muon import Muon
from course_lib.parallel.matrix.newton_schulz import (
    newton_schulz,
    newton_schulz_flops,
    sharded_newton_schulz,
)
from course_lib.parallel.matrix.owner_muon import OwnerMuon
from course_lib.parallel.matrix.owners import Cut, Exchange, choose_owners
from course_lib.parallel.offload.activation_offload import offload_activations
from course_lib.parallel.offload.device_pool import DevicePool, OutOfMemory
from course_lib.parallel.offload.layer_stream import LayerStream
from course_lib.parallel.offload.nvme import NvmeStore, TornFile
from course_lib.parallel.offload.nvme_optimizer import NvmeOptimizer
from course_lib.parallel.offload.optimizer import OffloadedAdam, OffloadedOptimizer
from course_lib.parallel.pipeline.runtime import Pipeline
from course_lib.parallel.pipeline.stages import sum_tied_gradient
from course_lib.parallel.tensor.region_rng import RegionRng
from course_lib.parallel.tensor.sequence_parallel import SequenceRegion
from course_lib.parallel.tensor.tensor_parallel import (
    ColumnParallelLinear,
    HeadCut,
    RowParallelLinear,
    TensorRegion,
    sum_gradients_of,
)
from course_lib.parallel.tensor.vocab_parallel import (
    VocabParallelEmbedding,
    vocab_parallel_cross_entropy,
)
from course_lib.parallel.zero.fsdp import FSDP
from course_lib.parallel.zero.precision import Pack, Precision
from course_lib.parallel.zero.shard import FlatLayout, flatten
from course_lib.parallel.zero.sharded.other_method import call_as_forward
from course_lib.parallel.zero.zero1 import Zero1
from course_lib.parallel.zero.zero2 import Zero2
from course_lib.schedule import split_stages

__all__ = [
    "Bucket",
    "BucketedDDP",
    "ColumnParallelLinear",
    "Compressed",
    "CompressedDDP",
    "Compressor",
    "Cut",
    "DevicePool",
    "DiLoCo",
    "ErrorFeedback",
    "Exchange",
    "ExpertParallel",
    "FSDP",
    "FlatLayout",
    "FlatMean",
    "GatheredMean",
    "HeadCut",
    "Int8",
    "LayerStream",
    "LocalSGD",
    "Muon",
    "NaiveDDP",
    "NvmeOptimizer",
    "NvmeStore",
    "OffloadedAdam",
    "OffloadedOptimizer",
    "OneBitAdam",
    "OutOfMemory",
    "OverlapDDP",
    "OwnerMuon",
    "Pack",
    "Piece",
    "Pipeline",
    "PowerSGD",
    "Precision",
    "Reducer",
    "RegionRng",
    "RowParallelLinear",
    "SequenceLayout",
    "SequenceRegion",
    "Sign",
    "StreamingDiLoCo",
    "SyncBatchNorm",
    "TensorRegion",
    "TopK",
    "TornFile",
    "TotalCounts",
    "VocabParallelEmbedding",
    "Zero1",
    "Zero2",
    "accumulate",
    "average_over_replicas",
    "build_buckets",
    "call_as_forward",
    "choose_owners",
    "clip_grad_norm",
    "convert_sync_batch_norm",
    "dispatch",
    "flatten",
    "join_sequence",
    "nesterov",
    "newton_schulz",
    "newton_schulz_flops",
    "offload_activations",
    "plan_route",
    "ring_attention",
    "shard_sequence",
    "sharded_newton_schulz",
    "split_stages",
    "sum_gradients_of",
    "sum_tied_gradient",
    "token_loss_sum",
    "ulysses_attention",
    "vocab_parallel_cross_entropy",
]
