"""Collectives built from messages: rings, trees, halving and doubling, and who should use which."""
