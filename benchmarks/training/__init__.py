"""Trainings, in time, bytes and memory: ours beside what PyTorch has for the same."""
