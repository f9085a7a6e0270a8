"""The tokenizer inside a GGUF file, as a tokenizer.json.

tokenizer.ggml.model    gpt2    byte-level BPE; `tokenizer.ggml.pre` names how text is first cut
                        llama   SentencePiece BPE: merges follow from the scores of the pieces
                        t5      SentencePiece unigrams, with a table of characters that are replaced
                        bert    WordPiece; a piece that begins a word is marked ▁, where BERT marks the others ##
tokenizer.ggml.tokens, .scores, .merges, .token_type (normal 1, unknown 2, control 3, user-defined 4, byte 6)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from clearhead.errors import RunError, nearest
from clearhead.interop.checkpoint import TokenizerFiles
from clearhead.interop.sentencepiece import UNIGRAM, UNKNOWN, Pieces, pieces_library

CONTROL, USER_DEFINED = 3, 4
SPACE = "▁"
ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token", "mask": "mask_token"}
BERT_ROLES = {"bos_token": "cls_token", "eos_token": "sep_token", "seperator_token": "sep_token"}

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
NUMBERS_OF_3 = rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}{{1,3}}|{MARKS}"
NUMBERS_OF_1 = rf"{CONTRACTIONS}|{LETTERS}|\p{{N}}|{MARKS}"
PUNCTUATION = r" ?[^(\s|.,!?…。，、।۔،)]+"


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _digits() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _falcon() -> Any:
    cut = pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")
    marks, digits = pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=False)
    return pre_tokenizers.Sequence([marks, _gpt2(), digits, cut])


def _pattern(regex: str) -> Callable[[], Any]:
    def make() -> Any:
        cut = pre_tokenizers.Split(Regex(regex), "isolated")
        return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    return make


PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("gpt-2", "gpt2", "default", "phi-2", "mpt", "olmo", "jina-es", "jina-de", "roberta-bpe"), _gpt2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _digits),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx", "falcon3"), _pattern(NUMBERS_OF_3)),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"), _pattern(NUMBERS_OF_1)),
    "falcon": _falcon,
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _pattern(PUNCTUATION)),
}
IGNORE_MERGES = {"llama-bpe", "llama3", "llama-v3", "smaug-bpe", "falcon3"}  # a whole word that is a token stays one
NORMALIZED = {"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"}  # to NFC
WITH_BOS = {"llama-bpe", "llama3", "llama-v3"}  # unless the file says otherwise


def read_tokenizer(metadata: Mapping[str, Any], path: Path) -> TokenizerFiles | None:
    """The tokenizer of a model's metadata; None if it has none."""
    ggml = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items() if "tokenizer." in key}
    kind = ggml.get("model", "none")
    if kind == "none":
        return None
    if kind not in MODELS:
        raise RunError(f"{path} has a tokenizer of the kind {kind}; Clearhead reads {', '.join(MODELS)}")
    tokens = ggml.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise RunError(f"{path} is damaged: it has no list of tokens")
    types = ggml.get("token_type", [1] * len(tokens))
    if len(types) != len(tokens):
        raise RunError(f"{path} is damaged: it has {len(tokens):,} tokens and the types of {len(types):,}")
    special = _special(ggml, tokens, path)
    if kind == "bert":
        special = {BERT_ROLES.get(role, role): token for role, token in special.items()}
    try:
        library = MODELS[kind](ggml, tokens, types, special, path)
    except RunError:
        raise
    except Exception as problem:  # the library raises plain exceptions
        raise RunError(f"{path}: its tokenizer cannot be used: {problem}") from None
    add_bos, add_eos = _ends(ggml, kind)
    add_ends(library, special, add_bos, add_eos, bert=kind == "bert")
    return TokenizerFiles(library.to_str(), special, add_bos, add_eos, metadata.get("tokenizer.chat_template"))


def _special(ggml: Mapping[str, Any], tokens: Sequence[str], path: Path) -> dict[str, str]:
    special = {}
    for role, name in [*ROLES.items(), ("seperator", "sep_token"), ("cls", "cls_token")]:
        index = ggml.get(f"{role}_token_id")
        if index is not None and not 0 <= index < len(tokens):
            raise RunError(f"{path} is damaged: its {name} is token {index:,} of {len(tokens):,}")
        if index is not None:
            special[name] = tokens[index]
    return special


def _ends(ggml: Mapping[str, Any], kind: str) -> tuple[bool, bool]:
    """Whether a text begins with bos and ends with eos; the defaults are llama.cpp's."""
    if kind == "bert":
        return True, True
    usual = kind == "llama" or ggml.get("pre") in WITH_BOS
    return bool(ggml.get("add_bos_token", usual)), bool(ggml.get("add_eos_token", kind == "t5"))


def add_ends(library: Library, special: Mapping[str, str], add_bos: bool, add_eos: bool, bert: bool = False) -> None:
    """Let encoding with special tokens put them around a text."""
    first = special.get("cls_token" if bert else "bos_token") if add_bos else None
    last = special.get("sep_token" if bert else "eos_token") if add_eos else None
    before, after = [first] if first else [], [last] if last else []
    single = [*before, "$A", *after]
    pair = [*single, *(f"{token}:1" for token in before if not bert), "$B:1", *(f"{token}:1" for token in after)]
    if used := [(token, library.token_to_id(token)) for token in (*before, *after)]:
        library.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=used)


def _add_special(library: Library, tokens: Sequence[str], types: Sequence[int]) -> Library:
    marked = zip(tokens, types, strict=True)
    added = [AddedToken(token, special=kind == CONTROL, normalized=False) for token, kind in marked if kind in (3, 4)]
    library.add_tokens(added)
    return library


def _numbered(tokens: Sequence[str], path: Path) -> dict[str, int]:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise RunError(f"{path} is damaged: {len(tokens) - len(vocabulary):,} of its tokens occur twice")
    return vocabulary


ALPHABET = {  # a byte: the letter that stands for it in a byte-level vocabulary
    **{byte: chr(byte) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))},
    **{byte: chr(256 + place) for place, byte in enumerate((*range(33), *range(127, 161), 173))},
}


def as_bytes(text: str) -> str:
    """A text as a byte-level vocabulary spells it.

    >>> as_bytes(" é")
    'ĠÃ©'
    """
    return "".join(map(ALPHABET.__getitem__, text.encode()))


def from_bytes(token: str) -> str:
    """What `as_bytes` spelled; empty if that is no text."""
    try:
        return bytes(BYTES[letter] for letter in token).decode()
    except (KeyError, UnicodeDecodeError):
        return ""


BYTES = {letter: byte for byte, letter in ALPHABET.items()}


def _byte_level(
    ggml: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int], special: Mapping[str, str], path: Path
) -> Library:
    pre = ggml.get("pre", "default")
    if pre not in PRE_TOKENIZERS:
        known = nearest(str(pre), PRE_TOKENIZERS)
        raise RunError(f"{path} cuts text by rules called {pre}, which Clearhead does not know; {known}")
    letters = {token: from_bytes(token) for token, kind in zip(tokens, types, strict=True) if kind == 1}
    if letters and all(len(letter) == 1 for letter in letters.values()):
        return _letters([letters.get(token, token) for token in tokens], types, special.get("unk_token"), path)
    merges = [tuple(pair.split(" ")) for pair in ggml.get("merges", ())]
    vocabulary = _numbered(tokens, path)
    pairs = [(left, right) for left, right in merges if left in vocabulary and right in vocabulary]
    library = Library(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre in IGNORE_MERGES))
    if pre in NORMALIZED:
        library.normalizer = normalizers.NFC()
    library.pre_tokenizer = PRE_TOKENIZERS[pre]()
    library.decoder = decoders.ByteLevel()
    return _add_special(library, tokens, types)


def _letters(tokens: Sequence[str], types: Sequence[int], unknown: str | None, path: Path) -> Library:
    """One token per letter: merges join the bytes of a letter, which are no tokens by themselves."""
    library = Library(models.BPE(vocab=_numbered(tokens, path), merges=[], unk_token=unknown))
    library.decoder = decoders.Fuse()
    return _add_special(library, tokens, types)


def _sentence_piece(
    ggml: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int], special: Mapping[str, str], path: Path
) -> Library:
    prefix = bool(ggml.get("add_space_prefix", True))
    return sentence_piece(tokens, _scores(ggml, tokens, path), types, special.get("unk_token"), prefix, path)


def _scores(ggml: Mapping[str, Any], tokens: Sequence[str], path: Path) -> Sequence[float]:
    scores: Sequence[float] = ggml.get("scores", ())
    if len(scores) != len(tokens):
        raise RunError(f"{path} is damaged: it has {len(tokens):,} tokens and the scores of {len(scores):,}")
    return scores


def sentence_piece(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int], unknown: str | None, prefix: bool, path: Path
) -> Library:
    """A SentencePiece BPE model; with `prefix` a space is put before the text."""
    vocabulary = _numbered(tokens, path)
    merges = merges_from_scores(vocabulary, scores)
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    library = Library(model)
    spaces = normalizers.Replace(" ", SPACE)
    library.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return _add_special(library, tokens, types)


def merges_from_scores(vocabulary: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every pair of pieces whose concatenation is a piece, best score first: what SentencePiece would join first."""
    found = [
        (-float(scores[index]), vocabulary[piece[:cut]], vocabulary[piece[cut:]], piece[:cut], piece[cut:])
        for piece, index in vocabulary.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    return [(left, right) for *_, left, right in sorted(found)]


def _unigram(
    ggml: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int], special: Mapping[str, str], path: Path
) -> Library:
    kinds = [int(kind) for kind in types]
    pieces = list(zip(_numbered(tokens, path), map(float, _scores(ggml, tokens, path)), kinds, strict=True))
    read = Pieces(
        pieces,
        algorithm=UNIGRAM,
        characters=np.array(ggml.get("precompiled_charsmap", ())).astype(np.uint8).tobytes(),
        space_before=bool(ggml.get("add_space_prefix", True)),
        join_spaces=bool(ggml.get("remove_extra_whitespaces", True)),
    )
    unknown = special.get("unk_token") or next((text for text, _, kind in pieces if kind == UNKNOWN), "<unk>")
    return _add_special(pieces_library(read, [piece[:2] for piece in pieces], unknown), tokens, types)


def _word_piece(
    _ggml: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int], special: Mapping[str, str], path: Path
) -> Library:
    words = [_as_bert(token, kind) for token, kind in zip(tokens, types, strict=True)]
    cased = any(word != word.lower() for word, kind in zip(words, types, strict=True) if kind == 1)
    model = models.WordPiece(vocab=_numbered(words, path), unk_token=special.get("unk_token", "[UNK]"))
    library = Library(model)
    library.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    return _add_special(library, words, types)


def _as_bert(token: str, kind: int) -> str:
    if kind == CONTROL or (token.startswith("[") and token.endswith("]") and len(token) > 2):
        return token
    return token.removeprefix(SPACE) if token.startswith(SPACE) else f"##{token}"


MODELS: dict[str, Callable[..., Library]] = {
    "gpt2": _byte_level,
    "llama": _sentence_piece,
    "bert": _word_piece,
    "t5": _unigram,
}
