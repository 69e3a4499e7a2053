"""Which calls of different ranks belong together, whether they fit, and who waits for whom.

Notebook: none of its own; grading and the simulated cluster run on it.
Source: MPI's matching rules ("MPI: A Message-Passing Interface Standard" 4.0, sections 3.5 and 6).
Costs nothing on the wire: no tensor, no socket and no clock is known here.
The production version is in each network's own library, and trusts its callers to fit.
"""

from course_lib.comm.matching.deadlock import Deadlock, find_deadlock
from course_lib.comm.matching.engine import Matching
from course_lib.comm.matching.fit import Difference, find_difference
from course_lib.comm.matching.post import COLLECTIVES, MESSAGES, Channel, Meeting, Post

__all__ = [
    "COLLECTIVES",
    "MESSAGES",
    "Channel",
    "Deadlock",
    "Difference",
    "Matching",
    "Meeting",
    "Post",
    "find_deadlock",
    "find_difference",
]
