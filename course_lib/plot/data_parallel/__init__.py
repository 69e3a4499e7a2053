"""Data parallelism: one backward with its buckets, and losses of several runs."""
