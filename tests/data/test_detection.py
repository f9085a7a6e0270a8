from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data import detect, read
from clearhead.data.check import check
from clearhead.data.examples import Pair
from clearhead.data.readers import READERS
from clearhead.data.source import ReadOptions
from clearhead.errors import ClearheadError, ConfigError, DataError

from .helpers import put, real

POEM = "Tyger Tyger, burning bright,\nIn the forests of the night;\n\nWhat immortal hand or eye,\nCould frame\n"


@pytest.mark.parametrize(
    ("name", "content", "kind", "reason"),
    [
        ("a.tsv", "a dog\tun perro\na cat\tun gato\n", "pairs", "two text columns that both vary"),
        ("a.txt", "a dog\tun perro\na cat\tun gato\n", "pairs", "two text columns that both vary"),
        ("a.csv", "en,es\na dog,un perro\n", "pairs", "columns named en, es"),
        ("a.csv", "source,target\na,b\n", "pairs", "columns named source, target"),
        ("en-es.tsv", "a dog\tun perro\n", "pairs", "a file named after en, es"),
        ("a.jsonl", '{"translation": {"de": "ja", "en": "yes"}}\n', "pairs", "columns named de, en"),
        ("a.tsv", "a\tb\tCC-BY 2.0\nc\td\tCC-BY 2.0\n", "pairs", "one that says where they are from"),
        ("a.csv", "text,target\na,b\n", "labelled", "a column named target"),
        ("a.csv", "good,1\nbad,0\nfine,1\nawful,0\n", "labelled", "a column, 2, with 2 different values in 4 rows"),
        ("a.txt", "0 why ?\n1 who ?\n0 how ?\n1 when ?\n", "labelled", "lines that begin with one of a few labels"),
        ("a.conll", "EU ORG\nis O\n", "tagged", "words in columns"),
        ("a.txt", "EU ORG\nis O\n\nit O\n", "tagged", "words in columns"),
        ("a.tsv", "EU\tORG\nis\tO\n\nit\tO\n", "tagged", "words in columns"),
        ("a.tsv", "a.jpg#0\tA dog\nb.png#0\tA cat\n", "captions", "a column of image names"),
        ("a.txt", POEM, "text", "running text"),
        ("no_suffix", POEM, "text", "running text"),
        ("a.txt", "a line\twith a tab\nand one without\n", "text", "running text"),
        ("a.txt", "\tan indented line\n\tand another\n", "text", "running text"),
        ("a.txt", "text,label\nfine,1\nbad,0\n", "labelled", "a column named label"),
        ("digits.npz", "x", "images", "pictures as arrays"),
    ],
)
def test_files(tmp_path: Path, name: str, content: str, kind: str, reason: str) -> None:
    found = detect(put(tmp_path / name, content))
    assert found.kind == kind
    assert reason in found.reason


@pytest.mark.parametrize(
    ("names", "kind", "reason"),
    [
        (["train.en", "train.de"], "pairs", "files named after the languages de, en"),
        (["corpus.src", "corpus.tgt"], "pairs", "files named after the languages src, tgt"),
        (["captions.tsv", "images/a.jpg"], "captions", "a table of captions, captions.tsv"),
        (["cat/a.jpg", "dog/b.png"], "images", "pictures in one folder for each of 2 classes"),
        (["train/cat/a.jpg", "val/cat/b.png"], "images", "pictures in one folder for each of 1 classes"),
        (["t-images-idx3-ubyte", "t-labels-idx1-ubyte"], "images", "pictures as arrays, t-images-idx3-ubyte"),
        (["emma.txt", "moby.txt"], "text", "a folder of 2 text files"),
        (["train.txt", "valid.txt"], "text", "train.txt has running text"),
        (["only.txt", "README.txt"], "text", "only.txt has running text"),
    ],
)
def test_folders(tmp_path: Path, names: list[str], kind: str, reason: str) -> None:
    for name in names:
        put(tmp_path / name, POEM)
    found = detect(tmp_path)
    assert (found.kind, found.reason) == (kind, reason)


def test_what_the_user_asks_for_helps_to_decide(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "who,what,how\nme,a b c,x\nyou,d e f,y\nthey,g h,x\nwe,i j,y\n")
    assert detect(path, options=ReadOptions(source="what", target="who")).kind == "pairs"
    assert detect(path, options=ReadOptions(source="what", target="how")).kind == "labelled"


def test_the_kind_can_be_forced(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "0 why ?\n1 who ?\n0 how ?\n1 when ?\n")
    assert read(path, kind="text").kind == "text"


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown kind pair; did you mean pairs\?"):
        read("anything", kind="pair")


def test_builtin_needs_a_kind() -> None:
    with pytest.raises(ConfigError, match=r"builtin has data of every kind; choose with --kind .* from: pairs, text"):
        read("builtin")


def test_builtin_is_split_like_any_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"pairs": tuple(Pair(str(number), "x") for number in range(99)), "text": ("one line\n" * 50, "the end\n")}
    monkeypatch.setattr("clearhead.data.builtin.examples", own.__getitem__)
    dataset = read("builtin", kind="pairs")
    assert (dataset.origin, len(dataset.train) + len(dataset.validation)) == ("builtin", 99)
    assert 0 < len(dataset.validation) < 20
    text = read("builtin", kind="text", validation=0.1)
    assert "".join(text.train) + "".join(text.validation) == "".join(own["text"])
    assert 0 < text.validation.characters < 60
    assert check("builtin", kind="text").command == "clearhead train lm --data builtin"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "text\nonly\none\n", "has one column"),
        ("a.json", '[\n{"en": "a"}\n]\n', "has one column"),
        ("a.json", '[\n{"en": "a"\n', "line 3: is not valid JSON"),
        ("a.txt", "", "is empty"),
        ("a.txt", "x" * 1_500_000, r"line 1: is 1\.5 MB long.*--kind text \(data\.kind=text\)"),
    ],
)
def test_what_has_no_kind_is_one_sentence(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        detect(put(tmp_path / name, content))


PIECES = [
    "a dog",
    "\t",
    "\n",
    "\n\n",
    ",",
    '"',
    '{"en": "a"}',
    "label",
    "en",
    "0 ",
    "#",
    "\r\n",
    "\ufeff",
    "\0",
    "é",
    "\\ud800",
]
NAMES = ["a.tsv", "a.csv", "a.jsonl", "a.txt", "a.conll", "a.npz", "a-images-idx3-ubyte", "captions.tsv", "train.en"]


@settings(max_examples=300)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=20),
    name=st.sampled_from(NAMES),
    kind=st.sampled_from([None, None, *READERS.builtin()]),
    broken=st.booleans(),
)
def test_whatever_the_bytes_it_is_data_or_one_sentence(tmp_path_factory, pieces, name, kind, broken) -> None:
    content = "".join(pieces).encode("latin-1" if broken and "\ufeff" not in pieces else "utf-8")
    path = put(tmp_path_factory.mktemp("any") / name, content)
    sentence = ""
    try:
        assert any(True for _ in read(path, kind=kind).train)
    except ClearheadError as mistake:
        sentence = str(mistake)
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], "is an empty folder"),
        (["a.pdf"], r"holds no data files \(.csv, .tsv"),
        (["a.tar.xz"], "unpack a.tar.xz first"),
        (["inner/deeper/a.txt"], "its folders are inner"),
    ],
)
def test_folders_with_nothing_to_learn_from(tmp_path: Path, names: list[str], sentence: str) -> None:
    for name in names:
        put(tmp_path / name, "x")
    with pytest.raises(DataError, match=sentence):
        detect(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("multi30k", "pairs"),
        ("tatoeba/en-fr.tsv.gz", "pairs"),
        ("tinyshakespeare/input.txt.gz", "text"),
        ("wikitext2", "text"),
        ("sst2/dev.tsv.gz", "labelled"),
        ("mnist/train-labels-idx1-ubyte.gz", "images"),
        ("flickr8k", "captions"),
        ("word2vec/questions-words.txt", "text"),
    ],
)
def test_real_corpora(name: str, kind: str) -> None:
    assert detect(real(name)).kind == kind


# What each layout was detected as before readers said it themselves: (files, kind, reason); `=` marks the path given.
TAGS = "EU\tORG\nis\tO\n\nit\tO\n"
PAIRS = "a dog\tun perro\na cat\tun gato\n"
IMAGES = "a.jpg\tA dog\nb.png\tA cat\n"
LABELS = "good film\tpos\nbad film\tneg\nfine film\tpos\nugly film\tneg\n"
LABEL_LINES = "0 why ?\n1 who ?\n0 how ?\n1 when ?\n"
RECORDED: dict[str, tuple[dict[str, str], str, str]] = {
    "aligned files beside captions": (
        {"train.en": POEM, "train.de": POEM, "captions.tsv": IMAGES},
        "pairs",
        "files named after the languages de, en",
    ),
    "captions beside arrays": ({"captions.tsv": IMAGES, "x.npz": "x"}, "captions", "a table of captions, captions.tsv"),
    "captions beside class folders": (
        {"captions.tsv": IMAGES, "cat/a.png": "x"},
        "captions",
        "a table of captions, captions.tsv",
    ),
    "arrays beside class folders": ({"x.npz": "x", "cat/a.png": "x"}, "images", "pictures as arrays, x.npz"),
    "class folders beside a table": (
        {"cat/a.png": "x", "dog/b.png": "x", "train.tsv": PAIRS},
        "images",
        "pictures in one folder for each of 2 classes",
    ),
    "one folder of pictures beside a table": (
        {"images/a.png": "x", "train.tsv": PAIRS},
        "error",
        "has all pictures in one folder, and a table train.tsv whose labels are not read; put the pictures of each "
        "class in a folder named after it",
    ),
    "pictures beside a table": (
        {"a.png": "x", "train.tsv": PAIRS},
        "error",
        "has no pictures in folders; put those of each class in a folder named after it",
    ),
    "pictures beside texts": (
        {"a.png": "x", "emma.txt": POEM, "moby.txt": POEM},
        "error",
        "has no pictures in folders; put those of each class in a folder named after it",
    ),
    "pictures beside an empty folder": (
        {"a.png": "x", "inner/note.pdf": "x", "train.tsv": PAIRS},
        "pairs",
        "train.tsv has two text columns that both vary",
    ),
    "texts beside a table": (
        {"emma.txt": POEM, "moby.txt": POEM, "train.tsv": PAIRS},
        "pairs",
        "train.tsv has two text columns that both vary",
    ),
    "two tables": (
        {"a.tsv": PAIRS, "b.tsv": PAIRS},
        "error",
        "holds several data files (a.tsv, b.tsv); give one, or name them train.* and valid.*",
    ),
    "train and valid tables": (
        {"train.tsv": LABELS, "valid.tsv": LABELS},
        "labelled",
        "train.tsv has a column, 2, with 2 different values in 4 rows",
    ),
    "train and valid tags": (
        {"train.conll": TAGS, "dev.conll": TAGS},
        "tagged",
        "train.conll has words in columns with a blank line after each sentence",
    ),
    "one language only": (
        {"train.en": POEM, "valid.en": POEM},
        "error",
        "holds no data files (.csv, .tsv, .jsonl, .txt, .conll)",
    ),
    "labels in a folder": (
        {"train.txt": LABEL_LINES},
        "labelled",
        "train.txt has lines that begin with one of a few labels",
    ),
    "only documentation": (
        {"README.txt": POEM, "LICENSE": POEM},
        "error",
        "holds no data files (.csv, .tsv, .jsonl, .txt, .conll)",
    ),
    "a picture that is text": (
        {"=a.ppm": "P3 2 2\n255 0 0\n0 255 0\n255 0 0\n0 255 0\n"},
        "error",
        "is a single picture; give the folder of a dataset",
    ),
    "tags whose columns are languages": (
        {"=a.tsv": "en\tde\nein\tO\n\ndas\tO\n"},
        "tagged",
        "words in columns with a blank line after each sentence",
    ),
    "images named in a column called en": (
        {"=a.csv": "en,de\na.jpg,Hund\nb.png,Katze\n"},
        "captions",
        "a column of image names beside one of sentences",
    ),
    "image names as labels": (
        {"=a.csv": "image,label\na.jpg,x\nb.jpg,y\nc.jpg,x\nd.jpg,y\n"},
        "captions",
        "a column of image names beside one of sentences",
    ),
    "labels among languages": ({"=a.csv": "en,es,label\na,b,x\nc,d,y\n"}, "pairs", "columns named en, es"),
    "attribution and few values": (
        {"=a.tsv": "a\tx\tCC-BY\nb\tx\tCC-BY\nc\ty\tCC-BY\nd\ty\tCC-BY\n"},
        "pairs",
        "two columns of sentences and one that says where they are from",
    ),
    "a table without varying columns": (
        {"=a.tsv": "x\ty\nx\ty\nx\ty\nx\ty\n"},
        "labelled",
        "a column, 1, with 1 different values in 4 rows",
    ),
    "three text columns": (
        {"=a.tsv": "a b\tc d\te f\ng h\ti j\tk l\nm n\to p\tq r\n"},
        "pairs",
        "several text columns that vary",
    ),
    "a table of one column": (
        {"=a.tsv": "one\ntwo\nthree\n"},
        "error",
        "has one column; pairs and labelled texts need two, plain text a .txt file",
    ),
    "labels in one column": ({"=a.csv": "label\nx\ny\nx\ny\n"}, "labelled", "a column named label"),
    "an uneven table": (
        {"=a.tsv": "a\tb\nc\td\te\n"},
        "error",
        "has 3 columns where the rows before it have 2; each row needs the same columns",
    ),
    "an uneven table with blank lines": (
        {"=a.tsv": "a\tb\n\nc\td\te\n"},
        "error",
        "has 3 columns where the rows before it have 2; each row needs the same columns",
    ),
    "blank lines only": ({"=a.conll": "\n \n\n"}, "error", "is empty"),
    "a header only": ({"=a.csv": "text,label\n"}, "error", "holds a header and no rows"),
    "binary": ({"=a.txt": "a\0b"}, "error", "is a binary file, not text (it holds a NUL byte)"),
    "binary tags": ({"=a.conll": "a\0b"}, "error", "is a binary file, not text (it holds a NUL byte)"),
    "idx by name": ({"=train-labels-idx1-ubyte": "x"}, "images", "pictures as arrays"),
    "objects without a suffix": (
        {"=data": '{"text": "a b", "label": "x"}\n{"text": "c d", "label": "y"}\n'},
        "labelled",
        "a column named label",
    ),
    "a language pair in the name": ({"=en_de.tsv": "a b\tc d\nx y\tz w\n"}, "pairs", "a file named after en, de"),
    "a language pair with a label": (
        {"=en-de.tsv": "a b\tx\nc d\ty\ne f\tx\ng h\ty\n"},
        "pairs",
        "a file named after en, de",
    ),
    "words and numbers": (
        {"=a.txt": "EU 1\nis 2\n\nit 1\n"},
        "tagged",
        "words in columns with a blank line after each sentence",
    ),
    "comments and tags": (
        {"=a.txt": "# id = 1\nEU ORG\nis O\n\n# id = 2\nit O\n"},
        "tagged",
        "words in columns with a blank line after each sentence",
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_every_layout_is_detected_as_recorded(tmp_path: Path, name: str) -> None:
    files, kind, reason = RECORDED[name]
    for file, content in files.items():
        put(tmp_path / file.lstrip("="), content)
    path = next((tmp_path / file[1:] for file in files if file.startswith("=")), tmp_path)
    if kind == "error":
        with pytest.raises(DataError, match=re.escape(reason) + "$"):
            detect(path)
    else:
        found = detect(path)
        assert (found.kind, found.reason) == (kind, reason)
