"""Tokenizers in every kind of file, equal to those of `transformers` on nasty texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from clearhead.errors import TextError
from clearhead.interop.nasty import NASTY_TEXTS
from clearhead.interop.sentencepiece import read_pieces
from clearhead.interop.tokenizer_files import make_tokenizer, read_tokenizer
from clearhead.text import Tokenizer

from .originals import SIZE, TEXTS, library, save_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *"0123456789.,!?'", "cafe"]
WORDS += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"] + [
    "the",
    "hello",
    "world",
    "don",
    "天",
    "é",
]


def tokenizer_of(folder: Path, model_type: str, **config: Any) -> Tokenizer:
    values = {"model_type": model_type, **config}
    files = read_tokenizer(folder, values)
    assert files is not None
    size = Library.from_str(files.json).get_vocab_size()
    return make_tokenizer(files, size, values, {}, str(folder))


def assert_cuts_like(ours: Tokenizer, theirs: Any) -> None:
    for text in NASTY_TEXTS:
        expected = theirs(text, split_special_tokens=True)["input_ids"]
        assert [*ours.prefix, *ours.encode(text), *ours.suffix] == expected, text


@pytest.mark.parametrize("surrounded", [True, False])
def test_a_tokenizer_json(tmp_path: Path, surrounded: bool) -> None:
    transformers = pytest.importorskip("transformers")
    save_tokenizer(tmp_path, surrounded=surrounded)
    ours = tokenizer_of(tmp_path, "llama")
    assert_cuts_like(ours, transformers.AutoTokenizer.from_pretrained(tmp_path))
    assert (ours.prefix, ours.suffix) == (((2,), (3,)) if surrounded else ((), ()))
    assert (ours.pad, ours.unknown, ours.start, ours.stop, ours.mask) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("lower", [True, False])
def test_word_pieces(tmp_path: Path, lower: bool) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    ours = tokenizer_of(tmp_path, "bert")
    theirs = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"), do_lower_case=lower)
    assert_cuts_like(ours, theirs)
    assert ours.kind == "wordpiece"


def test_byte_pairs(tmp_path: Path) -> None:
    values = json.loads(library(False, False).to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(values["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(each) for each in values["merges"]))
    for family, prefix in (("gpt2", ()), ("roberta", (2,))):
        ours = tokenizer_of(tmp_path, family)
        assert ours.prefix == prefix
        assert [ours.decode(ours.encode(text)) for text in TEXTS] == TEXTS


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sentencepiece(tmp_path: Path, kind: str) -> None:
    trainer = pytest.importorskip("sentencepiece")
    (tmp_path / "text.txt").write_text("\n".join(TEXTS * 4), encoding="utf-8")
    trainer.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=70,
        model_type=kind,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    theirs = trainer.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    ours = tokenizer_of(tmp_path, "t5")
    assert ours.suffix == (1,)
    for text in [*TEXTS, "The dog's bread  was small", "Éé ﬁ", "xyz 123"]:
        assert ours.encode(text) == theirs.encode(text), text
        if 2 not in theirs.encode(text):
            assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text)), text


def trained(folder: Path, kind: str) -> None:
    """A SentencePiece model as source.spm, and a vocabulary with other ids."""
    trainer = pytest.importorskip("sentencepiece")
    (folder / "text.txt").write_text("\n".join(TEXTS * 4), encoding="utf-8")
    trainer.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "made"),
        vocab_size=70,
        model_type=kind,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    made = trainer.SentencePieceProcessor(model_file=str(folder / "made.model"))
    pieces = [made.id_to_piece(number) for number in range(3, made.get_piece_size())]
    names = ["<s>", "<pad>", "</s>", "<unk>", *reversed(pieces), ">>fra<<"]
    (folder / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))


@pytest.mark.filterwarnings("ignore:Recommended")
def test_marian_files(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    trained(tmp_path, "unigram")
    (tmp_path / "made.model").rename(tmp_path / "source.spm")
    spm = str(tmp_path / "source.spm")
    theirs = transformers.MarianTokenizer(spm, spm, str(tmp_path / "vocab.json"))
    ours = tokenizer_of(tmp_path, "marian")
    for text in [*TEXTS, ">>fra<< we are eating", "The dog's bread"]:
        assert [*ours.encode(text), *ours.suffix] == theirs(text)["input_ids"], text
    assert ours.decode(ours.encode(TEXTS[0])) == TEXTS[0]


def test_m2m_100_files(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    trained(tmp_path, "bpe")
    (tmp_path / "made.model").rename(tmp_path / "sentencepiece.bpe.model")
    spm = str(tmp_path / "sentencepiece.bpe.model")
    theirs = transformers.M2M100Tokenizer(str(tmp_path / "vocab.json"), spm, src_lang="fr", tgt_lang="es")
    theirs.save_pretrained(tmp_path / "saved")
    ours = tokenizer_of(tmp_path / "saved", "m2m_100")
    for text in [*TEXTS, "The dog's bread"]:
        assert [*ours.prefix, *ours.encode(text), *ours.suffix] == theirs(text)["input_ids"], text
    assert ours.prefix == (theirs.get_lang_id("fr"),)


def write_byte_pairs(folder: Path) -> None:
    values = json.loads(library(False, False).to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(values["vocab"] | {"<|endoftext|>": len(values["vocab"])}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(each) for each in values["merges"]))


OWN_FILES: dict[str, tuple[str, dict[str, Any]]] = {  # family, tokenizer_config.json
    "gpt2": ("gpt2", {}),
    "gpt2 with a first token": ("gpt2", {"add_bos_token": True}),
    "opt": ("opt", {"add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>"}),
    "qwen2": ("qwen2", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "unk_token": None}),
}


@pytest.mark.parametrize("name", OWN_FILES)
def test_byte_pairs_of_other_families(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    family, settings = OWN_FILES[name]
    write_byte_pairs(tmp_path)
    settings = {"tokenizer_class": "GPT2Tokenizer", **settings}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    assert_cuts_like(tokenizer_of(tmp_path, family), transformers.AutoTokenizer.from_pretrained(tmp_path))


@pytest.mark.parametrize("listed", ["added_tokens.json", "tokenizer_config.json"])
@pytest.mark.parametrize("family", ["qwen2", "bert"])
def test_tokens_that_were_added_beside_the_vocabulary(tmp_path: Path, family: str, listed: str) -> None:
    """Qwen's files have their end of a turn only there; numbers may leave a gap."""
    transformers = pytest.importorskip("transformers")
    if family == "bert":
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
        settings: dict[str, Any] = {"tokenizer_class": "BertTokenizer"}
    else:
        write_byte_pairs(tmp_path)
        settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "unk_token": None}
    first = 400 if listed == "tokenizer_config.json" else len(WORDS) if family == "bert" else SIZE + 1
    tokens = {"<|im_start|>": first, "<|im_end|>": first + 1, "<tool>": first + 2}
    if listed == "added_tokens.json":
        (tmp_path / listed).write_text(json.dumps(tokens))
    else:
        flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
        listing = {str(id): {"content": name, "special": name != "<tool>", **flags} for name, id in tokens.items()}
        settings["added_tokens_decoder"] = listing
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    files = read_tokenizer(tmp_path, {"model_type": family})
    assert files is not None
    ours = make_tokenizer(files, 500, {}, {}, str(tmp_path))
    spelled = "<|im_start|>hello<|im_end|> the <tool> world"
    inside = ours.encode_special(spelled)
    assert [token for token in inside if token in tokens.values()] == [*tokens.values()]
    if listed == "added_tokens.json":
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert inside == theirs(spelled, add_special_tokens=False)["input_ids"]
    if family == "qwen2":
        assert ours.stop == tokens["<|im_end|>"]


def test_an_added_token_with_another_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"hello": 7}))
    with pytest.raises(TextError, match=f"'hello' is added as token 7, and stands at {WORDS.index('hello')}"):
        read_tokenizer(tmp_path, {"model_type": "bert"})


def test_word_pieces_of_mpnet(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    words = ["<s>", "<pad>", "</s>", "<unk>", *WORDS[5:], "[UNK]", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mpnet"}))
    ours = tokenizer_of(tmp_path, "mpnet")
    assert_cuts_like(ours, transformers.AutoTokenizer.from_pretrained(tmp_path))
    assert (ours.prefix, ours.suffix, ours.pad) == ((0,), (2,), 1)


LLAMA = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
SENTENCEPIECE: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {  # family, file, how trained, config
    "xlm-roberta": ("xlm-roberta", "sentencepiece.bpe.model", {}, {}),
    "albert with capitals": (
        "albert",
        "spiece.model",
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
        {"do_lower_case": False, "keep_accents": True},
    ),
    "llama": (
        "llama",
        "tokenizer.model",
        LLAMA | {"model_type": "bpe", "vocab_size": 340, "allow_whitespace_only_pieces": True},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True},
    ),
}


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_sentencepiece_of_other_families(tmp_path: Path, name: str) -> None:
    trainer, transformers = pytest.importorskip("sentencepiece"), pytest.importorskip("transformers")
    family, file, how, settings = SENTENCEPIECE[name]
    texts = [*TEXTS, "Hello, world!", "def f(x):    return    x"] * 4
    settings_of_training = {"vocab_size": 70, "minloglevel": 2, "hard_vocab_limit": False, **how}
    with (tmp_path / file).open("wb") as model:
        trainer.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, **settings_of_training)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    assert_cuts_like(tokenizer_of(tmp_path, family), transformers.AutoTokenizer.from_pretrained(tmp_path))


@pytest.mark.parametrize(("kind", "family"), [("Pegasus", "pegasus"), ("MBart", "mbart"), ("MBart50", "mbart")])
def test_the_numbers_of_pegasus_and_mbart(tmp_path: Path, kind: str, family: str) -> None:
    trainer, transformers = pytest.importorskip("sentencepiece"), pytest.importorskip("transformers")
    ends = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1} if family == "pegasus" else {}
    file = "spiece.model" if family == "pegasus" else "sentencepiece.bpe.model"
    how: dict[str, Any] = {"vocab_size": 70, "minloglevel": 2, "hard_vocab_limit": False, **ends}
    with (tmp_path / file).open("wb") as model:
        trainer.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 4), model_writer=model, **how)
    settings = {"tokenizer_class": f"{kind}Tokenizer", "src_lang": "fr_XX"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    ours, theirs = tokenizer_of(tmp_path, family), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert [*ours.prefix, *ours.encode(text), *ours.suffix] == theirs(text)["input_ids"], text


@pytest.mark.parametrize("listed", ["additional_special_tokens", "added_tokens_decoder"])
def test_the_numbers_of_nllb(tmp_path: Path, listed: str) -> None:
    """The family of M2M100 with the numbers of fairseq; the languages stand in another file, after the pieces."""
    trainer = pytest.importorskip("sentencepiece")
    with (tmp_path / "sentencepiece.bpe.model").open("wb") as model:
        trainer.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS * 4), model_writer=model, vocab_size=70, minloglevel=2, hard_vocab_limit=False
        )
    with pytest.raises(TextError, match="does not list the languages"):
        read_tokenizer(tmp_path, {"model_type": "m2m_100"})
    theirs = trainer.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    first, languages = theirs.get_piece_size() + 1, ["deu_Latn", "eng_Latn", "zho_Hans"]
    settings: dict[str, Any] = {"tokenizer_class": "NllbTokenizer", listed: languages}
    if listed == "added_tokens_decoder":
        added = enumerate([*languages, "<mask>"], start=first)
        settings[listed] = {str(number): {"content": name, "special": True} for number, name in added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = tokenizer_of(tmp_path, "m2m_100")
    assert (ours.prefix, ours.suffix, ours.max_id) == ((first + 1,), (2,), first + 3)
    assert (ours.start, ours.pad, ours.stop, ours.unknown) == (0, 1, 2, 3)
    for text in TEXTS[:2]:
        assert ours.encode(text) == [number + 1 for number in theirs.encode(text)]


def test_a_damaged_sentencepiece_file(tmp_path: Path) -> None:
    for content in (b"", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0f", b"hello world"):
        (tmp_path / "spiece.model").write_bytes(content)
        with pytest.raises(TextError, match=r"spiece\.model is not a SentencePiece model"):
            read_pieces(tmp_path / "spiece.model")


def test_special_tokens_in_a_text_stay_text(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    save_tokenizer(tmp_path)
    ours = tokenizer_of(tmp_path, "llama")
    assert 3 not in ours.encode("</s> <s>")
    assert ours.encode_special("we </s>")[-1] == 3
    assert ours.decode([2, *ours.encode("we are"), 3]) == "we are"


def test_it_survives_saving_and_pickling(tmp_path: Path) -> None:
    import pickle

    pytest.importorskip("transformers")
    save_tokenizer(tmp_path / "theirs", surrounded=True)
    ours = tokenizer_of(tmp_path / "theirs", "bert")
    ours.save(tmp_path / "tokenizer.json")
    for again in (Tokenizer.load(tmp_path / "tokenizer.json"), pickle.loads(pickle.dumps(ours))):
        assert (again.prefix, again.suffix, again.pad, len(again)) == (ours.prefix, ours.suffix, ours.pad, len(ours))
        assert again.encode(TEXTS[0]) == ours.encode(TEXTS[0])
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(TextError, match=r"tokenizer_config\.json is damaged .* import the model again"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_chat_template_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    save_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert tokenizer_of(tmp_path, "llama").config["chat_template"] == "{{ messages }}"
