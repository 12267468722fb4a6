"""Console commands, one file each; every `main` takes an argument list and returns an exit code."""
