"""Per-expert linear maps over tokens sorted by expert, with two interchangeable backends."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sut_fairseq.modules.errors import check, check_choice
from sut_fairseq.modules.routing.dispatch import ContiguousGradient, SegmentProducts

BACKENDS = ("auto", "loop", "grouped")


class ExpertLinear(nn.Module):
    """One linear map per expert, y = x W_e (+ b_e), applied to rows sorted by expert.

    All experts live in stacked parameters, so the training graph is the same whichever experts a
    batch uses.

    Args:
        num_experts: number of maps.
        in_features, out_features: sizes of x and y.
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

    def forward(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """Apply to each row the map of its expert.

        Args:
            rows: sorted by expert, `(num_rows, in_features)`.
            offsets: end of each expert's segment, `(num_experts,)`, int32; the last is `num_rows`.

        Returns:
            `(num_rows, out_features)`, in the autocast dtype if autocasting.
        """
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if torch.is_autocast_enabled(rows.device.type):
            # Autocast does not know grouped_mm, so both backends cast by hand, alike.
            dtype = torch.get_autocast_dtype(rows.device.type)
            rows, weight = rows.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        if self._use_grouped(rows):
            return self._grouped(rows, offsets, weight, bias)
        return SegmentProducts.apply(rows, weight, bias, offsets.tolist())

    def _use_grouped(self, rows: Tensor) -> bool:
        if self.backend == "loop":
            return False
        sizes = self.in_features, self.out_features
        possible = (
            hasattr(F, "grouped_mm")
            and rows.dtype in (torch.bfloat16, torch.float16, torch.float32)
            and all(size * rows.element_size() % 16 == 0 for size in sizes)
        )
        if self.backend == "auto":
            return possible and rows.is_cuda
        requirement = (
            f"auto or loop for {rows.dtype} experts of {sizes[0]} x {sizes[1]} with torch "
            f"{torch.__version__} (grouped_mm needs float32 or less and sizes in multiples of 16 "
            "bytes)"
        )
        check(possible, "expert_backend", requirement, self.backend)
        return True

    @staticmethod
    def _grouped(rows: Tensor, offsets: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        product = F.grouped_mm(ContiguousGradient.apply(rows), weight, offs=offsets)
        product = ContiguousGradient.apply(product)
        if bias is None:
            return product
        row_index = torch.arange(rows.shape[0], device=rows.device, dtype=offsets.dtype)
        return product + bias[torch.searchsorted(offsets, row_index, right=True)]

    def extra_repr(self) -> str:
        return (
            f"num_experts={self.num_experts}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, {self.backend}"
        )
