"""The last calls of each rank, and where the ranks of a group went different ways."""
