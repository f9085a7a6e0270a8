from __future__ import annotations

import dataclasses
import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearhead.data.check import Lengths, Report, check
from clearhead.data.lint import Fault
from clearhead.errors import DataError

from .helpers import put, real


def faults(report: Report) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {fault.what: (fault.count, fault.places) for fault in report.faults}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [f"a b c {number}\tx y {number}" for number in range(40)]
    rows[3] = "only one side\t "
    rows[7] = "the same\tthe same"
    rows[11] = "hm\t" + "a very long answer indeed " * 3
    rows[13] = "caf\u00c3\u00a9\tcafé"
    rows[17] = "lost \ufffd\tlost"
    rows[19] = "bell \x07\tbell"
    rows[23] = "word " * 201 + "\t" + "word " * 199
    rows[29] = rows[28]
    rows[31] = "a b c 30\tanother"
    return put(tmp_path / "pairs.tsv", "\n".join(rows))


def test_pairs(pairs: Path) -> None:
    report = check(pairs)
    assert (report.kind, report.reason, report.unit) == ("pairs", "two text columns that both vary", "pairs")
    assert report.train + report.validation == 40
    assert (report.duplicates, report.contradictions, report.leaked) == (1, 1, None)
    assert [each.what for each in report.lengths] == [
        "source words",
        "source characters",
        "target words",
        "target characters",
    ]
    assert report.lengths[2] == Lengths("target words", 0, 3, 3, 199)
    assert report.unknown is not None
    assert report.unknown.tokenizer == "bpe"
    assert report.command == f"clearhead train translate --data {pairs}"


def test_suspicious_rows_have_their_lines(pairs: Path) -> None:
    assert faults(check(pairs)) == {
        "nothing but white space": (1, ("line 4",)),
        "both sides the same": (1, ("line 8",)),
        "one side over 9 times as long": (1, ("line 12",)),
        "wrongly decoded letters (Ã© for é)": (1, ("line 14",)),
        "replacement character �": (1, ("line 18",)),
        "control characters": (1, ("line 20",)),
        "over 200 words": (1, ("line 24",)),
    }


def test_good_text_is_not_suspicious(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", "SÃO PAULO, Âme, â\tÇa va ?\nEN ÉTÉ – déjà\t«Å»\n")
    assert check(path).faults == ()


def test_places_are_in_the_order_of_the_file_and_few(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tsv", "".join(f"same {number}\tsame {number}\n" for number in range(30)))
    assert check(path).faults == (Fault("both sides the same", 30, ("line 1", "line 2", "line 3", "line 4", "line 5")),)


def test_a_validation_part_that_leaks(tmp_path: Path) -> None:
    put(tmp_path / "train.tsv", "A  dog\tun perro\na cat\tun gato\n")
    put(tmp_path / "dev.tsv", "a dog\tel perro\na bird\ta bird\n")
    report = check(tmp_path)
    assert (report.train, report.validation, report.own_validation, report.leaked) == (2, 2, True, 1)
    assert faults(report) == {"both sides the same": (1, ("validation line 2",))}


def test_the_command_repeats_what_was_said(tmp_path: Path) -> None:
    path = put(tmp_path / "my data.csv", "a,b,c\nuno,one,1\ndos,two,2\n".encode("latin-1"))
    report = check(path, kind="pairs", source="b", target="a", encoding="latin-1")
    settings = "data.kind=pairs data.source=b data.target=a data.encoding=latin-1"
    assert report.command == f"clearhead train translate --data '{path}' {settings}"
    assert report.languages == ("b", "a")


def test_labelled(tmp_path: Path) -> None:
    rows = ["0\tfine text", "1\tbad text", "0\tfine text", "2\trare text", "1\tFine  TEXT"]
    report = check(put(tmp_path / "a.tsv", "label\ttext\n" + "\n".join(rows)), validation=0)
    assert (report.kind, report.duplicates, report.contradictions) == ("labelled", 1, 1)
    assert dict(report.classes) == {"0": 2, "1": 2, "2": 1}
    assert report.unknown is None
    assert faults(report) == {"classes seen once": (1, ("2",))}
    assert report.command.startswith("clearhead train classify")


def test_classes_that_are_too_different(tmp_path: Path) -> None:
    put(tmp_path / "train.csv", "label,text\n" + "a,x y\n" * 50 + "b,z\n" * 2)
    put(tmp_path / "valid.csv", "label,text\nc,x\n")
    assert faults(check(tmp_path)) == {
        "classes only in the validation part": (1, ("c",)),
        "one class 25 times as frequent as another": (1, ("a", "b")),
    }


def test_texts_without_words_are_reported_not_refused(tmp_path: Path) -> None:
    put(tmp_path / "train.csv", "label,text\na,\nb,\n")
    put(tmp_path / "dev.csv", "label,text\na,word\n")
    report = check(tmp_path)
    assert report.unknown is None
    assert any(fault.what.startswith("no vocabulary: the texts") for fault in report.faults)


def test_one_class_is_too_few(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "label,text\na,x y\na,z\n")
    assert faults(check(path, validation=0)) == {"only one class": (1, ("a",))}


def test_tagged(tmp_path: Path) -> None:
    report = check(put(tmp_path / "a.conll", "EU ORG\nis O\n\nit O\nis O\n\nit O\nis X\n"), validation=0)
    assert (report.unit, report.train, dict(report.classes)) == ("sentences", 3, {"O": 4, "ORG": 1, "X": 1})
    assert (report.duplicates, report.contradictions) == (0, 1)
    assert report.lengths[0] == Lengths("sentence words", 2, 2, 2, 2)
    assert report.command.startswith("clearhead train tag")


def test_images(tmp_path: Path) -> None:
    for name, size in (("cat/1", 8), ("cat/2", 8), ("cat/copy", 8), ("dog/1", 9), ("dog/copy", 8)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        colour = (size, 5, 1 if "copy" in name else int(name[-1]))
        Image.new("RGB", (size, 6), colour).save(tmp_path / f"{name}.png")
    report = check(tmp_path, validation=0)
    assert dict(report.sizes) == {"6 × 8 × 3": 4, "6 × 9 × 3": 1}
    assert dict(report.classes) == {"cat": 3, "dog": 2}
    assert (report.duplicates, report.contradictions, report.lengths, report.unknown) == (1, 1, (), None)
    assert "images of different sizes" in faults(report)


def test_an_image_that_is_none_is_found_among_many(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for number in range(300):
        Image.new("L", (2, 2), number % 256).save(tmp_path / "cat" / f"{number}.png")
    put(tmp_path / "cat" / "151.png", "not a picture")
    with pytest.raises(DataError, match=r"151\.png: is not an image"):
        check(tmp_path)


def test_captions(tmp_path: Path) -> None:
    put(tmp_path / "captions.tsv", "".join(f"{n}.png#{c}\ta dog number {n}\n" for n in range(4) for c in range(2)))
    (tmp_path / "images").mkdir()
    for number in range(4):
        Image.fromarray(np.full((3, 3), number, np.uint8)).save(tmp_path / "images" / f"{number}.png")
    report = check(tmp_path)
    assert (report.unit, report.train + report.validation, report.duplicates) == ("images", 4, 0)
    assert (report.contradictions, dict(report.sizes)) == (None, {"3 × 3 × 1": 4})
    assert report.lengths[0].median == 4
    assert report.command.startswith("clearhead train caption")


def test_text(tmp_path: Path) -> None:
    lines = [f"{number}: line number" for number in range(100)]
    lines[41] = "a \x01 control"
    report = check(put(tmp_path / "book.txt", "\n".join(lines)))
    assert (report.kind, report.unit, report.own_validation) == ("text", "characters", False)
    assert report.train + report.validation == len("\n".join(lines))
    assert report.lengths[0] == Lengths("line words", 3, 3, 3, 3)
    assert faults(report) == {"control characters": (1, ("line 42",))}
    assert report.command == f"clearhead train lm --data {tmp_path / 'book.txt'}"


def test_text_in_several_files_names_the_file(tmp_path: Path) -> None:
    put(tmp_path / "a.txt", "fine\n")
    put(tmp_path / "b.txt", "fine\nlost \ufffd\n")
    ((_, places),) = faults(check(tmp_path)).values()
    assert places == ("b.txt line 2",)


def test_a_large_text_is_never_held(tmp_path: Path) -> None:
    line = b"a" + b"b" * 900 + b"\n"
    path = put(tmp_path / "a.txt.gz", gzip.compress(line * 90_000, compresslevel=1))
    tracemalloc.start()
    try:
        report = check(path)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert report.train + report.validation == len(line) * 90_000
    assert report.looked_into == 1 / 3


def test_a_report_can_be_json(pairs: Path) -> None:
    assert json.loads(json.dumps(dataclasses.asdict(check(pairs))))["kind"] == "pairs"


def test_tatoeba_is_clean() -> None:
    report = check(real("tatoeba/en-de.tsv.gz"))
    assert report.languages == ("en", "de")
    assert (report.train + report.validation, report.duplicates, report.faults) == (165_367, 0, ())
    assert report.unknown is not None
    assert report.unknown.share < 0.001


def test_multi30k_leaks_a_sentence() -> None:
    assert check(real("multi30k"), source="en", target="de").leaked == 1
