"""Bad input: the one exception and its checks, which are those of the sister package `sut_data`.

Every room of this package takes them from here or from there; they are the same.
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
