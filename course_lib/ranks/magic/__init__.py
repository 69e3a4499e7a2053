"""The magics of the notebook, and how their output is shown."""
