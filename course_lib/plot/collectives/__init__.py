"""Collectives: their messages, their times, and the line of the α–β model."""
