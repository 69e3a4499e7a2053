"""Context parallelism: ranks hold parts of the sequence."""
