"""Checkpoints: who writes and who reads which bytes."""
