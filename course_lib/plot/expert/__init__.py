"""Tokens on their way to experts and back."""
