from __future__ import annotations

import gzip
import itertools
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import clearhead
from clearhead.data import hub, read
from clearhead.data.catalogue import CATALOGUE
from clearhead.data.check import check
from clearhead.data.dataset import detect, find_reader, read_parts, read_sources, resolve
from clearhead.data.source import ReadOptions, Source
from clearhead.errors import ConfigError, DataError, DownloadError

from .helpers import put

REAL = os.environ.get("CLEARHEAD_DATA")
SENTENCES = {"en": "a dog", "de": "ein Hund", "fr": "un chien"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with four known datasets, each a few lines long; the working folder is beside it, and empty."""
    folder = tmp_path / "data"
    for language, sentence in SENTENCES.items():
        for part, count in (("train", 7), ("val", 3)):
            lines = "".join(f"{sentence} {part} {number}\n" for number in range(count))
            put(folder / "multi30k" / f"{part}.{language}.gz", gzip.compress(lines.encode()))
    put(folder / "trec/train.txt.gz", gzip.compress("0 où ?\n1 qui ?\n0 où donc ?\n1 qui donc ?\n".encode("latin-1")))
    for part, text in (("train", "a long\nbook"), ("valid", "its end")):
        put(folder / f"wikitext2/{part}.txt.gz", gzip.compress(text.encode()))
    for part, rows in (("train", "fine film\t1\ndull film\t0\n"), ("dev", "good\t1\n")):
        put(folder / f"sst2/{part}.tsv.gz", gzip.compress(f"sentence\tlabel\n{rows}".encode()))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("CLEARHEAD_DATA", str(folder))
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    return folder


# Names


def test_a_name_stands_for_its_dataset_and_how_to_read_it(data: Path) -> None:
    assert resolve("multi30k", ReadOptions()) == (
        Source("multi30k", (data / "multi30k",), ReadOptions("utf-8", "en", "de")),
    )
    assert resolve("trec", ReadOptions())[0].options == ReadOptions("latin-1")


@pytest.mark.parametrize(
    ("said", "filled"),
    [
        (("fr", None), ("fr", "de")),
        ((None, "fr"), ("en", "fr")),
        (("de", None), ("de", "en")),
        ((None, "en"), ("de", "en")),
        (("fr", "en"), ("fr", "en")),
    ],
)
@pytest.mark.usefixtures("data")
def test_what_the_user_says_comes_first(said: tuple[str, str], filled: tuple[str, str]) -> None:
    assert resolve("multi30k", ReadOptions("cp1252", *said))[0].options == ReadOptions("cp1252", *filled)
    first = read("multi30k", source=said[0], target=said[1]).train[0]
    assert (first.source, first.target) == tuple(f"{SENTENCES[language]} train 0" for language in filled)


@pytest.mark.usefixtures("data")
def test_a_named_dataset_is_read_under_its_name() -> None:
    pairs = read("multi30k")
    assert (pairs.origin, pairs.kind, len(pairs.train), len(pairs.validation)) == ("multi30k", "pairs", 7, 3)
    questions = read("trec", validation=0)
    assert (questions.train[0].label, questions.train[0].text) == ("0", "où ?")
    assert questions.origin == "trec"


@pytest.mark.usefixtures("data")
def test_a_check_repeats_the_name_and_only_what_was_said() -> None:
    report = check("multi30k", target="fr")
    assert (report.path, report.languages) == ("multi30k", ("en", "fr"))
    assert report.command == "clearhead train translate --data multi30k data.target=fr"
    assert check("trec").command == "clearhead train classify --data trec"


@pytest.mark.usefixtures("data")
def test_what_exists_under_the_name_wins() -> None:
    put(Path("trec"), "mine\n")
    assert resolve("trec", ReadOptions()) == (Source("trec", (Path("trec"),), ReadOptions()),)
    assert list(read("trec", kind="text", validation=0).train) == ["mine\n"]


@pytest.mark.usefixtures("data")
def test_a_run_directory_of_that_name_is_no_data(data: Path) -> None:
    put(Path("trec/config.yaml"), b"task: classify\n")
    assert resolve("trec", ReadOptions())[0].path == data / "trec/train.txt.gz"


def test_a_path_is_never_a_name() -> None:
    for path in (Path("trec"), "./trec"):
        with pytest.raises(DataError, match=r"trec: does not exist"):
            read(path)


@pytest.mark.usefixtures("data")
def test_a_typing_error_gets_the_nearest_name_and_the_nearest_file() -> None:
    with pytest.raises(DataError, match=r"^multi30: does not exist; did you mean the dataset multi30k\?$"):
        read("multi30")
    put(Path("multi31k"), "x")
    with pytest.raises(DataError, match=r"^multi32k: does not exist; did you mean multi31k or the dataset multi30k\?$"):
        read("multi32k")
    with pytest.raises(DataError, match=r"^nothing-like-it: does not exist$"):
        read("nothing-like-it")
    with pytest.raises(DataError, match=r"^no/such\.tsv: does not exist, and neither does the folder no$"):
        read("no/such.tsv")


@pytest.mark.usefixtures("data")
def test_a_dataset_that_cannot_be_had_says_so() -> None:
    with pytest.raises(DownloadError, match=r"gutenberg cannot be downloaded; put .* below \$CLEARHEAD_DATA"):
        read("gutenberg")


@pytest.mark.usefixtures("data")
def test_builtin_and_aligned_files_are_as_the_user_says() -> None:
    put(Path("a.en"), "a dog\n")
    put(Path("a.de"), "ein Hund\n")
    assert resolve("builtin", ReadOptions()) == (Source("builtin", (), ReadOptions()),)
    assert resolve("a.en,a.de", ReadOptions()) == (Source("a.en,a.de", (Path("a.en"), Path("a.de")), ReadOptions()),)
    with pytest.raises(DataError, match="two aligned files, which only translation pairs can be"):
        read("a.en,a.de", kind="labelled")
    with pytest.raises(DataError, match=r"^trec: does not exist"):
        resolve("trec,a.de", ReadOptions())


# Opening files

# One process for all cases: an audit hook cannot be taken away again.
OPENS = """
import json, os, sys
from collections import Counter
from clearhead.data import read

opened = Counter()
sys.addaudithook(lambda event, arguments: opened.update([str(arguments[0])] * (event == "open")))
for folder, path, kind, file in json.load(sys.stdin):
    os.chdir(folder)
    opened.clear()
    next(iter(read(path, kind=kind).train))
    print(opened[file])
"""
FILES = [
    ("a.tsv", "a.tsv", "a dog\tun perro\na cat\tun gato\n", "pairs", 2),
    ("a.tsv.gz", "a.tsv.gz", gzip.compress(b"a dog\tun perro\na cat\tun gato\n", mtime=0), "pairs", 2),
    ("a.csv", "a.csv", "en,es\na dog,un perro\na cat,un gato\n", "pairs", 2),
    ("a.jsonl", "a.jsonl", '{"en": "a", "de": "b"}\n{"en": "c", "de": "d"}\n', "pairs", 2),
    ("d", "d/train.tsv", "a dog\tun perro\na cat\tun gato\n", "pairs", 2),
    ("a.csv", "a.csv", "text,label\nfine,1\nbad,0\n", "labelled", 2),
    ("a.txt", "a.txt", "0 why ?\n1 who ?\n0 how ?\n1 when ?\n", "labelled", 2),
    ("a.conll", "a.conll", "EU ORG\nis O\n\nit O\n\nis O\n", "tagged", 2),
    ("a.txt", "a.txt", "a long story\nin two lines\n", "text", 3),  # seen, counted, then read
]
OPENED = [(number, given) for number in range(len(FILES)) for given in (False, True)]


@pytest.fixture(scope="module")
def times_opened(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, bool], int]:
    """How often each file is opened, by its place in the list and whether the kind was given."""
    cases = []
    for number, given in OPENED:
        path, file, content, kind, _ = FILES[number]
        folder = tmp_path_factory.mktemp("opened")
        put(folder / file, content)
        cases.append((str(folder), path, kind if given else None, file))
    environment = {**os.environ, "PYTHONPATH": str(Path(clearhead.__file__).parents[1])}
    words = [sys.executable, "-c", OPENS]
    done = subprocess.run(
        words, input=json.dumps(cases), env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(zip(OPENED, map(int, done.stdout.split()), strict=True))


@pytest.mark.parametrize(("number", "given"), OPENED)
def test_a_file_is_opened_at_most_twice_before_its_examples_come(
    times_opened: dict[tuple[int, bool], int], number: int, given: bool
) -> None:
    assert 1 <= times_opened[number, given] <= FILES[number][-1]


# Texts joined by +


@pytest.mark.usefixtures("data")
def test_joined_texts_keep_their_own_parts_and_begin_on_new_lines() -> None:
    dataset = read("wikitext2+sst2")
    assert (dataset.kind, dataset.origin) == ("text", "wikitext2+sst2")
    assert "".join(dataset.train) == "a long\nbook\nfine film\ndull film\n"
    assert "".join(dataset.validation) == "its end\ngood\n"
    assert dataset.train.characters == len("a long\nbook\nfine film\ndull film\n")
    assert list(dataset.train) == list(dataset.train)


@pytest.mark.usefixtures("data")
def test_the_order_is_the_users_and_the_last_share_of_each_is_held_out() -> None:
    put(Path("b.txt"), "line\n" * 10)
    put(Path("c.csv"), "text,label\n" + 'one,x\n"two\nthree",y\n' * 5)
    dataset = read("c.csv + b.txt", validation=0.2)
    assert "".join(dataset.train) == "one\ntwo three\n" * 4 + "line\n" * 8
    assert "".join(dataset.validation) == "one\ntwo three\n" + "line\n" * 2


@pytest.mark.usefixtures("data")
def test_as_text_a_joined_table_is_taken_as_it_is() -> None:
    put(Path("a.csv"), "text,label\nfine,1\nbad,0\n")
    put(Path("b.txt"), "the end")
    assert "".join(read("a.csv+b.txt", validation=0).train) == "fine\nbad\nthe end"
    assert "".join(read("a.csv+b.txt", kind="text", validation=0).train) == "text,label\nfine,1\nbad,0\nthe end"


@pytest.mark.usefixtures("data")
def test_a_path_with_a_plus_wins() -> None:
    put(Path("wikitext2+sst2"), "mine\n")
    assert resolve("wikitext2+sst2", ReadOptions())[0].path == Path("wikitext2+sst2")
    with pytest.raises(DataError, match=r"^c\+\+\.txt: does not exist$"):
        read("c++.txt")
    put(Path("salt+pepper.txt"), "mine\n")
    with pytest.raises(DataError, match=r"^salt\+peper\.txt: does not exist; did you mean salt\+pepper\.txt\?$"):
        read("salt+peper.txt")


@pytest.mark.usefixtures("data")
def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match=r"^sst3: does not exist; did you mean the dataset sst2\?$"):
        read("wikitext2+sst3")


@pytest.mark.usefixtures("data")
def test_what_one_source_holds_out_is_not_trained_on() -> None:
    put(Path("mine.tsv"), "a dog\tein Hund\nA  Cat\teine Katze\na bird\tein Vogel\n")
    put(Path("other/train.tsv"), "en\tde\na cat\tdie Katze\na dog\tder Hund\na fish\tein Fisch\n")
    put(Path("other/valid.tsv"), "en\tde\na bird\tder Vogel\n")
    joined = read("mine.tsv+other", kind="pairs", validation=0.01)
    [own] = read("mine.tsv", kind="pairs", validation=0.01).validation
    held_out = {own.source.lower(), "a bird"}
    assert {pair.source.lower() for pair in joined.validation} == held_out
    texts = [pair.target for pair in joined.train]
    assert sorted(texts) == sorted(
        target
        for source, target in [
            ("a dog", "ein Hund"),
            ("a  cat", "eine Katze"),
            ("a cat", "die Katze"),
            ("a dog", "der Hund"),
            ("a fish", "ein Fisch"),
            ("a bird", "ein Vogel"),
        ]
        if " ".join(source.split()) not in {" ".join(each.split()) for each in held_out}
    )
    assert joined.origin == "mine.tsv+other"


@pytest.mark.usefixtures("data")
def test_examples_are_checked_one_source_at_a_time() -> None:
    with pytest.raises(DataError, match=r"^sst2\+trec: joins 2 sources with \+, and only running text is checked"):
        check("sst2+trec", kind="labelled")
    with pytest.raises(ConfigError, match="builtin has data of every kind"):
        read("wikitext2+builtin")


@pytest.mark.usefixtures("data")
def test_a_check_of_joined_texts_names_the_place() -> None:
    put(Path("odd.txt"), "fine\nlost \ufffd\n")
    report = check("wikitext2+sst2+odd.txt")
    assert (report.kind, report.own_validation) == ("text", False)
    assert report.reason.startswith("wikitext2 train.txt.gz has running text; sst2 train.tsv.gz has a column named")
    assert [(fault.what, fault.places) for fault in report.faults] == [
        ("replacement character \ufffd", ("odd.txt line 2",))
    ]
    assert report.command == "clearhead train lm --data wikitext2+sst2+odd.txt"
    assert check("wikitext2+sst2").own_validation


# The real ones


def beginning(archive: Path, folder: Path, _report: object) -> None:
    """Unpack the first members only: enough to see what is inside."""
    with tarfile.open(archive) as members:
        for member in itertools.islice(members, 40):
            members.extract(member, folder, filter="data")


@pytest.mark.skipif(not REAL, reason="needs the real corpora: set CLEARHEAD_DATA")
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("mnist", "label='5'"),
        ("multi30k", "Two young, White males are outside near many bushes."),
        ("tatoeba-en-es", "Pair(source="),
        ("sst2", "hide new secretions from the parental units"),
        ("trec", "How did serfdom develop"),
        ("cifar10", "label='"),
        ("tinyshakespeare", "First Citizen:"),
        ("gutenberg", "["),
        ("wikitext2+sst2", "Valkyria Chronicles III"),
        ("flickr8k", None),  # its table speaks of every image, and only some are unpacked here
    ],
)
def test_real_datasets_by_name(name: str, first: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "unpack_tar", beginning)
    sources = resolve(name, ReadOptions())
    found = [detect(source) for source in sources]
    assert [each.kind for each in found] == [CATALOGUE[source.name].kind for source in sources]
    if found[0].kind == "text":
        assert first in next(iter(read_sources(sources, found, "text", 0).train))
    elif first:
        assert first in str(read_parts(sources[0], find_reader(found[0].kind)).train[0])
