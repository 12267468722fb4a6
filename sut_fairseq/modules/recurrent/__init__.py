"""Recurrent networks that read a sentence from its first word to its last."""
