"""For instructors: the students' copy of the course, and the marks of a class."""
