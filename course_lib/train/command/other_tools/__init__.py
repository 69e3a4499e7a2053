"""Configurations and weights of other tools: what is read, what is written, what is refused."""
