"""SentencePiece models, read without the library of that name, as tokenizers of the `tokenizers` library.

The file is a protocol buffer: fields of a number, a kind and a value. What a tokenizer needs of it:

    1  pieces        1 text, 2 score (float), 3 kind: 1 usual, 2 unknown, 3 control, 4 user, 6 byte
    2  trainer       3 algorithm: 1 unigram, 2 byte pairs
    3  normalizer    2 a table of characters, 3 whether a space is put before the text, 4 whether spaces are joined

    D distinct fields, N pieces
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from clearhead.errors import TextError

FILES = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "source.spm")
UNKNOWN, CONTROL, BYTE = 2, 3, 6  # kinds of pieces
UNIGRAM, BYTE_PAIRS = 1, 2  # algorithms
RARE = -100.0  # score of a token that the vocabulary has and the model lacks
M2M100_LANGUAGES = (  # in the order of their ids
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
MBART50_LANGUAGES = (  # after those of mBART
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN "
    "te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_NLLB_LANGUAGE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
EXTRA = 100  # sentinels of T5, after the pieces


@dataclass(frozen=True)
class Pieces:
    """What a SentencePiece file holds."""

    pieces: list[tuple[str, float, int]]  # text, score, kind
    algorithm: int
    characters: bytes  # a table of replacements, in the library's own form
    space_before: bool
    join_spaces: bool


def sentencepiece_library(
    path: Path, special: dict[str, str], config: dict[str, Any], settings: dict[str, Any] | None = None
) -> Library | None:
    """The tokenizer of a folder with a SentencePiece file; None if it has none."""
    file = next((path / name for name in FILES if (path / name).is_file()), None)
    if file is None:
        return None
    read, settings = read_pieces(file), settings or {}
    family = str(config.get("model_type", "")).replace("-", "_")
    scored = [(text, score) for text, score, _ in read.pieces]
    if family == "m2m_100" and not (path / "vocab.json").is_file():
        family = "nllb"
    if (path / "vocab.json").is_file():  # Marian, M2M100: the ids are not those of the pieces
        scored = _renumbered(path / "vocab.json", dict(scored))
    if family == "t5":
        scored += [(f"<extra_id_{number}>", 0.0) for number in reversed(range(EXTRA))]
    if family in RENUMBERED:
        scored = RENUMBERED[family](scored)
    languages = _languages(path, family)  # their ids follow those of the vocabulary
    scored += [(token, 0.0) for token in languages if token not in dict(scored)]
    if family in ("xlm_roberta", "camembert", "mbart", "nllb"):
        scored.append(("<mask>", 0.0))
    unknown = special.get("unk_token", "<unk>")
    library = pieces_library(read, scored, unknown)
    library.normalizer = _normalizer(read, family, settings)
    controls = [text for text, _, kind in read.pieces if kind in (UNKNOWN, CONTROL)]
    extra = [text for text, _ in scored if text.startswith("<extra_id_")] if family == "t5" else []
    known = [
        text for text in (*controls, *special.values(), *extra, *languages) if library.token_to_id(text) is not None
    ]
    library.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in dict.fromkeys(known)])
    codes = [text for text, _ in scored if text.startswith(">>") and text.endswith("<<")]  # Marian: the target language
    library.add_tokens([AddedToken(text, special=False, normalized=False) for text in codes])
    _add_template(library, family, {**special, "language": _source_language(settings, family, languages)}, settings)
    return library


def pieces_library(read: Pieces, scored: list[tuple[str, float]], unknown: str) -> Library:
    """The tokenizer of some pieces, each with its score, in the order of their ids."""
    library = Library(_model(read, scored, unknown))
    library.normalizer = _normalizer(read, "", {})
    scheme: Any = "always" if read.space_before else "never"
    library.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=read.join_spaces)
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", left=1)]
        if any(kind == BYTE for *_, kind in read.pieces)
        else [decoders.Metaspace("▁", prepend_scheme=scheme)]
    )
    return library


def _after_four(scored: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The numbers of fairseq, which has four tokens of its own before the pieces."""
    return [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")] + scored[3:]


def _camembert(scored: list[tuple[str, float]]) -> list[tuple[str, float]]:
    own = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", RARE)]
    return own + scored[1:]


def _pegasus(scored: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """103 tokens of its own, for gaps and whatever may come, before the unknown one."""
    own = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103))]
    return [(token, RARE) for token in own] + [("<unk>", 0.0)] + scored[3:]


RENUMBERED = {**dict.fromkeys(("xlm_roberta", "mbart", "nllb"), _after_four), "camembert": _camembert}
RENUMBERED |= {"pegasus": _pegasus}


def _languages(path: Path, family: str) -> list[str]:
    """The tokens of the languages, as the files list them, or those that the family was trained with."""
    if family not in ("m2m_100", "mbart", "nllb"):
        return []
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        values = _json(path / name)
        listed = values.get("additional_special_tokens") or values.get("extra_special_tokens") or []
        tokens = [each if isinstance(each, str) else str(each.get("content")) for each in listed]
        if tokens:
            return [token for token in tokens if token != "<mask>"]
    if family == "nllb":
        added = _json(path / "tokenizer_config.json").get("added_tokens_decoder") or {}
        tokens = [str(each.get("content")) for _, each in sorted(added.items(), key=lambda item: int(item[0]))]
        found = [token for token in tokens if _NLLB_LANGUAGE.fullmatch(token)]
        if not found:
            raise TextError(f"{path} does not list the languages of its tokenizer (additional_special_tokens)")
        return found
    if family == "m2m_100":
        return [f"__{code}__" for code in M2M100_LANGUAGES.split()]
    later = MBART50_LANGUAGES if _is_mbart50(_json(path / "tokenizer_config.json")) else ""
    return [*MBART_LANGUAGES.split(), *later.split()]


def _is_mbart50(settings: dict[str, Any]) -> bool:
    return str(settings.get("tokenizer_class", "")).startswith("MBart50")


def _source_language(settings: dict[str, Any], family: str, languages: list[str]) -> str:
    """The token of the language that texts are in, where a folder names one."""
    usual = {"mbart": "en_XX", "nllb": "eng_Latn"}
    given = settings.get("src_lang")
    token = str(given or usual[family]) if family in usual else f"__{given or 'en'}__"
    return token if token in languages else ""


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as problem:
        raise TextError(f"{path} is not JSON: {problem}") from None
    return values if isinstance(values, dict) else {}


def _renumbered(path: Path, scores: dict[str, float]) -> list[tuple[str, float]]:
    """The tokens in the order of a vocab.json, each with the score of its piece."""
    try:
        ids: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
        ordered = sorted(ids, key=ids.__getitem__)
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        raise TextError(f"{path} is not a vocabulary: {problem}") from None
    if [ids[token] for token in ordered] != list(range(len(ids))):
        raise TextError(f"{path} is not a vocabulary: its ids are not 0, 1, 2, …")
    return [(token, scores.get(token, RARE)) for token in ordered]


def _model(read: Pieces, scored: list[tuple[str, float]], unknown: str) -> models.Model:
    ids = {text: index for index, (text, _) in enumerate(scored)}
    fallback = any(kind == BYTE for *_, kind in read.pieces)
    if read.algorithm == BYTE_PAIRS:
        return models.BPE(ids, _merges(scored), unk_token=unknown, fuse_unk=True, byte_fallback=fallback)
    return models.Unigram(scored, unk_id=ids.get(unknown, 0), byte_fallback=fallback)


def _merges(scored: list[tuple[str, float]]) -> list[tuple[str, str]]:
    """The pairs that give a piece, in the order in which they are merged: by score, then as they stand in the file."""
    ids = {text: index for index, (text, _) in enumerate(scored)}
    found: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for index, (text, _) in enumerate(scored):
        halves = ((text[:at], text[at:]) for at in range(1, len(text)))
        pairs = [pair for pair in halves if pair[0] in ids and pair[1] in ids]
        found[index] = sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    order = sorted(found, key=lambda index: (-scored[index][1], index))
    return [pair for index in order for pair in found[index]]


def _normalizer(read: Pieces, family: str, settings: dict[str, Any]) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if family == "albert":
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        steps += [] if settings.get("keep_accents", False) else [normalizers.NFKD(), normalizers.StripAccents()]
        steps += [normalizers.Lowercase()] if settings.get("do_lower_case", True) else []
    if read.characters:
        steps.append(normalizers.Precompiled(read.characters))
    if read.join_spaces:
        steps += [normalizers.Strip(left=True, right=True), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps)


AROUND = {  # what the family puts before and after a text
    **dict.fromkeys(("albert", "xlm_roberta", "camembert"), (("cls_token",), ("sep_token",))),
    **dict.fromkeys(("llama", "mistral", "gemma", "gemma2", "gemma3", "gemma3_text"), (("bos_token",), ())),
    "phi3": ((), ()),
    **dict.fromkeys(("m2m_100", "nllb"), (("language",), ("eos_token",))),
    "mbart": ((), ("eos_token", "language")),
}


def _add_template(library: Library, family: str, special: dict[str, str], settings: dict[str, Any]) -> None:
    """Let the family's special tokens stand around a text; a folder may say which."""
    before, after = AROUND.get(family, ((), ("eos_token",)))
    if family == "mbart" and _is_mbart50(settings):
        before, after = ("language",), ("eos_token",)
    if family == "nllb" and settings.get("legacy_behaviour"):
        before, after = (), ("eos_token", "language")
    if "bos_token" in before or family == "phi3":
        before = ("bos_token",) if settings.get("add_bos_token", bool(before)) else ()
        after = ("eos_token",) if settings.get("add_eos_token", False) else ()
    first, last = ([special[name] for name in names if special.get(name)] for names in (before, after))
    tokens = [(token, library.token_to_id(token)) for token in dict.fromkeys((*first, *last))]
    if not tokens or any(index is None for _, index in tokens):
        return
    single = " ".join([*(f"{token}:0" for token in first), "$A:0", *(f"{token}:0" for token in last)])
    library.post_processor = processors.TemplateProcessing(single=single, pair=f"{single} $B:1", special_tokens=tokens)


# --- protocol buffers ---


def read_pieces(path: Path) -> Pieces:
    """The pieces of a SentencePiece file and how text is normalised."""
    try:
        fields = _fields(path.read_bytes())
        pieces = []
        for content in fields[1]:
            one = _fields(content)
            score = struct.unpack("<f", one[2][0])[0] if 2 in one else 0.0
            pieces.append((one[1][0].decode(), score, one[3][0] if 3 in one else 1))
        trainer, normalizer = _fields(fields[2][0]), _fields(fields[3][0])
        if not pieces:
            raise ValueError("it has no pieces")
        return Pieces(
            pieces,
            algorithm=trainer[3][0] if 3 in trainer else 1,
            characters=normalizer[2][0] if 2 in normalizer else b"",
            space_before=bool(normalizer[3][0]) if 3 in normalizer else True,
            join_spaces=bool(normalizer[4][0]) if 4 in normalizer else True,
        )
    except (OSError, ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error) as problem:
        raise TextError(f"{path} is not a SentencePiece model ({problem})") from None


def _fields(data: bytes) -> dict[int, list[Any]]:
    """The values of each field: numbers, or bytes."""
    found: defaultdict[int, list[Any]] = defaultdict(list)
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _number(data, place)
            found[key >> 3].append(value)
            continue
        if kind == 2:
            size, place = _number(data, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if place + size > len(data):
            raise ValueError("it ends too early")
        found[key >> 3].append(data[place : place + size])
        place += size
    return dict(found)


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Seven bits of a byte at a time, the lowest first; the highest bit says that more follow."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("a number that is too long")
