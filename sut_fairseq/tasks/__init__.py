"""fairseq tasks for what its own `translation` cannot do."""
