"""What a layout will cost, before any process starts."""

from course_lib.plan.layout import Layout

__all__ = ["Layout"]
