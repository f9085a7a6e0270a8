"""XLM-RoBERTa: RoBERTa with another vocabulary."""

from __future__ import annotations

from clearhead.interop.families.roberta import Roberta
from clearhead.interop.family import FAMILIES


@FAMILIES.register("xlm_roberta")
class XlmRoberta(Roberta):
    """Encoders with the parts of RoBERTa."""
