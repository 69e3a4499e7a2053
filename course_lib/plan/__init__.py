"""What a layout will cost, before any process starts."""

from course_lib.plan.inputs.calibration import band
from course_lib.plan.inputs.hardware import Cluster, Gpu, Link, cluster, parse_cluster
from course_lib.plan.inputs.measure import product_rate
from course_lib.plan.inputs.models import MODELS, model
from course_lib.plan.inputs.recipe import COURSE
from course_lib.plan.inputs.software import Software
from course_lib.plan.memory.memory import Memory, memory
from course_lib.plan.search.answer import Answer, Wishes, answer, problem
from course_lib.plan.search.decision import Case, decide
from course_lib.plan.search.planner import Plan, Problem, plan
from course_lib.plan.time.simulate import PredictedStep, simulate
from course_lib.plan.time.stages import Stages, even_stages, schedule_of

__all__ = [
    "Answer",
    "COURSE",
    "Case",
    "Cluster",
    "Gpu",
    "Link",
    "MODELS",
    "Memory",
    "Plan",
    "Problem",
    "Software",
    "Stages",
    "PredictedStep",
    "Wishes",
    "answer",
    "band",
    "cluster",
    "decide",
    "even_stages",
    "memory",
    "model",
    "parse_cluster",
    "plan",
    "problem",
    "product_rate",
    "schedule_of",
    "simulate",
]
