"""Running code on real processes: the preloaded process, the pool of ranks, the autopsy."""

from course_lib.ranks.pool.outcome import Outcome, RanksError
from course_lib.ranks.pool.pool import Pool
from course_lib.ranks.pool.run import run_on_ranks
from course_lib.ranks.start.forkserver import ForkServer

__all__ = ["ForkServer", "Outcome", "Pool", "RanksError", "run_on_ranks"]
