"""Kinds of scores: how positions count beside content; see `interface`."""
