"""For those who write exercises: starters, answers of known verdict, and the proof of a suite."""
