"""What FSDP is made of: flat shards, units and their states, and when a unit is needed."""
