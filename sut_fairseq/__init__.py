"""Sparse Universal Transformers and their relatives as a fairseq plugin.

Importing it registers models, tasks and criterions with fairseq, lets torch read the classes that
fairseq itself writes into checkpoints, and lets fairseq read sentences one by one under numpy 2
(`models.language_model`). Nothing else changes in the process, except in commands: those of fairseq
check each checkpoint before they use it, ours end with one line after Ctrl-C, and a few of ours
register nothing until they need it. `load` and `from_pretrained` make fairseq check checkpoints in
any process: a model may name a second one.
"""

from __future__ import annotations

# ruff: noqa: E402
from sut_fairseq.errors import InputError  # it says how to install sut_data where that is missing

# isort: split
from sut_data.interrupts import end_when_interrupted, ended_when_interrupted

end_when_interrupted()  # now: the imports below take seconds

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sut_fairseq._excepthook import program, show_input_errors_as_sentences
from sut_fairseq._requirements import unmet_requirement

if TYPE_CHECKING:
    from sut_fairseq.inference import Classification, ExactMatch, Model, Translation, load

__version__ = "0.1.0"
__all__ = ["Classification", "ExactMatch", "InputError", "Model", "Translation", "load"]
# Commands that answer at once; they call `register` where they need it.
_WITHOUT_MODELS = ("sut-bleu", "sut-exact-match", "sut-experiment", "sut-user-dir")


def register() -> None:
    """Register the models, tasks and criterions; only in few commands it is not done already."""
    with ended_when_interrupted():
        import_module("sut_fairseq._registration")


show_input_errors_as_sentences()
if _problem := unmet_requirement():
    raise InputError(_problem)
if program().name not in _WITHOUT_MODELS:
    register()


def __getattr__(name: str) -> Any:
    """Import what works with trained models on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.inference"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
