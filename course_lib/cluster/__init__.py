"""A described cluster on which programs run that are written for real ranks, in virtual time."""

from course_lib.cluster.engine import Deadlocked, Failed
from course_lib.cluster.memory import OutOfMemory
from course_lib.cluster.simulation import Simulation, simulate

__all__ = ["Deadlocked", "Failed", "OutOfMemory", "Simulation", "simulate"]
