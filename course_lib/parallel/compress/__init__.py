"""Gradients in fewer bytes: compressors, what they owe, and optimizers that know of them."""
