from __future__ import annotations

import gzip
import json
import lzma
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from tokenizers import Tokenizer as Library

from clearhead.config import TokenizerKind
from clearhead.errors import TextError
from clearhead.run import BUNDLED
from clearhead.text import SPECIALS, Tokenizer, split_chunks
from clearhead.text.sentences import CHUNK
from clearhead.text.tokenizer import _read_bpe

KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)
TEXTS = [
    "Transformers are awesome!",
    "We are eating bread, and it is good bread.",
    "Don't stop (please): it's 3.14, isn't it?",
    "He said [STOP] and then [PAD] [PAD] [UNK].\nA well-known line.",
    "el perro come pan; la señora no.",
] * 3


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(request.param, TEXTS, size=400)


def test_specials_come_first(tokenizer: Tokenizer) -> None:
    t = tokenizer
    assert (t.pad, t.unknown, t.start, t.stop, t.mask, t.cls) == (0, 1, 2, 3, 4, 5)
    assert tuple(map(t.token, range(6))) == SPECIALS
    assert [t.id(token) for token in SPECIALS] == [0, 1, 2, 3, 4, 5]


def test_ids_and_tokens_are_each_others_inverse(tokenizer: Tokenizer) -> None:
    assert [tokenizer.id(tokenizer.token(index)) for index in range(len(tokenizer))] == list(range(len(tokenizer)))
    assert 6 < len(tokenizer) <= 400
    assert tokenizer.id("no such token anywhere") == tokenizer.unknown


@pytest.mark.parametrize("index", [-1, 10**6])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer, index: int) -> None:
    with pytest.raises(TextError, match=rf"there is no token {index}: this vocabulary has {len(tokenizer)}"):
        tokenizer.token(index)


def test_training_twice_gives_the_same_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "one.json")
    for _ in range(3):
        Tokenizer.train(tokenizer.kind, iter(TEXTS), size=400).save(tmp_path / "two.json")
        assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_training_breaks_ties_the_same_way_every_time(kind: TokenizerKind) -> None:
    # every word occurs as often as every other, and they mirror each other letter by letter
    texts = ["abab baba aabb bbaa abba baab", "cdcd dcdc ccdd ddcc cddc dccd", "xyz yzx zxy zyx yxz xzy"] * 2
    size = 270 if kind == "bytes" else 30
    made = {pickle.dumps(Tokenizer.train(kind, texts, size=size)) for _ in range(10)}
    assert len(made) == 1


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_another_process_learns_the_same(kind: TokenizerKind, tmp_path: Path) -> None:
    program = (
        "import sys; from clearhead.text import Tokenizer;"
        f"Tokenizer.train({kind!r}, {TEXTS!r}, size=150).save(sys.argv[1])"
    )
    source = Path(sys.modules["clearhead"].__path__[0]).parent
    for name in ("one.json", "two.json"):
        command = [sys.executable, "-c", program, str(tmp_path / name)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(source)})
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_the_file_gives_the_tokenizer_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    assert again.kind == tokenizer.kind
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert len(again) == len(tokenizer)


@pytest.mark.parametrize("where", ["load", "pickle"])
def test_text_never_becomes_special_after_a_round_trip_either(tokenizer: Tokenizer, where: str, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = pickle.loads(pickle.dumps(tokenizer)) if where == "pickle" else Tokenizer.load(tmp_path / "tokenizer.json")
    assert {0, 2, 3, 4, 5}.isdisjoint(again.encode(" ".join(SPECIALS) + "".join(SPECIALS)))


def test_batches_agree_with_single_texts(tokenizer: Tokenizer) -> None:
    rows = tokenizer.encode_batch(TEXTS)
    assert rows == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.decode_batch(rows) == [tokenizer.decode(row) for row in rows]
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


def test_decoding_leaves_special_tokens_out_but_shows_unknown_ones(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.start, *tokenizer.encode("bread"), tokenizer.stop, tokenizer.pad, tokenizer.pad]
    assert tokenizer.decode(ids) == "bread"
    assert "[START]" in tokenizer.decode(ids, keep_special=True)
    assert "[PAD]" in tokenizer.decode_batch([ids], keep_special=True)[0]
    assert tokenizer.decode([tokenizer.unknown]) == "[UNK]"


def test_an_unknown_character_gives_the_unknown_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("bread ☃")
    assert (tokenizer.unknown in ids) == (tokenizer.kind != "bytes")
    assert tokenizer.decode(ids) == ("bread ☃" if tokenizer.kind == "bytes" else "bread [UNK]")


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    for text in (text for text in TEXTS if "\n" not in text):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram", "bytes"])
def test_line_ends_come_back(kind: TokenizerKind) -> None:
    tokenizer = Tokenizer.train(kind, ["a b\nc\n\nd"], size=300)
    assert tokenizer.decode(tokenizer.encode("a b\nc\n\nd")) == "a b\nc\n\nd"


@pytest.mark.parametrize("kind", ["word", "wordpiece"])
@pytest.mark.parametrize(
    "text",
    [
        "Well, don't stop: it's good!",
        "¿Qué? ¡Sí (claro)! 3.14 [x] {y}; 100%…",
        "a well-known fact, 1,000 times",
        "I do not know",
    ],
)
def test_words_are_joined_as_one_writes_them(kind: TokenizerKind, text: str) -> None:
    tokenizer = Tokenizer.train(kind, [text], size=200)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("char", list("Transformers are")),
        ("word", ["Transformers", "are"]),
        ("bpe", ["▁Transformers", "▁are"]),
        ("bytes", ["Transformers", " are"]),
        ("wordpiece", ["Transformers", "are"]),
    ],
)
def test_tokens_are_readable(kind: TokenizerKind, expected: list[str]) -> None:
    assert Tokenizer.train(kind, TEXTS, size=600).tokens("Transformers are") == expected


def test_a_rare_word_is_cut_into_word_pieces() -> None:
    tokenizer = Tokenizer.train("wordpiece", ["transform transform transformer farmers farmers"] * 5, size=50)
    assert tokenizer.tokens("transformers") == ["transformer", "##s"]
    assert tokenizer.decode(tokenizer.encode("transformers")) == "transformers"


@pytest.mark.parametrize("kind", KINDS)
def test_capitals_can_be_folded(kind: TokenizerKind) -> None:
    tokenizer = Tokenizer.train(kind, ["We are EATING bread"] * 2, size=300, lowercase=True)
    assert tokenizer.encode("WE ARE eating Bread") == tokenizer.encode("we are eating bread")
    assert tokenizer.decode(tokenizer.encode("We ARE")) == "we are"


@pytest.mark.parametrize(
    ("kind", "needed"), [("char", 10), ("bpe", 11), ("bytes", 262), ("wordpiece", 14), ("unigram", 11)]
)
@pytest.mark.parametrize("size", [7, 9])
def test_a_size_below_the_alphabet_is_refused_with_the_numbers(kind: TokenizerKind, needed: int, size: int) -> None:
    message = (
        rf"size={size} is too small: 6 special tokens and {needed - 6} single characters need {needed}; "
        "give at least that"
    )
    with pytest.raises(TextError, match=message):
        Tokenizer.train(kind, ["abcd"], size=size)
    assert len(Tokenizer.train(kind, ["abcd"], size=needed)) == needed


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_below_the_special_tokens_is_refused(kind: TokenizerKind) -> None:
    with pytest.raises(TextError, match="size=6 is too small: 6 special tokens and 1 single characters need 7"):
        Tokenizer.train(kind, TEXTS, size=6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_nothing_to_train_on_is_refused(kind: TokenizerKind, texts: list[str]) -> None:
    with pytest.raises(TextError, match="the texts to train a tokenizer on hold no words"):
        Tokenizer.train(kind, texts)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TextError, match=r"unknown tokenizer kind wordpeice; did you mean wordpiece\?"):
        Tokenizer.train("wordpeice", TEXTS)  # type: ignore[arg-type]


def test_one_string_is_not_a_list_of_texts() -> None:
    with pytest.raises(TextError, match="got one string; put it into a list"):
        Tokenizer.train("bpe", "some text")


@pytest.mark.parametrize("kind", ["char", "bpe", "bytes"])
def test_half_a_character_is_refused(kind: TokenizerKind) -> None:
    tokenizer = Tokenizer.train(kind, TEXTS, size=300)
    with pytest.raises(TextError, match=r"cannot encode 'a\\ud800': it is not a text of whole characters"):
        tokenizer.encode("a\ud800")
    with pytest.raises(TextError, match="half a character; read them as UTF-8"):
        Tokenizer.train(kind, ["a\ud800"], size=300)


def test_an_error_of_the_corpus_is_not_swallowed() -> None:
    def corpus() -> Iterator[str]:
        yield "a line"
        raise TextError("line 2 is broken")

    with pytest.raises(TextError, match="line 2 is broken"):
        Tokenizer.train("bpe", corpus(), size=60)


def test_files_may_be_packed(tmp_path: Path) -> None:
    text = "\n".join(TEXTS)
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    with lzma.open(tmp_path / "c.txt.xz", "wt", encoding="utf-8") as file:
        file.write(text)
    made = [Tokenizer.train_from_files("bpe", [path], size=200) for path in sorted(tmp_path.iterdir())]
    assert len({pickle.dumps(tokenizer) for tokenizer in made}) == 1


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"cannot read .*nowhere\.txt: No such file"):
        Tokenizer.train_from_files("bpe", [tmp_path / "nowhere.txt"])
    (tmp_path / "latin.txt").write_bytes("señora".encode("latin-1"))
    with pytest.raises(TextError, match=r"latin\.txt is not UTF-8 text"):
        Tokenizer.train_from_files("bpe", [tmp_path / "latin.txt"])
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"text" * 100)[:-9])
    with pytest.raises(TextError, match=r"cannot read .*torn\.gz: "):
        Tokenizer.train_from_files("bpe", [tmp_path / "torn.gz"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cannot read the tokenizer .*tokenizer\.json: No such file or directory"),
        (b"\xff\xfe\x00", r"tokenizer\.json is not a tokenizer\.json: it is not a text file"),
        (b"{ half", r"tokenizer\.json is not a tokenizer\.json: "),
        (b'{"model": 1}', r"tokenizer\.json is not a tokenizer\.json: "),
        (b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}', "not one that clearhead made"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TextError, match=message) as raised:
        Tokenizer.load(path)
    assert "\n" not in str(raised.value)


def test_another_programs_tokenizer_is_refused(tmp_path: Path) -> None:
    Tokenizer.train("bpe", TEXTS, size=100).save(tmp_path / "tokenizer.json")
    parts = json.loads((tmp_path / "tokenizer.json").read_text())
    parts["decoder"] = {"type": "Strip", "content": " ", "start": 0, "stop": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(TextError, match=r"tokenizer\.json is a tokenizer, but not one that clearhead made"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    (tmp_path / "tokenizer.json" / "file").touch()
    with pytest.raises(TextError, match=r"cannot write the tokenizer .*tokenizer\.json"):
        Tokenizer.train("char", TEXTS).save(tmp_path / "tokenizer.json")
    with pytest.raises(TextError, match=r"cannot write the tokenizer .*tokenizer\.json: No such file"):
        Tokenizer.train("char", TEXTS).save(tmp_path / "nowhere" / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_it_says_what_it_is() -> None:
    assert repr(Tokenizer.train("char", ["abcd"])) == "Tokenizer(char, 10 tokens)"


def test_pieces_are_short_and_join_to_the_text() -> None:
    for text in ("", "a", "word " * CHUNK, "x" * (3 * CHUNK + 1), " " * (2 * CHUNK)):
        assert "".join(split_chunks(text)) == text
        assert max(map(len, split_chunks(text))) <= CHUNK
    assert all(piece.startswith((" ", "word")) for piece in split_chunks("word " * CHUNK))


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    folder = Path(os.environ.get("CLEARHEAD_DATA", "nowhere")) / "gpt2-bpe"
    if not folder.is_dir():
        pytest.skip("needs $CLEARHEAD_DATA/gpt2-bpe")
    return Tokenizer.from_gpt2(folder / "encoder.json.gz", folder / "vocab.bpe.gz")


def test_the_lectures_sentence_has_the_ids_of_gpt2(gpt2: Tokenizer) -> None:
    assert len(gpt2) == 50257
    assert gpt2.encode("Transformers are awesome!") == [41762, 364, 389, 7427, 0]
    assert gpt2.tokens("Transformers are awesome!") == ["Transform", "ers", " are", " awesome", "!"]
    assert gpt2.decode([41762, 364, 389, 7427, 0, gpt2.stop]) == "Transformers are awesome!"


def test_gpt2_has_one_special_token_for_every_part(gpt2: Tokenizer, tmp_path: Path) -> None:
    gpt2.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.kind == "bytes"
    assert {again.pad, again.start, again.stop, again.mask, again.cls, again.unknown} == {50256}
    assert 50256 not in again.encode("<|endoftext|> and [PAD]")


def test_files_that_are_not_gpt2s_are_refused(tmp_path: Path) -> None:
    (tmp_path / "encoder.json").write_text('{"a": 0, "b": 1}')
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\na b c\n")
    with pytest.raises(TextError, match=r"encoder\.json and .*vocab\.bpe are not GPT-2's vocabulary and merges"):
        Tokenizer.from_gpt2(tmp_path / "encoder.json", tmp_path / "vocab.bpe")


@pytest.mark.parametrize("name", ["en-es", "shakespeare", "words"])
def test_a_vocabulary_that_is_handed_over_is_the_one_in_the_file(name: str) -> None:
    text = (BUNDLED / name / "tokenizer.json").read_text(encoding="utf-8")
    found, expected = _read_bpe(json.loads(text)), Library.from_str(text)
    assert (found is None) == (name == "words")  # whole words are read by the library
    if found is not None:
        assert json.loads(found.to_str()) == json.loads(expected.to_str())


def test_an_added_token_outside_of_the_vocabulary_is_left_to_the_library() -> None:
    parts = json.loads((BUNDLED / "shakespeare" / "tokenizer.json").read_text(encoding="utf-8"))
    last = max(parts["model"]["vocab"].values())
    parts["added_tokens"].append({**parts["added_tokens"][0], "id": last + 1, "content": "<|more|>"})
    assert _read_bpe(parts) is None
    assert Tokenizer._from_json(json.dumps(parts)).token(last + 1) == "<|more|>"
