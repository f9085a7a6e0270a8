"""CamemBERT: RoBERTa with another vocabulary."""

from __future__ import annotations

from clearhead.interop.families.roberta import Roberta
from clearhead.interop.family import FAMILIES


@FAMILIES.register("camembert")
class Camembert(Roberta):
    """Encoders with the parts of RoBERTa."""
