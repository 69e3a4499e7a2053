"""Trainings that are disturbed: who was there, and what was counted."""
