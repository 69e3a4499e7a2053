"""The network of a grading: one trusted process carries every call, and keeps the book of all.

Notebook: none of its own; every exercise is graded on it.
Source: MUST and other checkers of MPI programs, which send each call's signature to one place.
Costs: a small message to the switch and one back for each call; data go through shared memory.
The production version carries no data: what one process moves for all does not scale.

`Switch` runs in the trusted process, a `Link` and its `SwitchTransport`s in each rank.
"""

from course_lib.comm.switch.book import Booked
from course_lib.comm.switch.frames import Garbled, Mark
from course_lib.comm.switch.link import Link
from course_lib.comm.switch.switch import Switch
from course_lib.comm.switch.transport import SwitchTransport

__all__ = ["Booked", "Garbled", "Link", "Mark", "Switch", "SwitchTransport"]
