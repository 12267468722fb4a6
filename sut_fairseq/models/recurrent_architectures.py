"""Named architectures of recurrent translation models: those of LOC Table 3 and Figures 6 to 8."""

from __future__ import annotations

# Imported so that the model that the architectures belong to is registered first.
from sut_fairseq.models import recurrent_translation  # noqa: F401
from sut_fairseq.models._attenders import ATTENDERS
from sut_fairseq.models.architectures import register_architecture

RECURRENT = {f"location_{name.replace('-', '_')}": {"attender": name} for name in ATTENDERS}
# Otherwise its name would be `location_location`.
RECURRENT["location"] = RECURRENT.pop("location_location")

for _name, _options in RECURRENT.items():
    register_architecture("recurrent_translation", _name, _options)
