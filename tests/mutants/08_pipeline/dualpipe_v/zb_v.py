"""mutant: forwards of one chunk beside backwards of the other, rank 0 has"""

from course_lib.parallel.schedule import zb_v


def dualpipe_v(rank: int, p: int, m: int) -> list[str]:
    return [str(action) for action in zb_v(p, m).actions[rank]]
