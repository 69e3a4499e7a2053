"""For instructors: the students' copy of the course, and the marks of a class."""


class Refusal(ValueError):
    """What an instructor asked for cannot be; nothing was changed."""
