"""The vote of the appendix on common statements."""
