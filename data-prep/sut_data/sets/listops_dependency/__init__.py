"""ListOps by dependency depth, as in the Neural Data Router (Csordás et al., 2022)."""

from sut_data.sets.listops_dependency.command import main

__all__ = ["main"]
