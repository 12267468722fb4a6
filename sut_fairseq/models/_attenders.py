"""The attenders of a recurrent model: the list that options, help and errors come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sut_fairseq.models._axis import Axis, Kind
from sut_fairseq.modules.recurrent.attenders.additive import AdditiveAttender
from sut_fairseq.modules.recurrent.attenders.interface import Attender, ContentAttender
from sut_fairseq.modules.recurrent.attenders.location import LocationAttender
from sut_fairseq.modules.recurrent.attenders.mix import MixAttender
from sut_fairseq.modules.recurrent.attenders.multiplicative import MultiplicativeAttender
from sut_fairseq.modules.recurrent.attenders.scaled_dot import ScaledDotAttender
from sut_fairseq.modules.recurrent.attenders.transformer import TransformerAttender
from sut_fairseq.modules.recurrent.attenders.transformer_xl import TransformerXLAttender

if TYPE_CHECKING:
    from sut_fairseq.models.recurrent_translation import RecurrentTranslationConfig as Config

_CONTENT: dict[str, Kind[Callable[[Config], ContentAttender]]] = {
    "additive": Kind(
        "a layer of query and key (Bahdanau et al.)",
        lambda config: AdditiveAttender(config.encoder_hidden_size),
    ),
    "multiplicative": Kind(
        "key times projected query (Luong et al.)",
        lambda config: MultiplicativeAttender(config.encoder_hidden_size),
    ),
    "scaled-dot": Kind("key times query", lambda config: ScaledDotAttender()),
    "transformer": Kind("with absolute sinusoids", lambda config: TransformerAttender()),
    "transformer-xl": Kind(
        "with relative sinusoids",
        lambda config: TransformerXLAttender(config.encoder_hidden_size),
    ),
}

CONTENT_ATTENDERS: Axis[Callable[[Config], ContentAttender]] = Axis(
    "what the mix attender mixes with location", _CONTENT, ContentAttender
)


def _location(config: Config) -> LocationAttender:
    return LocationAttender(config.encoder_hidden_size, config.location_hidden_size)


def _mix(config: Config) -> MixAttender:
    build_content = CONTENT_ATTENDERS.builder("mix_content", config.mix_content)
    return MixAttender(config.encoder_hidden_size, build_content(config), _location(config))


ATTENDERS: Axis[Callable[[Config], Attender]] = Axis(
    "where the decoder looks",
    {
        **_CONTENT,
        "location": Kind("by position alone", _location),
        "mix": Kind("by position and by content", _mix),
    },
    Attender,
)
