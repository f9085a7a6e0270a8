"""The tokenizer of a foreign folder as one tokenizer.json, whatever files it comes in.

    tokenizer.json                       as it is
    vocab.txt                            word pieces (BERT)
    vocab.json and merges.txt            byte pairs (GPT-2, RoBERTa)
    *.model or *.spm                     SentencePiece (`sentencepiece.py`)

and the special tokens: from tokenizer_config.json and special_tokens_map.json, from config.json, or those that the
family always has.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from clearhead.errors import RunError, TextError
from clearhead.interop.checkpoint import TokenizerFiles
from clearhead.interop.formats.base.gguf_tokenizer import PRE_TOKENIZERS, add_ends
from clearhead.interop.sentencepiece import sentencepiece_library
from clearhead.text import Roles, Tokenizer

NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token", "mask_token")
BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
ROBERTA |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
GPT2 = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
USUAL = {  # the special tokens of a family whose files do not name them
    **dict.fromkeys(("bert", "distilbert", "electra"), BERT),
    **dict.fromkeys(("roberta", "bart", "xlm_roberta", "camembert", "mbart"), ROBERTA),
    **dict.fromkeys(("gpt2", "gpt_neox", "gpt_neo", "gptj", "gpt_bigcode", "phi", "starcoder2"), GPT2),
    **dict.fromkeys(("t5", "mt5", "marian", "pegasus"), T5),
    "mpnet": ROBERTA | {"unk_token": "[UNK]"},
    "opt": {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"},
    "albert": BERT | {"unk_token": "<unk>", "pad_token": "<pad>"},
    "llama": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "m2m_100": {"bos_token": "<s>"} | T5,
}


def read_tokenizer(path: Path, config: dict[str, Any]) -> TokenizerFiles | None:
    """The tokenizer of a folder; None if it has none."""
    settings = _json(path / "tokenizer_config.json")
    special = _special(path, settings, config)
    library = _library(path, settings, special, config)
    if library is None:
        return None
    if not (path / "tokenizer.json").is_file():
        library = _with_added_tokens(path, settings, special, library)
    known = {name: token for name, token in special.items() if library.token_to_id(token) is not None}
    added = {each.content for each in library.get_added_tokens_decoder().values() if each.special}
    if missing := [token for token in dict.fromkeys(known.values()) if token not in added]:
        library.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in missing])
    sentences = config.get("sentence_embedding", {})
    first: list[normalizers.Normalizer] = [normalizers.Prepend(sentences["prompt"])] if sentences.get("prompt") else []
    first += [normalizers.Lowercase()] if sentences.get("lowercase") else []
    if first:
        usual = [library.normalizer] if library.normalizer is not None else []
        library.normalizer = normalizers.Sequence([*first, *usual])
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = next((each.get("template") for each in template if each.get("name") == "default"), None)
    if (path / "chat_template.jinja").is_file():
        template = _text(path / "chat_template.jinja")
    return TokenizerFiles(library.to_str(), known, add_bos=False, add_eos=False, chat_template=template)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise RunError(f"{path} cannot be read: {problem}") from None


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(_text(path))
    except (ValueError, RecursionError) as problem:
        raise RunError(f"{path} is not JSON: {problem}") from None
    if not isinstance(values, dict):
        raise RunError(f"{path} is not a JSON object")
    return values


def _special(path: Path, settings: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """The special tokens that the files name, or that the family always has."""
    found = dict(USUAL.get(str(config.get("model_type", "")).replace("-", "_"), {}))
    for values in (settings, _json(path / "special_tokens_map.json")):
        for name in NAMES:
            value = values.get(name)
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str) and value:
                found[name] = value
    return found


def _library(path: Path, settings: dict[str, Any], special: dict[str, str], config: dict[str, Any]) -> Library | None:
    if (path / "tokenizer.json").is_file():
        try:
            return Library.from_str(_text(path / "tokenizer.json"))
        except Exception as problem:  # the library raises plain exceptions
            raise TextError(f"{path / 'tokenizer.json'} is not a tokenizer.json: {problem}") from None
    if (path / "vocab.txt").is_file():
        return _word_pieces(_text(path / "vocab.txt").splitlines(), settings, BERT | special)
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        merges = [line for line in _text(path / "merges.txt").splitlines() if line and not line.startswith("#version")]
        return _byte_pairs(path, _json(path / "vocab.json"), merges, settings, special, config)
    return sentencepiece_library(path, special, config, settings)


def _with_added_tokens(path: Path, settings: dict[str, Any], special: dict[str, str], library: Library) -> Library:
    """With the tokens that files beside the vocabulary add: added_tokens.json, or a list in tokenizer_config.json."""
    found: dict[int, AddedToken] = {}
    try:
        for token, index in _json(path / "added_tokens.json").items():
            found[int(index)] = AddedToken(token, special=token in special.values(), normalized=False)
        for index, each in (settings.get("added_tokens_decoder") or {}).items():
            found[int(index)] = AddedToken(**{name: value for name, value in each.items() if name != "__type"})
    except (TypeError, ValueError) as problem:
        raise TextError(f"{path}: its added tokens cannot be read: {problem}") from None
    values = json.loads(library.to_str())
    numbers = values["model"]["vocab"]
    if isinstance(numbers, dict):  # as part of the vocabulary they may leave gaps
        numbers |= {each.content: index for index, each in found.items() if library.token_to_id(each.content) is None}
        library = Library.from_str(json.dumps(values))
    for index, each in sorted(found.items()):
        (library.add_special_tokens if each.special else library.add_tokens)([each])
        if (given := library.token_to_id(each.content)) != index:
            raise TextError(f"{path}: {each.content!r} is added as token {index}, and stands at {given}")
    return library


def _word_pieces(tokens: list[str], settings: dict[str, Any], special: dict[str, str]) -> Library:
    """BERT's tokenizer."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    library = Library(models.WordPiece(vocabulary, unk_token=special["unk_token"], max_input_chars_per_word=100))
    library.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece("##")
    _surround(library, special["cls_token"], special["sep_token"])
    return library


def _byte_pairs(
    path: Path,
    vocabulary: dict[str, Any],
    merges: list[str],
    settings: dict[str, Any],
    special: dict[str, str],
    config: dict[str, Any],
) -> Library:
    """GPT-2's tokenizer; RoBERTa and BART put a text between <s> and </s>, and Qwen cuts numbers into digits."""
    try:
        pairs = [(left, right) for left, right in (line.split(" ") for line in merges)]
        library = Library(models.BPE(vocabulary, pairs))
    except Exception as problem:  # the library raises plain exceptions
        raise TextError(f"{path}: vocab.json and merges.txt are not a vocabulary and its merges: {problem}") from None
    space = settings.get("add_prefix_space", False)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    library.decoder = decoders.ByteLevel()
    if str(config.get("model_type")).startswith("qwen"):
        library.normalizer, library.pre_tokenizer = normalizers.NFC(), PRE_TOKENIZERS["qwen2"]()
    if config.get("model_type") in ("roberta", "bart"):
        _surround(library, special["cls_token"], special["sep_token"])
    elif settings.get("add_bos_token") and "bos_token" in special:
        library.add_special_tokens([special["bos_token"]])
        add_ends(library, special, add_bos=True, add_eos=False)
    return library


def _surround(library: Library, first: str, last: str) -> None:
    """Let every text stand between two special tokens."""
    tokens = [(token, library.token_to_id(token)) for token in dict.fromkeys((first, last))]
    library.post_processor = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0", pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1", special_tokens=tokens
    )


# --- the tokenizer of a run ---


def make_tokenizer(
    files: TokenizerFiles, size: int, config: dict[str, Any], roles: dict[str, int | None], origin: str
) -> Tokenizer:
    """Our tokenizer of a model with `size` tokens; `roles` are special tokens that the family knows better."""
    files = _known_tokens(files, size)
    try:
        library = Library.from_str(files.json)
    except Exception as problem:  # the library raises plain exceptions
        raise TextError(f"{origin} has no usable tokenizer: {problem}") from None
    last = max(library.get_vocab().values(), default=-1)
    if last >= size:
        raise RunError(f"{origin}: its tokenizer has {last + 1:,} tokens, and the model has vectors for {size:,}")
    special = {name: library.token_to_id(token) for name, token in files.special.items()}

    def first(*names: str) -> int | None:
        """The first of these that the tokenizer or config.json names."""
        by_name = (special.get(name) for name in names)
        by_config = (config.get(f"{name}_id") for name in names)
        found = (each for each in (*by_name, *by_config) if isinstance(each, int))
        return next((each for each in found if 0 <= each < size), None)

    generation = config.get("generation_config", {}).get("eos_token_id")
    ending = _inside(config.get("eos_token_id") if generation is None else generation, size)
    stop = first("eos_token", "sep_token", "bos_token")
    if generation is not None and ending and stop not in ending:
        stop = ending[0]
    ends, stop = stop is not None or roles.get("stop") is not None, stop or 0
    prefix, suffix = _template(library)
    bos, eos = special.get("bos_token"), special.get("eos_token")
    if files.add_bos and bos is not None and bos not in prefix:
        prefix = (bos, *prefix)
    if files.add_eos and eos is not None and eos not in suffix:
        suffix = (*suffix, eos)
    pad = first("pad_token")
    if pad in (*prefix, *suffix):  # what stands in every text cannot also be what is left out of it
        usable = (index for index, each in library.get_added_tokens_decoder().items() if each.special and index < size)
        pad = next((index for index in usable if index not in (*prefix, *suffix)), pad)
    found = {
        "pad": pad,
        "unknown": first("unk_token"),
        "start": first("bos_token", "cls_token"),
        "stop": stop,
        "mask": first("mask_token", "unk_token"),
        "cls": first("cls_token", "bos_token"),
    }
    given = {name: value for name, value in roles.items() if value is not None}
    forced = (given.pop("forced"),) if "forced" in given else ()
    ids: dict[str, Any] = {name: stop if value is None else value for name, value in {**found, **given}.items()}
    names = {**files.special, "add_bos_token": files.add_bos, "add_eos_token": files.add_eos}
    if files.chat_template is not None:
        names["chat_template"] = files.chat_template
    names |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    banned = _single_tokens(config.get("generation_config", {}).get("bad_words_ids") or config.get("bad_words_ids"))
    stops = tuple(each for each in ending if each != stop)
    around: dict[str, Any] = {"prefix": prefix, "suffix": suffix, "forced": forced, "banned": banned, "stops": stops}
    all_roles = Roles(**ids, **around, size=size, ends=ends)
    return Tokenizer.foreign(files.json, all_roles, names, origin)


def _known_tokens(files: TokenizerFiles, size: int) -> TokenizerFiles:
    """Without tokens that were added after the model was trained, for which it has no vectors."""
    values = json.loads(files.json)
    added = values.get("added_tokens") or []
    unknown = {each["content"] for each in added if each["id"] >= size}
    if not unknown:
        return files
    values["added_tokens"] = [each for each in added if each["id"] < size]
    special = {name: token for name, token in files.special.items() if token not in unknown}
    return replace(files, json=json.dumps(values), special=special)


def _inside(ids: Any, size: int) -> list[int]:
    """One id or several, as far as the model has such tokens."""
    listed = ids if isinstance(ids, list) else [ids]
    return [each for each in listed if isinstance(each, int) and 0 <= each < size]


def _single_tokens(rows: Any) -> tuple[int, ...]:
    """The tokens of lists of one token each."""
    listed = rows if isinstance(rows, list) else []
    return tuple(row[0] for row in listed if isinstance(row, list) and len(row) == 1 and isinstance(row[0], int))


def _template(library: Library) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that the tokenizer puts before and after a text."""
    library.no_truncation()
    library.no_padding()
    inside = library.encode("a", add_special_tokens=False).ids
    whole = library.encode("a", add_special_tokens=True).ids
    for start in range(len(whole) - len(inside) + 1):
        if whole[start : start + len(inside)] == inside:
            return tuple(whole[:start]), tuple(whole[start + len(inside) :])
    return (), ()
