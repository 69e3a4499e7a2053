"""For instructors: the students' copy of the course, and the marks of a class.

Notebook: none; INSTRUCTORS.md.
Source: nbgrader's release, collect and autograde.
Costs: see each file.
The production version is a learning platform.
"""


class Refusal(ValueError):
    """What an instructor asked for cannot be; nothing was changed."""
