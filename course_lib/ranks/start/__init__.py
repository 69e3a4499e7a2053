"""How ranks start: forked from a preloaded process, or spawned ahead of need."""
