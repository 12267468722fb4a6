"""What things take in time and memory, next to what they could be replaced with.

A subject is a file with `Sizes`, the sizes that it can be run at, and `run(sizes, conditions)`,
which measures and returns a `Report`.
"""
