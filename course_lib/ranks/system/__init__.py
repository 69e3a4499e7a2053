"""What the operating system knows of processes, and how to end them."""
