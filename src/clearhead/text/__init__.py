"""Text <-> ids: tokenizers, vocabularies, special tokens."""

from __future__ import annotations

from clearhead.text.schemes import CLASS, MASK, PAD, SPECIALS, START, STOP, UNKNOWN
from clearhead.text.sentences import split_chunks, split_sentences
from clearhead.text.tokenizer import Roles, Tokenizer

__all__ = ["CLASS", "MASK", "PAD", "SPECIALS", "START", "STOP", "UNKNOWN"]
__all__ += ["Roles", "Tokenizer", "split_chunks", "split_sentences"]
