"""Models of the contextual retrieval task: one attention layer of any kind (COMP C.1)."""

# No `from __future__ import annotations` here: fairseq reads the fields' types at run time.

from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from fairseq.tasks import FairseqTask
from torch import Tensor

from sut_fairseq._process import prepare_process
from sut_fairseq.errors import InputError
from sut_fairseq.models import _kinds
from sut_fairseq.models._assembly import build_self_attention, check_looks_nowhere, head_dim
from sut_fairseq.models._axis import Side
from sut_fairseq.models._config import AttentionOptions, RouterOptions
from sut_fairseq.models._embedding import refuse_float16_on_cpu
from sut_fairseq.models._given import complete, warn_of_unread
from sut_fairseq.models._pretrained import Pretrained
from sut_fairseq.models.architectures import register_architecture
from sut_fairseq.modules.contextual_retrieval import RetrievalNetwork
from sut_fairseq.modules.observer import Look


@dataclass
class ContextualRetrievalModelConfig(RouterOptions, AttentionOptions):
    """Options of attention; those of a decoder exist but are unused."""

    encoder_embed_dim: int = field(default=64, metadata={"help": "size of an object's state"})
    encoder_attention_heads: int = field(default=2, metadata={"help": "heads, or searches"})
    attention_distribution: str = field(
        default="others", metadata={"help": _kinds.DISTRIBUTIONS.help}
    )
    attention_positions: str = field(default="none", metadata={"help": _kinds.POSITIONS.help})
    attention_biases: ChoiceEnum(list(_kinds.ATTENTION_BIASES)) = field(  # type: ignore[valid-type]
        default="all", metadata={"help": "which projections of attention have biases"}
    )


@register_model("contextual_retrieval", dataclass=ContextualRetrievalModelConfig)
class ContextualRetrievalModel(Pretrained):
    """`RetrievalNetwork` as a fairseq model.

    `forward` returns predictions `(batch, num_objects)` and an empty dict.
    """

    def __init__(self, network: RetrievalNetwork) -> None:
        super().__init__()
        self.network = network

    @classmethod
    def build_model(
        cls, cfg: ContextualRetrievalModelConfig, task: FairseqTask
    ) -> "ContextualRetrievalModel":
        """Build the model that the options describe.

        Raises:
            InputError: if an option has a value that is not allowed, or for another task.
        """
        prepare_process()
        num_features: int | None = getattr(task, "num_features", None)
        if num_features is None:
            raise InputError(
                "a contextual_retrieval model needs --task contextual_retrieval (and, in training, "
                "--criterion absolute_error)."
            )
        cfg = complete(ContextualRetrievalModelConfig, cfg)
        check_looks_nowhere(cfg)
        embed_dim, num_heads = cfg.encoder_embed_dim, cfg.encoder_attention_heads
        size = head_dim(cfg.attention_head_dim, embed_dim, num_heads, "encoder")
        side = Side(
            name="encoder",
            embed_dim=embed_dim,
            source_dim=embed_dim,
            num_steps=1,
            num_heads=num_heads,
            head_dim=size,
            hidden_dim=embed_dim,
            block="none",
            pre_norm=False,
            halting="none",
        )
        network = RetrievalNetwork(
            build_self_attention(cfg, side),
            num_features=num_features,
            embed_dim=embed_dim,
            extra_dim=size if cfg.attention_value_dim is None else cfg.attention_value_dim,
        )
        warn_of_unread(cfg)
        return cls(network)

    def forward(self, objects: Tensor, look: Look | None = None) -> tuple[Tensor, dict[str, Any]]:
        """Predict one number for each object; see `RetrievalNetwork.forward`."""
        weight = next(self.network.parameters())
        refuse_float16_on_cpu(weight)
        return self.network(objects.to(weight.dtype), look), {}


# Table 6 of the paper: 2 searches, 4 retrievals, states of 64; options set larger numbers.
CONTEXTUAL_RETRIEVAL: dict[str, dict[str, Any]] = {
    "contextual_retrieval_multihead": dict(attention_kind="multihead"),
    "contextual_retrieval_compositional": dict(
        attention_kind="compositional", attention_retrievals=4, attention_value_dim=16
    ),
}
for _name, _options in CONTEXTUAL_RETRIEVAL.items():
    register_architecture("contextual_retrieval", _name, _options)
