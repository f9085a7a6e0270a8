"""The tokenizer: text <-> ids.

    tokenizer = Tokenizer.train("bpe", texts, size=8000)
    ids = tokenizer.encode("we are eating bread")
    text = tokenizer.decode(ids)
    tokenizer.save("tokenizer.json"); tokenizer = Tokenizer.load("tokenizer.json")

Encoding adds no special token: the caller adds `tokenizer.start` or `tokenizer.stop`. No text, whatever it spells,
encodes to a special token other than the unknown one; `encode_special` is for text that is meant to hold some.

A tokenizer that was made elsewhere has a `tokenizer_config.json` beside it, as on the Hugging Face hub. Its key
`clearhead` has the `Roles` of the special tokens; the other keys (`chat_template`, …) are kept as they are.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from tokenizers import Tokenizer as Library
from tokenizers import models

from clearhead.config import TokenizerKind
from clearhead.errors import TextError, nearest
from clearhead.text.safety import check_tokenizer
from clearhead.text.schemes import SCHEMES, SPECIALS, Corpus, byte_level, too_small

# The types of the model and of the decoder in a tokenizer.json -> its kind.
KINDS: dict[tuple[str, str], TokenizerKind] = {
    ("BPE", "Fuse"): "char",
    ("WordLevel", "Sequence"): "word",
    ("BPE", "Metaspace"): "bpe",
    ("BPE", "ByteLevel"): "bytes",
    ("WordPiece", "Sequence"): "wordpiece",
    ("Unigram", "Metaspace"): "unigram",
}
OPENERS: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character
END_OF_TEXT = "<|endoftext|>"  # GPT-2's only special token
LINE = 1 << 20  # maximum characters of a line read at once, so that a file without line ends is not held whole


SHORT = 1000  # characters of a text that takes longer to pass to another thread than to encode
CONFIG = "tokenizer_config.json"  # beside the tokenizer.json of a tokenizer that was made elsewhere
FOREIGN_KINDS: dict[str, TokenizerKind] = {
    "BPE": "bpe",
    "WordLevel": "word",
    "WordPiece": "wordpiece",
    "Unigram": "unigram",
}
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte of a character that a SentencePiece vocabulary lacks


@dataclass(frozen=True)
class Roles:
    """What the special tokens of a tokenizer that was made elsewhere are for, as ids."""

    pad: int
    unknown: int
    start: int
    stop: int
    mask: int
    cls: int
    size: int  # tokens that the model has, which may be more than the tokenizer names
    prefix: tuple[int, ...] = ()  # what its model expects before every text
    suffix: tuple[int, ...] = ()  # and after it
    forced: tuple[int, ...] = ()  # what every text that it writes begins with, after the start token
    banned: tuple[int, ...] = ()  # what it must never write
    stops: tuple[int, ...] = ()  # what ends a text too, such as the end of a turn in a chat
    ends: bool = True  # whether the stop token ends a text; a model without one writes until it is told to stop


class Tokenizer:
    """A trained vocabulary and its scheme."""

    pad: int  # fills the end of a short sequence
    unknown: int  # replaces text that the vocabulary lacks
    start: int  # the first input of a decoder
    stop: int  # the last output of a decoder
    mask: int  # replaces a token that is to be predicted
    cls: int  # its vector represents the whole sequence
    prefix: tuple[int, ...] = ()  # of every text, for a model that was trained elsewhere
    suffix: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()  # tokens that every generated text begins with
    banned: tuple[int, ...] = ()  # tokens that are never generated
    stops: tuple[int, ...] = ()  # tokens that end a generated text, beside the stop token
    ends: bool = True  # whether a generated text ends at the stop token
    _size = 0  # tokens of the model, if these are not the tokenizer's own

    def __init__(self, library: Library, origin: str = "tokenizer", config: dict[str, Any] | None = None):
        self.config = config or {}  # of a tokenizer that was made elsewhere
        if "clearhead" in self.config:
            self._use_foreign(library, Roles(**self.config["clearhead"]))
            return
        vocabulary = library.get_vocab(with_added_tokens=True)
        ids: list[int] = []
        if all(vocabulary.get(token) == index for index, token in enumerate(SPECIALS)):
            ids = [*range(len(SPECIALS))]
        elif END_OF_TEXT in vocabulary:  # takes all these roles
            ids = [vocabulary[END_OF_TEXT]] * len(SPECIALS)
        kind = KINDS.get((type(library.model).__name__, type(library.decoder).__name__))
        if not ids or kind is None:
            raise TextError(f"{origin} is a tokenizer, but not one that clearhead made; train one with Tokenizer.train")
        self._library = library
        self._library.encode_special_tokens = True  # text that spells a special token stays text
        self.pad, self.unknown, self.start, self.stop, self.mask, self.cls = ids
        self._special = {self.pad, self.start, self.stop, self.mask, self.cls}
        self.kind: TokenizerKind = kind

    def _use_foreign(self, library: Library, roles: Roles) -> None:
        library.encode_special_tokens = True
        self._library, self._size = library, roles.size
        self.pad, self.unknown, self.start = roles.pad, roles.unknown, roles.start
        self.stop, self.mask, self.cls = roles.stop, roles.mask, roles.cls
        self.prefix, self.suffix = tuple(roles.prefix), tuple(roles.suffix)
        self.forced, self.banned, self.ends = tuple(roles.forced), tuple(roles.banned), roles.ends
        self.stops = tuple(roles.stops)
        self._special = {index for index, each in library.get_added_tokens_decoder().items() if each.special}
        kind = FOREIGN_KINDS[type(library.model).__name__]
        decoder = b"" if library.decoder is None else library.decoder.__getstate__()  # its JSON
        self.kind = "bytes" if kind == "bpe" and b'"ByteLevel"' in decoder else kind

    @classmethod
    def foreign(cls, text: str, roles: Roles, config: dict[str, Any], origin: str = "tokenizer") -> Tokenizer:
        """A tokenizer that was made elsewhere, from the text of its tokenizer.json and its tokenizer_config.json."""
        values = {name: list(each) if isinstance(each, tuple) else each for name, each in asdict(roles).items()}
        return cls._from_json(text, origin, {**config, "clearhead": values})

    @classmethod
    def train(
        cls, kind: TokenizerKind, texts: Iterable[str], *, size: int = 8000, lowercase: bool = False
    ) -> Tokenizer:
        """Learn a vocabulary of at most `size` tokens; the texts are read once and may be a generator."""
        _check_request(kind, texts, size)
        corpus = Corpus(texts, lowercase=lowercase)
        try:
            library = SCHEMES[kind](corpus, size)
        except UnicodeEncodeError as problem:
            half = problem.object[problem.start]
            raise TextError(f"the texts hold {half!r}, which is half a character; read them as UTF-8") from None
        count = library.get_vocab_size()
        if not corpus.alphabet or count <= len(SPECIALS):
            raise TextError("the texts to train a tokenizer on hold no words; give it some text")
        if count > size:
            raise too_small(size, count)
        library.add_special_tokens([*SPECIALS])
        return cls(library)

    @classmethod
    def train_from_files(
        cls, kind: TokenizerKind, paths: Iterable[str | Path], *, size: int = 8000, lowercase: bool = False
    ) -> Tokenizer:
        """Learn a vocabulary from the lines of plain text files, which may be compressed (.gz, .xz)."""
        lines = chain.from_iterable(read_lines(Path(path)) for path in paths)
        return cls.train(kind, lines, size=size, lowercase=lowercase)

    @classmethod
    def from_gpt2(cls, encoder: str | Path, merges: str | Path) -> Tokenizer:
        """GPT-2's vocabulary, from its published `encoder.json` and `vocab.bpe` (compressed or not)."""
        try:
            vocabulary = json.loads("".join(read_lines(Path(encoder))))
            pairs = [tuple(line.split()) for line in read_lines(Path(merges)) if not line.startswith("#version")]
            model = models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in pairs])
        except (ValueError, TypeError) as problem:
            raise TextError(f"{encoder} and {merges} are not GPT-2's vocabulary and merges: {problem}") from None
        library = byte_level(model, Corpus((), lowercase=False))
        library.add_special_tokens([END_OF_TEXT])
        return cls(library)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a `tokenizer.json` that `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as problem:
            raise TextError(f"cannot read the tokenizer {path}: {problem.strerror or problem}") from None
        except UnicodeDecodeError:
            raise TextError(f"{path} is not a tokenizer.json: it is not a text file") from None
        return cls._from_json(text, str(path), _read_config(Path(path).with_name(CONFIG)))

    @classmethod
    def _from_json(cls, text: str, origin: str = "tokenizer", config: dict[str, Any] | None = None) -> Tokenizer:
        with library_errors(f"{origin} is not a tokenizer.json"):
            parts = json.loads(text)
            check_tokenizer(parts)
            library = _read_bpe(parts) or Library.from_str(text)
        library.no_padding()
        library.no_truncation()
        return cls(library, origin, config)

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json` atomically, and `tokenizer_config.json` beside it if it has one."""
        path = Path(path)
        if self.config:
            _write(path.with_name(CONFIG), json.dumps(self.config, ensure_ascii=False, indent=2) + "\n")
        _write(path, self._library.to_str(pretty=not self.config))  # a foreign vocabulary may be large

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        return Tokenizer._from_json, (self._library.to_str(), "tokenizer", self.config)

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, without special tokens."""
        return self.encode_batch([text])[0]

    def framed(self, ids: Sequence[int], longest: int, first: tuple[int, ...] = ()) -> list[int]:
        """The start of a text between what its model expects around it: `first` where the tokenizer is our own."""
        before = self.prefix or first
        room = max(0, longest - len(before) - len(self.suffix))
        return [*before, *ids[:room], *self.suffix]

    @property
    def end(self) -> int | None:
        """The token that ends a generated text; None if no token does."""
        return self.stop if self.ends else None

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The pieces of each word of a sentence; a foreign byte-level tokenizer sees the space before it."""
        spaced = self.config and self.kind == "bytes"
        return self.encode_batch([f" {word}" for word in words] if spaced else list(words))

    @property
    def ends_source(self) -> bool:
        """Whether a translator reads the stop token after its source, as ours always do."""
        return not self.config or bool(self.suffix)

    def encode_special(self, text: str) -> list[int]:
        """The token ids of a text in which a special token may be spelled out: a chat, or a text with a mask."""
        return self._with_special.encode(text, add_special_tokens=False).ids

    @cached_property
    def _with_special(self) -> Library:
        library = Library.from_str(self._library.to_str())
        library.encode_special_tokens = False
        return library

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of many texts, on all cores; of one short text in this thread."""
        with library_errors("the tokenizer cannot encode this text"):
            try:
                if len(texts) == 1 and len(texts[0]) < SHORT:
                    return [self._library.encode(texts[0], add_special_tokens=False).ids]
                return [encoding.ids for encoding in self._library.encode_batch_fast(texts, add_special_tokens=False)]
            except TypeError:
                wrong = next((text for text in texts if not isinstance(text, str) or _SURROGATE.search(text)), None)
                raise TextError(f"cannot encode {wrong!r}: it is not a text of whole characters") from None

    def encode_with_text(self, texts: Sequence[str]) -> list[tuple[list[int], list[str]]]:
        """The token ids of many texts, and what each token stands for in its text: the letters of an unknown word."""
        found = []
        for text, ids in zip(texts, self.encode_batch(texts), strict=True):
            offsets = self._library.encode(text, add_special_tokens=False).offsets
            found.append((ids, [text[start:end] for start, end in offsets]))
        return found

    def decode(self, ids: Iterable[int], keep_special: bool = False) -> str:
        """The text of token ids; special tokens except the unknown one are left out, unless `keep_special`."""
        with library_errors("the tokenizer cannot decode these tokens"):  # in this thread, unlike a batch
            return self._library.decode(self._shown(ids, keep_special), skip_special_tokens=False)

    @cached_property
    def token_texts(self) -> list[str] | None:
        """The text of every token, where any tokens decode to their texts side by side; else None."""
        if self.config or self.kind != "char":
            return None
        return self.decode_batch([index] for index in range(len(self)))

    def decode_batch(self, rows: Iterable[Iterable[int]], keep_special: bool = False) -> list[str]:
        """The texts of many rows of token ids, on all cores."""
        shown = [self._shown(row, keep_special) for row in rows]
        with library_errors("the tokenizer cannot decode these tokens"):
            return self._library.decode_batch(shown, skip_special_tokens=False)

    def _shown(self, ids: Iterable[int], keep_special: bool) -> list[int]:
        silent = set[int]() if keep_special else self._special
        return [index for index in map(int, ids) if index not in silent]

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text as strings for display."""
        return self.pieces(self.encode(text))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The tokens of ids as strings for display; a byte that is not a character is shown as �."""
        pieces = [self.token(int(index)) for index in ids]
        if not self.config and self.kind != "bytes":
            return pieces
        if self.kind != "bytes":
            return [_BYTE.sub(lambda byte: bytes.fromhex(byte[1]).decode(errors="replace"), each) for each in pieces]
        return [self._library.decoder.decode([piece]) for piece in pieces]

    def word_ids(self) -> list[int]:
        """The ids of words, frequent ones first, without special tokens and punctuation."""
        tokens = self.pieces(range(len(self)))
        return [i for i, token in enumerate(tokens) if token not in SPECIALS and any(map(str.isalnum, token))]

    def id(self, token: str) -> int:
        """The id of a token; the unknown id if the vocabulary lacks it."""
        index = self._library.token_to_id(token)
        return self.unknown if index is None else index

    def token(self, id: int) -> str:
        """The token with this id, exactly as in the vocabulary."""
        token = self._library.id_to_token(id) if 0 <= id < len(self) else None
        if token is None and self.config and 0 <= id < len(self):
            return f"<{id}>"  # a row of the embedding that no text uses
        if token is None:
            raise TextError(f"there is no token {id}: this vocabulary has {len(self)}, counted from 0")
        return token

    @property
    def max_id(self) -> int:
        """The highest id of a token."""
        return max(self._library.get_vocab(with_added_tokens=True).values())

    def __len__(self) -> int:
        return self._size or self._library.get_vocab_size()

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {len(self)} tokens)"


def _read_bpe(parts: dict[str, Any]) -> Library | None:
    """The tokenizer of a parsed tokenizer.json with byte pairs; None where the library has to read the text itself.

    The library takes twice the time and memory to read a large vocabulary from text as from Python objects. So it reads
    the text without it, except for the added tokens, whose ids it takes from the vocabulary.
    """
    model, added = parts["model"], parts.get("added_tokens") or []
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if model.get("type") != "BPE" or not model.keys() <= _BPE or not vocabulary or not isinstance(merges, list):
        return None
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in merges):  # older files have strings
        return None
    known = {each["content"]: vocabulary[each["content"]] for each in added if each["content"] in vocabulary}
    library = Library.from_str(json.dumps({**parts, "model": {**model, "vocab": known, "merges": []}}))
    settings = {name: model[name] for name in _BPE - _BPE_PARTS if model.get(name) is not None}
    library.model = models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in merges], **settings)
    right = all(library.token_to_id(each["content"]) == each["id"] for each in added)
    return library if right and len(known) == len(added) else None


_BPE_PARTS = {"type", "vocab", "merges"}
_BPE = _BPE_PARTS | {
    *("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"),
    *("fuse_unk", "byte_fallback", "ignore_merges"),
}


def _write(path: Path, text: str) -> None:
    """Write a text file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise TextError(f"cannot write the tokenizer {path}: {problem.strerror or problem}") from None


def _read_config(path: Path) -> dict[str, Any] | None:
    """The tokenizer_config.json of a tokenizer that was made elsewhere; None where there is none."""
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        Roles(**values["clearhead"])
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise TextError(f"{path} is damaged ({problem}); import the model again") from None
    config: dict[str, Any] = values
    return config


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn the errors of a tokenizer.json that the library cannot use into a TextError."""
    try:
        yield
    except TextError:
        raise
    except BaseException as problem:
        # The library raises plain exceptions, and one that is not even an Exception where its own code failed.
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise TextError(f"{what}: {problem}") from None


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, compressed or not; a very long line in parts."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8") as file:
            yield from iter(partial(file.readline, LINE), "")
    except UnicodeDecodeError as problem:
        byte = problem.object[problem.start]
        raise TextError(f"{path} is not UTF-8 text: byte {problem.start} is {byte:#x}") from None
    except (OSError, EOFError, lzma.LZMAError) as problem:
        raise TextError(f"cannot read {path}: {getattr(problem, 'strerror', None) or problem}") from None


def _check_request(kind: str, texts: Iterable[str], size: int) -> None:
    """Raise an error for arguments that cannot work, before any text is read."""
    if kind not in SCHEMES:
        raise TextError(f"unknown tokenizer kind {kind}; {nearest(kind, SCHEMES)}")
    if isinstance(texts, str):
        raise TextError("expected several texts to train on and got one string; put it into a list")
    if size <= len(SPECIALS):
        raise too_small(size, len(SPECIALS) + 1)
