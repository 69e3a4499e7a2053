"""Whom benchmarks measure against: ways to run cells on ranks, and PyTorch's parts on a mesh."""
