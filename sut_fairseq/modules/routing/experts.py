"""Per-expert linear maps in the order of a `Dispatch`, with two interchangeable backends."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.errors import check, check_choice
from sut_fairseq.modules.routing.dispatch import Dispatch
from sut_fairseq.modules.routing.grouped import grouped_input, grouped_output
from sut_fairseq.modules.routing.segments import SegmentInput, SegmentOutput

BACKENDS = ("auto", "loop", "grouped")


class _ExpertLinear(nn.Module):
    """One linear map per expert, x W_e (+ b_e).

    All experts live in stacked parameters, so the training graph is the same whichever experts a
    batch uses.

    Args:
        num_experts: number of maps.
        in_features, out_features: sizes of x and of the result.
        bias: whether each map has a bias.
        backend: "loop" (one matrix product per expert; any dtype), "grouped" (one
            `torch.nn.functional.grouped_mm`; float32, bfloat16 or float16, sizes in multiples of
            16 bytes) or "auto": grouped on CUDA where it applies, else the loop, which is the
            faster of the two on a CPU.
    """

    def __init__(
        self,
        num_experts: int,
        in_features: int,
        out_features: int,
        *,
        bias: bool,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_choice("expert_backend", backend, BACKENDS)
        self.num_experts = num_experts
        self.in_features = in_features
        self.out_features = out_features
        self.backend = backend
        self.weight = nn.Parameter(torch.empty(num_experts, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(num_experts, out_features)) if bias else None
        # Xavier per expert, as for a dense nn.Linear of one expert's size.
        bound = math.sqrt(6 / (in_features + out_features))
        nn.init.uniform_(self.weight, -bound, bound)

    def _parameters_for(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The input and the parameters in the dtype to compute in."""
        device = states.device.type
        # Asking whether autocast is on is an error on "meta", which has no autocast.
        if states.is_meta or not torch.is_autocast_enabled(device):
            return states, self.weight, self.bias
        # Autocast does not know grouped_mm, so both backends cast by hand, in the same way.
        dtype = torch.get_autocast_dtype(device)
        bias = None if self.bias is None else self.bias.to(dtype)
        return states.to(dtype), self.weight.to(dtype), bias

    def _use_grouped(self, states: Tensor) -> bool:
        if self.backend == "loop":
            return False
        sizes = self.in_features, self.out_features
        possible = (
            hasattr(F, "grouped_mm")
            and states.dtype in (torch.bfloat16, torch.float16, torch.float32)
            and all(size * states.element_size() % 16 == 0 for size in sizes)
        )
        if self.backend == "auto":
            return possible and states.is_cuda
        requirement = (
            f"auto or loop for {states.dtype} experts of {sizes[0]} x {sizes[1]} with torch "
            f"{torch.__version__} (grouped_mm needs float32 or less and sizes in multiples of 16 "
            "bytes)"
        )
        check(possible, "expert_backend", requirement, self.backend)
        return True

    def unrecordable(self, dtype: torch.dtype) -> str | None:
        """See `Stack.unrecordable`: only one kernel computes all experts without waiting."""
        if self.backend == "loop":
            return "does not go with --expert-backend loop, which waits for the GPU"
        if dtype != torch.bfloat16 or torch.cuda.get_device_capability()[0] not in (9, 10):
            return (
                "can record experts only in bfloat16 (--autocast bfloat16 or --bf16) on a GPU of "
                "compute capability 9.x or 10.x, where one kernel computes all of them"
            )
        return None

    def extra_repr(self) -> str:
        return (
            f"num_experts={self.num_experts}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, {self.backend}"
        )


class ExpertInput(_ExpertLinear):
    """From tokens to the experts they chose: row_e = x W_e (+ b_e)."""

    def forward(self, states: Tensor, dispatch: Dispatch) -> Tensor:
        """Apply to each token the maps of its experts.

        Args:
            states: `(num_tokens, in_features)`.
            dispatch: which experts the tokens chose.

        Returns:
            a row for each pair of token and expert, in the order of `dispatch`,
            `(num_pairs, out_features)`, 0 where inactive; in the autocast dtype if autocasting.
        """
        states, weight, bias = self._parameters_for(states)
        if self._use_grouped(states):
            return grouped_input(states, weight, bias, dispatch)
        return SegmentInput.apply(states, weight, bias, dispatch)


class ExpertOutput(_ExpertLinear):
    """From the experts back to the tokens: y = sum over the chosen experts of g (row W_e + b_e)."""

    def forward(self, rows: Tensor, expert_weights: Tensor, dispatch: Dispatch) -> Tensor:
        """Apply to each row the map of its expert and add up each token's results.

        Args:
            rows: in the order of `dispatch`, `(num_pairs, in_features)`.
            expert_weights: g, `(num_tokens, top_k)`.
            dispatch: which experts the tokens chose.

        Returns:
            `(num_tokens, out_features)`, 0 where inactive; in the autocast dtype if autocasting.
        """
        rows, weight, bias = self._parameters_for(rows)
        expert_weights = expert_weights.to(rows.dtype)
        if self._use_grouped(rows):
            return grouped_output(rows, expert_weights, weight, bias, dispatch)
        return SegmentOutput.apply(rows, expert_weights, weight, bias, dispatch)
