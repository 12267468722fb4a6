"""CFQ (Keysers et al., 2020): English questions and SPARQL queries."""

from sut_data.sets.cfq.command import main

__all__ = ["main"]
