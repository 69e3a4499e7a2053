"""The notebook: what a cell costs on ranks, and what a picture costs in the browser."""
