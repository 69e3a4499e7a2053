"""Pipeline schedules, as grids over time."""
