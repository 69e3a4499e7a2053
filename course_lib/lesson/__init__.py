"""The verbs of a lesson: prove, learn, compare, show. Measuring that a page need not spell out."""

from course_lib.lesson.cut import prove_cut
from course_lib.lesson.gap import largest_gap
from course_lib.lesson.held import memory_by_class
from course_lib.lesson.learn import learn, loss_curve
from course_lib.lesson.prove import Proof, prove
from course_lib.lesson.show import Source, show
from course_lib.lesson.strategy import Strategy, one_process, train_step

__all__ = [
    "Proof",
    "Source",
    "Strategy",
    "largest_gap",
    "learn",
    "loss_curve",
    "memory_by_class",
    "one_process",
    "prove",
    "prove_cut",
    "show",
    "train_step",
]
