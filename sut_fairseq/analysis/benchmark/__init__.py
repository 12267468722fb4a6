"""Time and memory of parts of this package, compared with their alternatives.

A subject is a file with `Sizes`, the sizes that it can be run at, and `run(sizes, conditions)`,
which measures and returns a `Report`. Its docstring is its `--help`.
"""
