"""Training that goes on when ranks fail: quorum, healing, checkpoints in memory, goodput."""

from course_lib.failures.goodput import Policy, Span, goodput, mean_gap, replay, young
from course_lib.failures.masked import masked_mean
from course_lib.failures.parcel import give_state, take_state
from course_lib.failures.peer import PeerCheckpoint
from course_lib.failures.quorum import Heartbeat, Limits, Quorum, quorum
from course_lib.failures.record import (
    Counted,
    Fault,
    Job,
    Plan,
    Record,
    one_process,
    ordered_mean,
)
from course_lib.failures.room import random_faults
from course_lib.failures.survive import survive

__all__ = [
    "Counted",
    "Fault",
    "Heartbeat",
    "Job",
    "Limits",
    "PeerCheckpoint",
    "Plan",
    "Policy",
    "Quorum",
    "Record",
    "Span",
    "give_state",
    "goodput",
    "masked_mean",
    "mean_gap",
    "one_process",
    "ordered_mean",
    "quorum",
    "random_faults",
    "replay",
    "survive",
    "take_state",
    "young",
]
