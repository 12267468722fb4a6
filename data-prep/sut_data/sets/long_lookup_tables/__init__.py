"""Long lookup tables: tables of 3-bit strings applied in a row, with gold attention."""

from sut_data.sets.long_lookup_tables.command import main

__all__ = ["main"]
