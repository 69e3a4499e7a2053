"""Optimizers of matrices: singular values that move, and the loads of owners."""
