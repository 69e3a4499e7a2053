"""Hosts that are emulated on one machine, and recordings of runs on them."""
