"""Imports torch, runs a small computation on each device, and reports what it found."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch


def main() -> None:
    """Print one JSON document."""
    product = torch.ones(8, 8) @ torch.ones(8, 8)
    if product.sum() != 512:
        sys.exit("a product of matrices is wrong")
    usable = torch.cuda.is_available()
    gpus = [_gpu(number) for number in range(torch.cuda.device_count())] if usable else []
    document = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "problem": "" if gpus or not torch.version.cuda else _why_not(),
    }
    print(json.dumps(document))


def _why_not() -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0]
    return "no GPU is visible"


def _gpu(number: int) -> dict[str, Any]:
    about = torch.cuda.get_device_properties(number)
    precisions, problem = [], ""
    has_bfloat16 = torch.version.hip is not None or (about.major, about.minor) >= (8, 0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        if dtype == torch.bfloat16 and not has_bfloat16:
            continue  # older GPUs emulate it, slowly
        try:
            ones = torch.ones(64, 64, device=f"cuda:{number}", dtype=dtype)
            if (ones @ ones).float().mean().item() != 64:
                problem = f"a product in {name} is wrong"
        except RuntimeError as error:
            problem = str(error).partition("\n")[0]
        else:
            precisions.append(name)
    return {
        "name": about.name,
        "memory": about.total_memory / 1e9,
        "precisions": precisions,
        "problem": problem,
    }


if __name__ == "__main__":
    main()
