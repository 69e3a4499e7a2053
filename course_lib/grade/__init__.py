"""Grades one exercise: its checks, the ranks they run on, the score card and the progress."""
