"""Ways to run cells on several processes: ours and those of other tools, one module each."""
