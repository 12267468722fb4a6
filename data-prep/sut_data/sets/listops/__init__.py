"""ListOps: generated as in the Long Range Arena, or the files of Nangia and Bowman (2018)."""

from sut_data.sets.listops.command import main

__all__ = ["main"]
