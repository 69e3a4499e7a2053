"""Layers that are cut over ranks."""
