"""Ring attention, hop by hop."""
