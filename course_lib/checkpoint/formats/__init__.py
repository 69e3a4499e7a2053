"""Other programs' formats: safetensors, and those of torch.distributed.checkpoint."""
