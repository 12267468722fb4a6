"""Where a trained model runs."""

from __future__ import annotations

import torch

from sut_fairseq.errors import InputError


def usable_device(name: str | None) -> torch.device:
    """The device with this name; None: a GPU if there is one, else the CPU.

    Raises:
        InputError: there is no such device.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it computes nothing")
    except (RuntimeError, AssertionError, TypeError) as error:
        # For a missing device torch raises an AssertionError, or a message of several lines; for
        # what is no name, a TypeError.
        raise InputError(
            f"The device {name} cannot be used here; `cpu` always can, and `cuda` with a GPU and a "
            f"torch that was built for it."
        ) from error
    return device
