"""One file per parallelism; each takes a plain module and a group."""

from course_lib.parallel.bucket import Bucket, build_buckets
from course_lib.parallel.ddp import BucketedDDP, NaiveDDP, OverlapDDP

__all__ = ["Bucket", "BucketedDDP", "NaiveDDP", "OverlapDDP", "build_buckets"]
