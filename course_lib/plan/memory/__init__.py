"""Bytes on a rank."""
