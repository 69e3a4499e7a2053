"""The planner: layouts at a glance, and predictions beside published runs."""
