"""Traces and flight logs, read step by step."""
