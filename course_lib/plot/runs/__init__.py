"""Curves of training runs, from the logs that they left."""
