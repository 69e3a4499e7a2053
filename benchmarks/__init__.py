"""Side by side with the tools that readers would use instead: one module a benchmark.

A benchmark is a module here, or in a folder, with a function `rows()` that yields `Row`s as it
measures them, and a docstring that says what is compared and how. `python -m benchmarks NAME` finds
it by its name.
"""
