"""The trusted side of a run: it starts the ranks, watches them, and names what went wrong."""
