"""mutant: prepare began before rank 0 had finished"""

from collections.abc import Callable
from typing import Any

import time

from course_lib.comm import Group


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    if group.index != 0:
        time.sleep(0.02)
    return prepare()
