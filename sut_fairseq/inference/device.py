"""Where a trained model runs."""

from __future__ import annotations

import torch

from sut_fairseq.errors import InputError


def usable_device(name: str | None) -> torch.device:
    """The device of a name, if there is one here; None: a GPU where there is one.

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
    except (RuntimeError, AssertionError) as error:
        # torch answers a device that is not there with an AssertionError or several lines.
        raise InputError(
            f"The device {name} cannot be used here; `cpu` always can, and `cuda` with a GPU and a "
            f"torch that was built for it."
        ) from error
    return device
