"""Pipeline parallelism: ranks hold stages, and run the actions of a schedule."""
