"""CUDA graphs: all operations of a step, launched at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, nn

from sut_fairseq.criterions.over_workers import several_workers
from sut_fairseq.errors import InputError

Step = Callable[[], list[Tensor]]


class Record(Protocol):
    """How steps are recorded."""

    def check(self, model: nn.Module, dtype: torch.dtype) -> None:
        """Refuse a model whose steps cannot be recorded."""

    def __call__(self, step: Step) -> tuple[Callable[[], None], list[Tensor]]:
        """Run a step; return how to run it again, and its outputs, which a rerun overwrites."""


class CudaGraphs:
    """Records CUDA graphs that share their memory, since only one of them runs at a time.

    A model's modules know what can be recorded: `Stack.unrecordable` and others of that name.
    """

    def __init__(self) -> None:
        self._pool: Any = None

    def check(self, model: nn.Module, dtype: torch.dtype) -> None:
        """Refuse a model that cannot be recorded, or whose results would differ if it were.

        Args:
            model: the model.
            dtype: of matrix products.

        Raises:
            InputError: naming the option.
        """
        if not all(parameter.is_cuda for parameter in model.parameters()):
            self._refuse("needs a GPU")
        if several_workers():
            self._refuse("is for one GPU")
        if dtype == torch.float16:
            self._refuse("has no loss scaling: drop --fp16 or --amp (--autocast bfloat16)")
        asked: list[Any] = [m for m in model.modules() if hasattr(m, "unrecordable")]
        if not asked:
            self._refuse("records the models of this package that have a depth loop")
        for module in asked:
            reason = module.unrecordable(dtype)
            if reason is not None:
                self._refuse(reason)

    @staticmethod
    def _refuse(reason: str) -> NoReturn:
        raise InputError(f"--cuda-graphs {reason}; or leave it out.")

    def __call__(self, step: Step) -> tuple[Callable[[], None], list[Tensor]]:
        """Record a step; see `Record`.

        Raises:
            InputError: if the step does something that cannot be recorded.
        """
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # First a normal run: what is set up on first use must not be recorded. autocast's cache is
        # cleared before and after: a recording must not share cast weights with other steps.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        torch.clear_autocast_cache()
        graph = torch.cuda.CUDAGraph()
        # Another thread may be copying batches meanwhile.
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                outputs = step()
        except torch.OutOfMemoryError:
            raise  # fairseq recognises it by its text
        except RuntimeError as error:
            what, _, _ = str(error).partition("\n")
            self._refuse(f"cannot record a step of this model ({what})")
        torch.clear_autocast_cache()
        return graph.replay, outputs
