"""Record and replay: a run written down call by call, run again, compared with another one."""

from course_lib.replay.again import Diverged, replay
from course_lib.replay.compare import Difference, compared, first_difference, unequal_steps
from course_lib.replay.digest import digest
from course_lib.replay.entries import Call
from course_lib.replay.record import Recorder, record
from course_lib.replay.recording import RankLog, Recording, read_recording

__all__ = [
    "Call",
    "Difference",
    "Diverged",
    "RankLog",
    "Recorder",
    "Recording",
    "compared",
    "digest",
    "first_difference",
    "read_recording",
    "record",
    "replay",
    "unequal_steps",
]
