"""Tensor and sequence parallelism: ranks hold parts of each layer, or of its tokens."""
