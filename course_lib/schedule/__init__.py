"""Pipeline schedules as data: made, checked, simulated, drawn; `parallel.pipeline` runs them."""

from course_lib.schedule.action import Action, ScheduleError
from course_lib.schedule.classic import gpipe, interleaved_1f1b, one_f_one_b
from course_lib.schedule.named import KINDS, SCHEDULES, Kind, kind_of, make_schedule
from course_lib.schedule.schedule import Schedule
from course_lib.schedule.split import split_model, split_stages
from course_lib.schedule.unit_time import Costs, Simulation, Slot, simulate
from course_lib.schedule.zero_bubble import dualpipe_v, zb_h1, zb_h2, zb_v

__all__ = [
    "KINDS",
    "SCHEDULES",
    "Kind",
    "Action",
    "Costs",
    "Schedule",
    "ScheduleError",
    "Simulation",
    "Slot",
    "dualpipe_v",
    "gpipe",
    "interleaved_1f1b",
    "kind_of",
    "make_schedule",
    "one_f_one_b",
    "simulate",
    "split_model",
    "split_stages",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
