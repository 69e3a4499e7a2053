"""One file per parallelism; each takes a plain module and a group."""

from course_lib.parallel.accumulate import accumulate, clip_grad_norm
from course_lib.parallel.activation_offload import offload_activations
from course_lib.parallel.bucket import Bucket, build_buckets
from course_lib.parallel.ddp import BucketedDDP, NaiveDDP, OverlapDDP
from course_lib.parallel.device_pool import DevicePool, OutOfMemory
from course_lib.parallel.flat_shard import Precision
from course_lib.parallel.fsdp import FSDP
from course_lib.parallel.layer_stream import LayerStream
from course_lib.parallel.nvme import NvmeStore, TornFile
from course_lib.parallel.nvme_optimizer import NvmeOptimizer
from course_lib.parallel.offload import OffloadedAdam, OffloadedOptimizer
from course_lib.parallel.shard import FlatLayout, flatten
from course_lib.parallel.sync_batch_norm import SyncBatchNorm, convert_sync_batch_norm
from course_lib.parallel.zero import Zero1
from course_lib.parallel.zero2 import Zero2

__all__ = [
    "FSDP",
    "Bucket",
    "BucketedDDP",
    "DevicePool",
    "FlatLayout",
    "LayerStream",
    "NaiveDDP",
    "NvmeOptimizer",
    "NvmeStore",
    "OffloadedAdam",
    "OffloadedOptimizer",
    "OutOfMemory",
    "OverlapDDP",
    "Precision",
    "SyncBatchNorm",
    "TornFile",
    "Zero1",
    "Zero2",
    "accumulate",
    "build_buckets",
    "clip_grad_norm",
    "convert_sync_batch_norm",
    "flatten",
    "offload_activations",
]
