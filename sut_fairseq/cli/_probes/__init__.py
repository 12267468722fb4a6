"""Programs of `sut-doctor`: each runs as a script in its own process, and prints JSON."""
