"""The network of the contextual retrieval task: one attention layer between two perceptrons."""

from __future__ import annotations

from torch import Tensor, nn

from sut_fairseq.modules.attention.interface import Attention
from sut_fairseq.modules.attention.whole import attend_within
from sut_fairseq.modules.observer import Look


class RetrievalNetwork(nn.Module):
    """Objects attend to each other once, without a residual connection (COMP C.1).

    h = MLP(object); y = MLP(attention(h) + U V h). What an object prefers to retrieve is encoded in
    its own features, which it does not attend to: hence U V h, with the paper's extra value V h.
    The paper concatenates V h to the retrieved values, before W_o; U is its columns of W_o.

    Args:
        attention: between objects; with the distribution `others`, no object attends to itself.
        num_features: number of features of an object.
        embed_dim: size of states, and of the hidden layers of both perceptrons.
        extra_dim: size of the extra value V h.
    """

    def __init__(
        self, attention: Attention, *, num_features: int, embed_dim: int, extra_dim: int
    ) -> None:
        super().__init__()
        self.encode = _perceptron(num_features, embed_dim, embed_dim)
        self.attention = attention
        self.extra_value = nn.Linear(embed_dim, extra_dim)
        self.extra_output = nn.Linear(extra_dim, embed_dim, bias=False)
        self.decode = _perceptron(embed_dim, embed_dim, 1)

    def forward(self, objects: Tensor, look: Look | None = None) -> Tensor:
        """Predict one number for each object.

        Args:
            objects: `(batch, num_objects, num_features)`.
            look: receives what attention computes, object by object, see `Observer.saw`.

        Returns:
            `(batch, num_objects)`.
        """
        states = self.encode(objects)
        attended, _ = attend_within(self.attention, states, look)
        attended = attended + self.extra_output(self.extra_value(states))
        return self.decode(attended).squeeze(-1)


def _perceptron(input_dim: int, hidden_dim: int, output_dim: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(input_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, output_dim)
    )
