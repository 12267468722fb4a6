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
    logging.getLogger("fairseq.logging.progress_bar").addFilter(_Once())


class _Once(logging.Filter):
    """Passes the first warning, reworded to say what to do, and drops the others."""

    def __init__(self) -> None:
        super().__init__()
        self._said = False

    def filter(self, record: logging.LogRecord) -> bool:
        if _MARK not in str(record.msg):
            return True
        record.msg = _SENTENCE
        first, self._said = not self._said, True
        return first
