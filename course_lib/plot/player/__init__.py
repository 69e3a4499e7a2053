"""What all pictures are made of: the player, still pictures, charts, and how they look."""
