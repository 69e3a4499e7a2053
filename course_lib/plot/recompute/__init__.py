"""A step that forgets activations and computes them again."""
