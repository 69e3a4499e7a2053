"""What a suite imports, and how one is run: its checks, and the fixture that runs an answer."""

from course_lib.grade.checks import CheckFailed, Exercise, check, diagnosis, in_part
from course_lib.grade.faults import RunFault
from course_lib.grade.judge.bench import Result
from course_lib.grade.rank.payload import Opaque
from course_lib.grade.suite.because import because
from course_lib.grade.suite.compare import describe
from course_lib.grade.suite.run import Run

__all__ = [
    "CheckFailed",
    "Exercise",
    "Opaque",
    "Result",
    "Run",
    "RunFault",
    "because",
    "check",
    "describe",
    "diagnosis",
    "in_part",
]
