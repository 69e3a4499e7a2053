"""mutant: called both before and after the barrier"""

from collections.abc import Callable
from typing import Any

from course_lib.comm import Group, barrier


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    if group.index == 0:
        try:
            prepare()
        finally:
            barrier(group)
    else:
        barrier(group)
    return prepare()
