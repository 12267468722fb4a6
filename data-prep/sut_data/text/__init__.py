"""From files of text to the symbols that a model reads, and back."""
