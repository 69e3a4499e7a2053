"""Memory: bars, curves, and who is resident when."""
