"""What is computed from a trace: who waited for whom, and which chain of work was the step."""
