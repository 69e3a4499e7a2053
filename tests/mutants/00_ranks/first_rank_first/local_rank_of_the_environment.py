"""mutant: rank 0 of the world is not in this group"""

from collections.abc import Callable
from typing import Any

import os

from course_lib.comm import Group, barrier


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    first = os.environ["LOCAL_RANK"] == "0"
    if not first:
        barrier(group)
        return prepare()
    try:
        return prepare()
    finally:
        barrier(group)
