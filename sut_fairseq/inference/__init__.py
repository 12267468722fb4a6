"""Trained models applied to raw text, in three lines of Python and by the commands."""

from sut_fairseq.inference.model import Model, load
from sut_fairseq.inference.results import Classification, ExactMatch, Search, Translation
from sut_fairseq.inference.trace import Figures, SentenceTrace

__all__ = [
    "Classification",
    "ExactMatch",
    "Figures",
    "Model",
    "Search",
    "SentenceTrace",
    "Translation",
    "load",
]
