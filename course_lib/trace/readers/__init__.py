"""What other tools recorded, read as our traces and flight logs."""
