"""What does not fit the device waits on the host or on the disk."""
