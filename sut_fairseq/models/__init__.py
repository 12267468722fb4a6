"""fairseq models: thin classes around the modules, and the only readers of a config."""
