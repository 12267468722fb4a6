"""One warning, instead of one for each progress bar, if TensorBoard is requested but missing."""

from __future__ import annotations

import logging
from functools import cache

_MARK = "tensorboard not found"
_SENTENCE = (
    "TensorBoard is not installed, so --tensorboard-logdir writes nothing: run "
    "`pip install 'sut_fairseq[tensorboard]'`."
)


@cache
def warn_of_tensorboard_once() -> None:
    """Let fairseq say once that TensorBoard is missing, not at every epoch and validation.

    The first call in a process puts a filter on the logger of fairseq's progress bars; all other
    messages pass.
    """
    said = False

    def passes(record: logging.LogRecord) -> bool:
        """Pass the first of those warnings, reworded to say what to do, and drop the others."""
        nonlocal said
        if _MARK not in str(record.msg):
            return True
        record.msg = _SENTENCE
        first, said = not said, True
        return first

    logging.getLogger("fairseq.logging.progress_bar").addFilter(passes)
