"""A tokenizer of the user's own class: any object with `encode(text) -> ids`, `decode(ids) -> text` and a size.

Its ids stay as they are; the special tokens that models need come after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from clearhead.errors import TextError
from clearhead.text.schemes import SPECIALS
from clearhead.text.tokenizer import Tokenizer

SIZES = ("get_vocab_size", "vocab_size", "n_vocab", "__len__")  # where an object may have its size


def as_tokenizer(given: Any) -> Tokenizer:
    """A tokenizer of ours as it is, one of the library `tokenizers` if ours can be made of it, else `OwnTokenizer`."""
    if isinstance(given, Tokenizer):
        return given
    if isinstance(given, Library):
        try:
            return Tokenizer(Library.from_str(given.to_str()))
        except TextError:
            pass  # one with other special tokens is used as it is
    return OwnTokenizer(given)


class OwnTokenizer(Tokenizer):
    """Wraps an object; nothing of it is saved, so whoever loads the model gives it again."""

    def __init__(self, given: Any):
        if not callable(getattr(given, "encode", None)) or not callable(getattr(given, "decode", None)):
            raise TextError(f"{type(given).__name__} is no tokenizer: it needs encode(text) and decode(ids)")
        self.given, self.size, self.kind, self.config = given, _size(given), "word", {}
        ids = range(self.size, self.size + len(SPECIALS))
        self.pad, self.unknown, self.start, self.stop, self.mask, self.cls = ids

    def __reduce__(self) -> tuple[Callable[[Any], Tokenizer], tuple[Any]]:
        return OwnTokenizer, (self.given,)

    def save(self, path: str | Path) -> None:
        """An object of any class cannot be written to a file."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> list[int]:
        found = self.given.encode(text)
        ids = [int(index) for index in getattr(found, "ids", found)]
        if wrong := next((index for index in ids if not 0 <= index < self.size), None):
            raise TextError(
                f"{type(self.given).__name__} gave the id {wrong} for {text[:40]!r}, and it has {self.size} tokens"
            )
        return ids

    def encode_with_text(self, texts: Sequence[str]) -> list[tuple[list[int], list[str]]]:
        return [(ids, self.pieces(ids)) for ids in self.encode_batch(texts)]

    def decode(self, ids: Iterable[int], keep_special: bool = False) -> str:
        return self._decode([int(index) for index in ids], keep_special)

    def decode_batch(self, rows: Iterable[Iterable[int]], keep_special: bool = False) -> list[str]:
        return [self._decode([int(index) for index in row], keep_special) for row in rows]

    def _decode(self, ids: Sequence[int], keep_special: bool) -> str:
        if keep_special and any(index >= self.size for index in ids):
            return "".join(self.pieces(ids))
        return str(self.given.decode([index for index in ids if index < self.size]))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self.token(int(index)) for index in ids]

    def id(self, token: str) -> int:
        if token in SPECIALS:
            return self.size + SPECIALS.index(token)
        ids = self._encode(token)
        return ids[0] if len(ids) == 1 else self.unknown

    def token(self, id: int) -> str:
        if not 0 <= id < len(self):
            raise TextError(f"there is no token {id}: this vocabulary has {len(self)}, counted from 0")
        return str(self.given.decode([id])) if id < self.size else SPECIALS[id - self.size]

    @property
    def max_id(self) -> int:
        return len(self) - 1

    def __len__(self) -> int:
        return self.size + len(SPECIALS)

    def __repr__(self) -> str:
        return f"OwnTokenizer({type(self.given).__name__}, {len(self)} tokens)"


def _size(given: Any) -> int:
    for name in SIZES:
        found = getattr(given, name, None)
        if found is not None:
            return int(found() if callable(found) else found)
    raise TextError(f"{type(given).__name__} has no size: a tokenizer needs __len__, vocab_size or get_vocab_size()")
