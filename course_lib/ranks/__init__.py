"""Running code on real processes: the preloaded process, the pool of ranks, the autopsy."""

from course_lib.ranks.forkserver import ForkServer
from course_lib.ranks.outcome import Outcome, RanksError
from course_lib.ranks.pool import Pool
from course_lib.ranks.run import run_on_ranks

__all__ = ["ForkServer", "Outcome", "Pool", "RanksError", "run_on_ranks"]
