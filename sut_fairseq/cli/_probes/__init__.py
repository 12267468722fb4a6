"""Programs of `sut-doctor`: each is run as a file in a process of its own, and prints JSON."""
