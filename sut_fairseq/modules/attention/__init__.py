"""Attention kinds that share one interface; see `interface`."""
