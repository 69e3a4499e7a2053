"""mutant: deadlock, Only the members of the group take part"""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from course_lib.comm import Group


def first_rank_first(prepare: Callable[[], Any], group: Group) -> Any:
    if group.index != 0:
        dist.barrier()
        return prepare()
    try:
        return prepare()
    finally:
        dist.barrier()
