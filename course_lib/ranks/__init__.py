"""Running code on real processes: the preloaded process, the pool of ranks, the autopsy."""

from course_lib.ranks.forkserver import ForkServer
from course_lib.ranks.pool import Outcome, Pool, RanksError, run_on_ranks

__all__ = ["ForkServer", "Outcome", "Pool", "RanksError", "run_on_ranks"]
