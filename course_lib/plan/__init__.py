"""What a layout will cost, before any process starts."""

from course_lib.plan.answer import Answer, answer, problem
from course_lib.plan.decision import Case, decide
from course_lib.plan.hardware import Cluster, Gpu, Link, parse_cluster
from course_lib.plan.layout import Layout
from course_lib.plan.memory import Memory, memory
from course_lib.plan.models import MODELS, model
from course_lib.plan.planner import Plan, Problem, plan
from course_lib.plan.simulate import Step, simulate

__all__ = [
    "MODELS",
    "Answer",
    "Case",
    "Cluster",
    "Gpu",
    "Layout",
    "Link",
    "Memory",
    "Plan",
    "Problem",
    "Step",
    "answer",
    "decide",
    "memory",
    "model",
    "parse_cluster",
    "plan",
    "problem",
    "simulate",
]
