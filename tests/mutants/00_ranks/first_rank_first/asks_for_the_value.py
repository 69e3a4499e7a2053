"""mutant: called again because its value is None"""

from collections.abc import Callable
from typing import Any

from course_lib.comm import Group, barrier


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    value = None
    try:
        if group.index == 0:
            value = prepare()
    finally:
        barrier(group)
    if value is None:
        value = prepare()
    return value
