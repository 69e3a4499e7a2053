"""Meshes: where ranks are, who is in which group, and what each axis sends."""
