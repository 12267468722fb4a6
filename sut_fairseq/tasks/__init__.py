"""fairseq tasks: what its own `translation` cannot do."""
