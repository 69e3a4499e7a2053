"""Data parallelism: every rank has the whole model, and a part of the batch."""
