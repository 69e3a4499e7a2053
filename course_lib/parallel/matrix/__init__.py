"""Optimizers that see matrices, where each rank has a piece of them."""
