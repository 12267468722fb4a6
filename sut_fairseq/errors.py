"""The exception for bad input and its checks, all from the sister package `sut_data`.

This package imports them from here or from `sut_data`; they are the same objects.
"""

from __future__ import annotations

try:
    from sut_data.errors import InputError, check, check_choice
except ModuleNotFoundError as error:
    if error.name != "sut_data":
        raise
    raise ImportError(
        "sut_fairseq needs the package sut_data, which is installed together with it: run "
        "`pip install -e .` in the repository, and give `--user-dir` as before."
    ) from None

__all__ = ["InputError", "check", "check_choice"]
