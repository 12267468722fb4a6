"""Peak memory of a forward and backward pass."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C._profiler import _EventType
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sut_fairseq.analysis.benchmark.steps import Step
from sut_fairseq.analysis.benchmark.timing import Conditions


class LiveBytes(TorchDispatchMode):
    """Adds up the bytes of all tensors that are alive while it is active.

    Counts storages, so views and in-place results count once; temporary memory inside an operator
    of torch is not seen.

    Args:
        existing: tensors that are alive already and count from the start.

    Attributes:
        live: bytes alive now.
        peak: greatest number of bytes so far.
    """

    def __init__(self, existing: Iterable[Tensor]) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._freed: dict[int, Any] = {}
        for tensor in existing:
            self._add(tensor)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._add(tensor)
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for finalizer in self._freed.values():
            finalizer.detach()
        self._freed.clear()

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if id(storage) in self._freed:
            return
        self._freed[id(storage)] = weakref.finalize(
            storage, self._remove, id(storage), storage.nbytes()
        )
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)

    def _remove(self, identity: int, num_bytes: int) -> None:
        del self._freed[identity]
        self.live -= num_bytes


def peak_bytes(step: Step, conditions: Conditions) -> int:
    """Peak memory of a step in bytes: of live tensors on the CPU, of torch's allocator on a GPU.

    Parameters, buffers, inputs and gradients count from the start: the gradients exist since an
    earlier step, as when several batches are accumulated.
    """
    step()
    step.zero_gradients()
    if conditions.device.type == "cuda":
        added = _added_on_gpu(step, conditions)
        storages = (tensor.untyped_storage() for tensor in step.tensors())
        return added + sum({one.data_ptr(): one.nbytes() for one in storages}.values())
    with LiveBytes(step.tensors()) as tracker:
        step.forward_backward()
    return tracker.peak


def added_bytes(step: Step, conditions: Conditions) -> int:
    """Peak memory that a step takes beyond what was there before it, new gradients included.

    On the CPU, torch's profiler records every allocation. Unlike `LiveBytes`, it counts temporary
    memory inside operators, and lets autograd compute gradients in place, which an active dispatch
    mode prevents. Only for steps of few operations, since each one is recorded.
    """
    step()
    step.clear_gradients()
    if conditions.device.type == "cuda":
        return _added_on_gpu(step, conditions)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        _nothing_collected(),
        torch.profiler.profile(activities=activities, profile_memory=True) as profile,
    ):
        step.forward_backward()
    allocations: list[tuple[int, int]] = []
    recorded: Any = profile.profiler
    pending = recorded.kineto_results.experimental_event_tree()
    while pending:
        event = pending.pop()
        pending += event.children
        if event.tag == _EventType.Allocation:
            allocations.append((event.start_time_ns, event.extra_fields.alloc_size))
    live = peak = 0
    for _, num_bytes in sorted(allocations):
        live += num_bytes
        peak = max(peak, live)
    return peak


def _added_on_gpu(step: Step, conditions: Conditions) -> int:
    """Greatest number of bytes that torch's allocator holds beyond those before the step."""
    gc.collect()  # garbage freed during the step would distort the result
    conditions.synchronise()
    before = torch.cuda.memory_allocated(conditions.device)
    torch.cuda.reset_peak_memory_stats(conditions.device)
    step.forward_backward()
    conditions.synchronise()
    return torch.cuda.max_memory_allocated(conditions.device) - before


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Switch garbage collection off, which is cheaper here than collecting everything before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
