"""mutant: nobody waits for ever, use try/finally"""

from collections.abc import Callable
from typing import Any

from course_lib.comm import Group, barrier


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    if group.index != 0:
        barrier(group)
    value = prepare()
    if group.index == 0:
        barrier(group)
    return value
