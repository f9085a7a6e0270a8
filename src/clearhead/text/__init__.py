"""Text <-> ids: tokenizers, vocabularies, special tokens."""

from __future__ import annotations

from clearhead.text.pieces import pieces
from clearhead.text.special import CLASS, MASK, PAD, SPECIALS, START, STOP, UNKNOWN
from clearhead.text.tokenizer import Tokenizer

__all__ = ["CLASS", "MASK", "PAD", "SPECIALS", "START", "STOP", "UNKNOWN", "Tokenizer", "pieces"]
