"""The differentiable neural computer as plain loops over cells, heads and components.

Graves et al. 2016, Methods, with the changes of Csordás and Schmidhuber 2019; for one sentence,
with the parameters of `sut_fairseq.modules.recurrent.dnc.DNC` by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-6

Vector = list  # of numbers that torch can differentiate
Matrix = list


@dataclass(frozen=True)
class Sizes:
    num_cells: int
    num_heads: int
    word_dim: int
    masked: bool = True
    erased: bool = True
    sharpened: bool = True


def linear(weight: Tensor, bias: Tensor, x: Sequence[Tensor]) -> Vector:
    return [
        sum(weight[row, column] * value for column, value in enumerate(x)) + bias[row]
        for row in range(len(weight))
    ]


def lstm_cell(
    parameters: Mapping[str, Tensor], x: Sequence[Tensor], hidden: Vector, cell: Vector
) -> tuple[Vector, Vector]:
    """torch's order of gates: input, forget, new, output."""
    ways = [
        linear(parameters[f"weight_{kind}"], parameters[f"bias_{kind}"], values)
        for kind, values in (("ih", x), ("hh", hidden))
    ]
    total = [a + b for a, b in zip(*ways)]
    size = len(hidden)
    gate_in, forget, new, out = (total[size * k : size * (k + 1)] for k in range(4))
    cells = [
        torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        for i, f, g, c in zip(gate_in, forget, new, cell)
    ]
    return [torch.sigmoid(o) * torch.tanh(c) for o, c in zip(out, cells)], cells


def softmax(values: Sequence[Tensor]) -> Vector:
    total = sum(torch.exp(value) for value in values)
    return [torch.exp(value) / total for value in values]


def oneplus(x: Tensor) -> Tensor:
    return 1 + torch.log(1 + torch.exp(x))


def norm(x: Sequence[Tensor]) -> Tensor:
    return torch.sqrt(sum(value * value for value in x) + EPSILON)


def look_up(cells: Matrix, key: Vector, strength: Tensor, mask: Vector) -> Vector:
    """C(M, k, beta, m): softmax of beta times the cosine of the masked key and cells."""
    scores = []
    for cell in cells:
        masked_key = [k * m for k, m in zip(key, mask)]
        masked_cell = [c * m for c, m in zip(cell, mask)]
        product = sum(a * b for a, b in zip(masked_key, masked_cell))
        scores.append(strength * product / (norm(masked_key) * norm(masked_cell)))
    return softmax(scores)


def allocation(usage: Vector) -> Vector:
    """a[phi_j] = (1 - u[phi_j]) prod_{i < j} u[phi_i], phi ascending in usage."""
    result = [None] * len(usage)
    all_before_in_use = torch.ones(())
    for cell in sorted(range(len(usage)), key=lambda n: usage[n].item()):
        result[cell] = (1 - usage[cell]) * all_before_in_use
        all_before_in_use = all_before_in_use * usage[cell]
    return result


def sharpen(weights: Vector, sharpness: Tensor) -> Vector:
    powers = [(weight + EPSILON) ** sharpness for weight in weights]
    return [power / sum(powers) for power in powers]


class Parts:
    """Splits the controller's output vector into its parts, in the order of the package."""

    def __init__(self, values: Vector) -> None:
        self.values = values
        self.position = 0

    def take(self, count: int) -> Vector:
        self.position += count
        return self.values[self.position - count : self.position]

    def rows(self, rows: int, count: int) -> Matrix:
        return [self.take(count) for _ in range(rows)]


def dnc(sentence: Tensor, parameters: Mapping[str, Tensor], sizes: Sizes) -> Tensor:
    """Output after the last word of one sentence `(length, input_dim)`: `(hidden_dim,)`."""
    num_cells, num_heads, word_dim = sizes.num_cells, sizes.num_heads, sizes.word_dim
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    controller = {name: parameters[f"controller.{name}"] for name in names}
    zero = torch.zeros((), dtype=sentence.dtype)
    hidden_dim = controller["weight_hh"].shape[1]
    hidden, state = [zero] * hidden_dim, [zero] * hidden_dim
    cells = [[zero] * word_dim for _ in range(num_cells)]
    usage, written, precedence = ([zero] * num_cells for _ in range(3))
    links = [[zero] * num_cells for _ in range(num_cells)]
    reads = [[zero] * num_cells for _ in range(num_heads)]
    words = [zero] * (num_heads * word_dim)
    everyone = range(num_cells)
    for x in sentence:
        hidden, state = lstm_cell(controller, [*x, *words], hidden, state)
        says = Parts(linear(parameters["interface.weight"], parameters["interface.bias"], hidden))
        keys = says.rows(1 + num_heads, word_dim)
        strengths = [oneplus(value) for value in says.take(1 + num_heads)]
        erase = [torch.sigmoid(value) for value in says.take(word_dim)]
        write = says.take(word_dim)
        free = [torch.sigmoid(value) for value in says.take(num_heads)]
        (allocation_gate,), (write_gate,) = says.take(1), says.take(1)
        modes = [softmax(row) for row in says.rows(num_heads, 3)]
        masks = [[zero + 1] * word_dim] * (1 + num_heads)
        if sizes.masked:
            rows = says.rows(1 + num_heads, word_dim)
            masks = [[torch.sigmoid(value) for value in row] for row in rows]
        if sizes.sharpened:
            sharpness = [[oneplus(v) for v in row] for row in says.rows(2, num_heads)]

        retention = [zero + 1] * num_cells
        for head in range(num_heads):
            retention = [retention[n] * (1 - free[head] * reads[head][n]) for n in everyone]
        usage = [(usage[n] + written[n] - usage[n] * written[n]) * retention[n] for n in everyone]
        found = look_up(cells, keys[0], strengths[0], masks[0])
        gate, free_cells = torch.sigmoid(allocation_gate), allocation(usage)
        written = [
            torch.sigmoid(write_gate) * (gate * free_cells[n] + (1 - gate) * found[n])
            for n in everyone
        ]
        cells = [
            [
                cells[n][w] * (retention[n] if sizes.erased else 1) * (1 - written[n] * erase[w])
                + written[n] * write[w]
                for w in range(word_dim)
            ]
            for n in everyone
        ]
        links = [
            [
                zero
                if i == j
                else (1 - written[i] - written[j]) * links[i][j] + written[i] * precedence[j]
                for j in everyone
            ]
            for i in everyone
        ]
        precedence = [(1 - sum(written)) * precedence[n] + written[n] for n in everyone]

        words, before = [], reads
        reads = []
        for head in range(num_heads):
            forward = [sum(links[i][j] * before[head][j] for j in everyone) for i in everyone]
            backward = [sum(links[i][j] * before[head][i] for i in everyone) for j in everyone]
            if sizes.sharpened:
                backward = sharpen(backward, sharpness[0][head])
                forward = sharpen(forward, sharpness[1][head])
            content = look_up(cells, keys[1 + head], strengths[1 + head], masks[1 + head])
            mode = modes[head]
            reads.append(
                [
                    mode[0] * backward[n] + mode[1] * content[n] + mode[2] * forward[n]
                    for n in everyone
                ]
            )
            words += [sum(reads[head][n] * cells[n][w] for n in everyone) for w in range(word_dim)]
    output = linear(parameters["output.weight"], parameters["output.bias"], [*hidden, *words])
    return torch.stack(output)
