"""mutant: deadlock, rank 0 waits in barrier"""

from collections.abc import Callable
from typing import Any

from course_lib.comm import Group, barrier


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    if group.index == 0:
        barrier(group)
        try:
            return prepare()
        finally:
            barrier(group)
    barrier(group)
    return prepare()
