"""Types of distributed tensors: replicated, sharded, partial, varying, and the sums that they ask.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: DTensor's placements and the SPMD types of `spmd_types`, which torchtitan uses.
Costs: as `record.py` says, and only where types are asked for.
The production version is `spmd_types`: it checks while the program runs, without values.
"""

from course_lib.spmd.findings import Finding
from course_lib.spmd.infer import types_of
from course_lib.spmd.report import Report, Row
from course_lib.spmd.types import Axis, P, Piece, R, S, Type, V, Value

__all__ = [
    "Axis", "Finding", "P", "Piece", "R", "Report", "Row", "S", "Type", "V", "Value", "types_of",
]  # fmt: skip
