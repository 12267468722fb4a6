"""Mistakes of users that fairseq reports by exceptions of its own, in a sentence each."""

from __future__ import annotations

import re
from types import TracebackType

from sut_fairseq.errors import InputError

NO_BUCKETS = (
    "--num-batch-buckets pads sentences for TPUs, on which these models do not run: leave it out."
)

# The beginnings of fairseq's messages, as regular expressions, and what they stand for; `{0}` is
# the first group.
_MEANINGS = {
    r"Model file not found: (.*)": "there is no checkpoint `{0}`: check its path.",
    r"Dataset not found: (.*) \((.*)\)": "there is no set `{0}` in `{1}`: check both names.",
    "Could not infer language pair": (
        "the data folder has no set of a language pair: name the folder that sut-prepare or "
        "fairseq-preprocess made, such as data-bin/mine."
    ),
    "Must specify batch size": (
        "batches have no size: give --max-tokens (tokens of a batch, padding included) or "
        "--batch-size (sentences)."
    ),
    r"Sentences lengths should not exceed max_tokens=(\d+)": (
        "a sentence has more tokens than the {0} that --max-tokens allows in a batch: give at "
        "least as many as the longest sentence has."
    ),
    "The dataset is empty": (
        "no sentence of the training set is left: those longer than --max-source-positions, "
        "--max-target-positions or --max-tokens are left out. Raise the one that is too small."
    ),
    "--finetune-from-model and --restore-file": (
        "--finetune-from-model begins a new training, --restore-file goes on with one: give one of "
        "them."
    ),
    "optimizer is required": "--optimizer is missing: give adam, for example.",
    r"percentile\(\) got an unexpected keyword argument 'interpolation'": NO_BUCKETS,
}
# Messages that are sentences for users already: they begin with an option, or with a request.
_FOR_USERS = re.compile(r"(?:--[a-z]|please (?:install|specify) ).{,200}", re.IGNORECASE)
# Hydra's, of an option that must have a value.
_NO_VALUE = re.compile(r"Error merging override (\w+)\.(\w+)=null")
# From torch's message on unexpected parameters of a model.
_UNKNOWN_WORDS = re.compile(r"Unexpected key\(s\)[^\n]*\bwords\.\w+\._extra_state")


def input_error(error: BaseException) -> InputError | None:
    """The `InputError` that an exception is or stands for.

    fairseq's trainer replaces an `InputError` by an exception of its own: it reports any problem
    with a checkpoint's parameters as "please ensure that the architectures match". And torch does
    not know that the tasks of this package give fairseq's models their words.
    """
    if isinstance(error, InputError):
        return error
    reason = str(error)
    if isinstance(error, RuntimeError) and _UNKNOWN_WORDS.search(reason):
        return InputError(
            "this model was trained with a task of this package: name it with --task here too."
        )
    if type(error).__module__.startswith("hydra.") and (option := _NO_VALUE.match(reason)):
        group, name = (word.replace("_", "-") for word in option.groups())
        return InputError(f"--{name} is missing: the chosen --{group} needs it.")
    if raised_in(error).partition(".")[0] not in ("fairseq", "fairseq_cli"):
        return None
    if isinstance(error, FloatingPointError):
        return divergence(reason)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return InputError(f"there is no `{error.filename}`: check the path.")
    context = error.__context__
    return context if isinstance(context, InputError) else _meant(reason)


def _meant(reason: str) -> InputError | None:
    """The `InputError` that a message of fairseq's stands for, if any."""
    for message, meaning in _MEANINGS.items():
        if found := re.match(message, reason):
            return InputError(meaning.format(*found.groups()))
    return InputError(f"{reason.rstrip('.!')}.") if _FOR_USERS.fullmatch(reason) else None


def divergence(reason: str) -> InputError | None:
    """The `InputError` for the text of a `FloatingPointError` from fairseq's trainer, if any.

    The trainer raises it if gradients are not finite, after the log has named the first modules
    that made them so, but also if gradients differ between workers. If these are finite, the
    result is None, since fairseq's own message says what to try.
    """
    if "inconsistent between workers" in reason:
        if not re.search(r"= *-?(nan|inf)", reason):
            return None
        reason = "gradients are Nan/Inf"
    return InputError(
        f"the training diverged ({reason}): give --clip-norm 1 or a lower --lr, and go on from "
        "checkpoint_last.pt or an earlier checkpoint, not from crash.pt; or start again with more "
        "--warmup-updates."
    )


def raised_in(error: BaseException) -> str:
    """The module that raised an error."""
    frame = _last_frame(error)
    return "" if frame is None else str(frame.tb_frame.f_globals.get("__name__", ""))


def raised_by(error: BaseException) -> str:
    """The name of the function that raised an error."""
    frame = _last_frame(error)
    return "" if frame is None else frame.tb_frame.f_code.co_name


def _last_frame(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace
