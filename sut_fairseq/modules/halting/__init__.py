"""Halting kinds that share one interface; see `interface`."""
