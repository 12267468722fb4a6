"""Kinds of scores: how positions count besides content; see `interface`."""
