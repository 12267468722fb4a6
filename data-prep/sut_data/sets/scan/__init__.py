"""SCAN (Lake and Baroni, 2018): commands and actions, from its grammar or from files."""

from sut_data.sets.scan.command import main

__all__ = ["main"]
