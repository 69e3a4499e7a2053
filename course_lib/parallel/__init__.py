"""One file per parallelism; each takes a plain module and a group."""

from course_lib.parallel.bucket import Bucket, build_buckets
from course_lib.parallel.ddp import BucketedDDP, NaiveDDP, OverlapDDP
from course_lib.parallel.fsdp import FSDP
from course_lib.parallel.shard import FlatLayout, flatten
from course_lib.parallel.unit import Precision
from course_lib.parallel.zero import Zero1

__all__ = [
    "FSDP",
    "Bucket",
    "BucketedDDP",
    "FlatLayout",
    "NaiveDDP",
    "OverlapDDP",
    "Precision",
    "Zero1",
    "build_buckets",
    "flatten",
]
