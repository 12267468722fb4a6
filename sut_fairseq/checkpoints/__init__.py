"""Checkpoints that survive: written whole, checked before they are read, found again."""
