"""ZeRO and FSDP: optimizer state, gradients and parameters are cut over the ranks."""
