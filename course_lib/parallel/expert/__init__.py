"""Expert parallelism: ranks hold some of the experts, and tokens travel to them."""
