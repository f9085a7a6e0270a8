"""Files as other programs write them: each is read for what it holds, or refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clearhead.data import read
from clearhead.data.check import check
from clearhead.data.dataset import detect
from clearhead.data.images import common_shape, pixels
from clearhead.errors import DataError

ROWS = [
    (f"a {word} film, really {word} number {number}", label)
    for number in range(17)
    for label, word in (("pos", "warm"), ("neg", "dull"))
]


def texts_of(path: Path, **options: str) -> set[tuple[str, str]]:
    dataset = read(path, **options)  # type: ignore[arg-type]
    return {(each.text, each.label) for part in (dataset.train, dataset.validation) for each in part}


def as_csv(delimiter: str, header: str = "", quotes: str = '"') -> str:
    rows = (f"{quotes}{text}{quotes}{delimiter}{label}\r\n" for text, label in ROWS)
    return (f"{header}\r\n" if header else "") + "".join(rows)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("semicolons.csv", as_csv(";")),
        ("semicolons-named.csv", as_csv(";", '"Text, in full";Label')),
        ("unquoted.csv", as_csv(";", quotes="")),  # each text has a comma
        ("pipes.csv", as_csv("|", "text|label", quotes="")),
        ("mark.csv", "\ufeff" + as_csv(",", "text,label")),
        ("other-names.csv", as_csv(",", "utterance,intent")),
        ("quoted.tsv", as_csv("\t", "text\tlabel")),
        ("pandas.csv", ",text,label\n" + "".join(f'{n},"{text}",{label}\n' for n, (text, label) in enumerate(ROWS))),
        ("constant.csv", "".join(f'today,{label},NONE,"{text}"\n' for text, label in ROWS)),
        ("list.json", json.dumps([{"text": text, "label": label} for text, label in ROWS])),
        ("list-lines.json", json.dumps([{"text": text, "label": label} for text, label in ROWS], indent=1)),
        ("wrapped.json", json.dumps({"v": 2, "data": [{"text": text, "label": label} for text, label in ROWS]})),
        (
            "columns.json",
            json.dumps({"text": [text for text, _ in ROWS], "label": [each for _, each in ROWS]}, indent=1),
        ),
        (
            "frame.json",
            json.dumps(
                {name: {str(n): row[i] for n, row in enumerate(ROWS)} for i, name in enumerate(("text", "label"))}
            ),
        ),
    ],
)
def test_an_export_is_its_texts_and_labels(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert detect(tmp_path / name).kind == "labelled"
    assert texts_of(tmp_path / name) == set(ROWS)


def test_a_quoted_tsv_may_have_quotes_and_line_breaks_inside(tmp_path: Path) -> None:
    rows = [(f'he said "{word}"\nand left', label) for word, label in ROWS]
    lines = ('"{}"\t{}\n'.format(text.replace('"', '""'), label) for text, label in rows)
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    assert texts_of(tmp_path / "a.tsv") == set(rows)


def test_quotes_of_a_plain_tsv_stay(tmp_path: Path) -> None:
    rows = [(f'"No," said {word}.', f'"Nein", sagte {word}.') for word in ("Tom", "Mary", "Kim", "Ann")]
    (tmp_path / "a.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in rows), encoding="utf-8")
    dataset = read(tmp_path / "a.tsv", validation=0)
    assert [(each.source, each.target) for each in dataset.train] == rows


def test_a_null_is_an_empty_text_and_a_list_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [*({"text": text, "label": label} for text, label in ROWS), {"text": None, "label": "pos"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert ("", "pos") in texts_of(path)
    path.write_text("".join(json.dumps({**row, "text": [row["text"]]}) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match="line 1: has no text in column text"):
        read(path, kind="labelled")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.xlsx", b"PK\x03\x04\x14\0", r"a\.xlsx: is a spreadsheet; save its sheet as CSV"),
        (
            "a.parquet",
            b"PAR1\x15\x04",
            r'a\.parquet: is a Parquet file; save it as CSV, or .*read_parquet\("a.parquet"\)',
        ),
        ("a.csv", b"label\npos\nneg\n", "has one column, label; a text and its label need two"),
        ("a.csv", b"text,label\na, b,pos\n", "line 2: has 3 columns where .* a cell with a , stands in"),
        ("a.txt", b"__label__a __label__b one\n__label__b two\n" * 9, "line 1: has several labels"),
        ("a.json", b'{"a": 1,\n"b": 2}', r"is one JSON object \(a, b\); a list of objects"),
        ("a.json", b'[{"text": 1},\n', "line 2: is not valid JSON"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        read(tmp_path / name, kind="labelled")


def test_a_label_seen_once_is_learned_and_not_held_out(tmp_path: Path) -> None:
    rows = [*ROWS, *((f"an odd one, {number}", f"rare{number}") for number in range(13))]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    dataset = read(tmp_path / "a.csv", validation=0.5)
    known = {each.label for each in dataset.train}
    assert {label for _, label in rows} == known
    assert dataset.validation
    assert len(dataset.train) + len(dataset.validation) == len(rows)
    report = check(tmp_path / "a.csv", validation=0.5)
    assert (report.train, report.validation) == (len(dataset.train), len(dataset.validation))


def test_labels_that_are_alike_or_missing_are_flagged(tmp_path: Path) -> None:
    rows = [*ROWS, ("one more", "POS"), ("and another", "POS"), ("nothing", "NaN"), ("nothing more", "NaN")]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    faults = {fault.what: fault.places for fault in check(tmp_path / "a.csv", validation=0).faults}
    assert faults["classes that differ from another only in case"] == ("POS",)
    assert faults["classes that may stand for a missing label"] == ("NaN",)


def test_folders_of_texts_are_labelled(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for number, (text, label) in enumerate(ROWS):
            file = tmp_path / part / label / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{part} {text}\n\nA second paragraph.\n", encoding="utf-8")
    dataset = read(tmp_path)
    assert dataset.columns == "the label is the folder of a file: neg, pos"
    assert (len(dataset.train), len(dataset.validation)) == (len(ROWS), len(ROWS))
    assert {each.label for each in dataset.validation} == {"pos", "neg"}
    assert dataset.train[0].text.endswith("A second paragraph.")


# --- pairs


def test_columns_of_numbers_are_no_side_of_a_pair(tmp_path: Path) -> None:
    rows = "".join(f"{7 * n}\tthe {n} cats\t{9 * n}\tlos {n} gatos\n" for n in range(23))
    (tmp_path / "a.tsv").write_text(rows, encoding="utf-8")
    dataset = read(tmp_path / "a.tsv", validation=0)
    assert dataset.columns == "the source is column 2, the target column 4 (not read: 1, 3)"
    assert (dataset.train[-1].source, dataset.train[-1].target) == ("the 22 cats", "los 22 gatos")


def test_the_direction_of_two_files_is_said(tmp_path: Path) -> None:
    for language, text in (("en", "cats"), ("de", "Katzen")):
        (tmp_path / f"corpus.{language}").write_text("".join(f"{n} {text}\n" for n in range(23)), encoding="utf-8")
    assert read(tmp_path).columns.startswith("the source is de, the target en; data.source=…")
    both = f"{tmp_path / 'corpus.en'},{tmp_path / 'corpus.de'}"
    assert read(both).columns == "the source is corpus.en, the target corpus.de"


# --- running text


def test_json_lines_of_texts_are_running_text(tmp_path: Path) -> None:
    rows = [
        {"id": number, "text": f"It was so {number}.\nAnd then not.", "url": f"x.org/{number}"} for number in range(23)
    ]
    path = tmp_path / "crawl.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    dataset = read(path, validation=0)
    assert dataset.columns == "the text is column text (not read: id, url)"
    assert "".join(dataset.train) == "".join(f"{row['text']}\n" for row in rows)
    assert "".join(read(path, kind="text", validation=0).train) == path.read_text(encoding="utf-8")


def test_a_table_of_one_column_is_running_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\n"one, two and three"\nfour or five or six\n', encoding="utf-8")
    assert "".join(read(tmp_path / "a.csv", validation=0).train) == "one, two and three\nfour or five or six\n"


def test_a_json_list_in_one_long_line(tmp_path: Path) -> None:
    rows = [{"text": f"{text} {'größer ' * 5000}", "label": label} for text, label in ROWS]
    (tmp_path / "a.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    assert (tmp_path / "a.json").stat().st_size > 1 << 20
    assert texts_of(tmp_path / "a.json") == {(row["text"], row["label"]) for row in rows}


def test_markdown_is_text_where_there_is_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Two\n", encoding="utf-8")
    assert "".join(read(tmp_path, validation=0).train) == "# Two\n"
    for name in ("a.txt", "c.txt"):
        (tmp_path / name).write_text("One\n", encoding="utf-8")
    dataset = read(tmp_path, validation=0)
    assert "".join(dataset.train) == "One\nOne\n"
    assert dataset.columns == "Markdown beside the texts is not read: b.md"


def test_a_language_model_is_told_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("".join(f"{'INFO' if n % 3 else 'ERROR'} it was {n} today\n" for n in range(40)), encoding="utf-8")
    from clearhead.data.dataset import read_sources, resolve
    from clearhead.data.source import ReadOptions

    sources = resolve(str(path), ReadOptions())
    dataset = read_sources(sources, [detect(each) for each in sources], "text", 0)
    assert "read without the labels; data.kind=text reads it as it is" in dataset.columns


# --- tagged words


@pytest.mark.parametrize("mark", ["/", "_"])
def test_words_with_their_tags(tmp_path: Path, mark: str) -> None:
    tags = {"the": "DET", "cat": "NOUN", "and/or": "CONJ", "runs": "VERB"}
    row = " ".join(f"{word}{mark}{tag}" for word, tag in tags.items())
    (tmp_path / "a.txt").write_text(f"{row}\n\n" * 9, encoding="utf-8")
    dataset = read(tmp_path / "a.txt", validation=0)
    assert (dataset.kind, dataset.columns) == ("tagged", f"the tag of a word is what stands after its last {mark}")
    assert (dataset.train[3].tokens, dataset.train[3].tags) == (tuple(tags), tuple(tags.values()))
    (tmp_path / "a.txt").write_text(f"{row}\n" * 1200 + "naked\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"line 1201: has a word without a tag; each is written word{mark}TAG"):
        read(tmp_path / "a.txt")


def test_json_objects_of_words_and_tags(tmp_path: Path) -> None:
    rows = [{"id": n, "tokens": ["the", f"cat{n}"], "ner_tags": [0, 4]} for n in range(7)]
    for name, content in (
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)),
        ("b.json", json.dumps(rows)),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        dataset = read(tmp_path / name, validation=0)
        assert (dataset.kind, dataset.columns) == ("tagged", "the words are tokens, their tags ner_tags")
        assert (dataset.train[5].tokens, dataset.train[5].tags) == (("the", "cat5"), ("0", "4"))
    (tmp_path / "a.jsonl").write_text(json.dumps({"tokens": ["a", "b"], "tags": ["X"]}), encoding="utf-8")
    with pytest.raises(DataError, match="line 1: needs as many tags as tokens"):
        read(tmp_path / "a.jsonl")


def test_the_column_of_the_tags_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("the DT B-NP O\ncat NN I-NP B-X\n\n" * 9, encoding="utf-8")
    assert read(tmp_path / "a.conll", validation=0).columns == "the word is column 1, its tag column 4 (not read: 2, 3)"


# --- images


def picture(path: Path, number: int, size: tuple[int, int] = (11, 7), **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixel = np.random.default_rng(number).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixel).save(path, **options)  # type: ignore[arg-type]


def test_folders_around_and_inside_classes(tmp_path: Path) -> None:
    for number in range(12):
        picture(tmp_path / "unpacked" / ("cat", "dog")[number % 2] / f"day{number % 3}" / f"{number}.png", number)
    dataset = read(tmp_path, validation=0)
    assert sorted(each.label for each in dataset.train) == ["cat"] * 6 + ["dog"] * 6


def test_pictures_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    for number in range(6):
        picture(tmp_path / ("cat", "dog")[number % 2] / f"{number}.png", number)
        (tmp_path / "cat" / f"{number}.HEIC").write_bytes(b"\0")
    assert read(tmp_path).columns == "6 .heic files are not read; convert them to JPEG or PNG"
    for file in tmp_path.glob("*/*.png"):
        file.unlink()
    with pytest.raises(DataError, match=r"has pictures only as \.heic; convert them"):
        read(tmp_path)


def test_labels_of_pictures_in_a_table_are_not_read_and_this_is_said(tmp_path: Path) -> None:
    for number in range(6):
        picture(tmp_path / "images" / f"{number}.jpg", number)
    rows = "".join(f"{number}.jpg,{('cat', 'dog')[number % 2]}\n" for number in range(6))
    (tmp_path / "labels.csv").write_text(f"filename,label\n{rows}", encoding="utf-8")
    with pytest.raises(DataError, match=r"has all pictures in one folder, and a table labels\.csv whose"):
        read(tmp_path)


def test_a_photo_held_upright_has_the_shape_of_its_pixels(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(tmp_path / "a.jpg", 1, exif=exif)
    assert common_shape([tmp_path / "a.jpg"]) == pixels(tmp_path / "a.jpg").shape == (11, 7, 3)


KARPATHY = {
    "images": [
        {"filename": f"{n}.jpg", "split": ("restval", "train", "val")[n % 3], "sentences": [{"raw": f"picture {n}"}]}
        for n in range(9)
    ]
}
COCO = {
    "info": {},
    "images": [{"id": 70 + n, "file_name": f"{n}.jpg"} for n in range(9)],
    "annotations": [{"image_id": 70 + n, "caption": f"picture {n}"} for n in range(9)],
}


@pytest.mark.parametrize(
    ("name", "content", "held_out"),
    [
        ("dataset.json", json.dumps(KARPATHY), 3),
        ("annotations.json", json.dumps(COCO, indent=1), None),
        ("metadata.jsonl", "".join(f'{{"file_name": "{n}.jpg", "text": "picture {n}"}}\n' for n in range(9)), None),
        ("captions.txt", "image,caption\n" + "".join(f"{n}.jpg,picture {n}\n" for n in range(9)), None),
        ("rows.csv", "filename;text\n" + "".join(f"{n}.jpg;picture {n}\n" for n in range(9)), None),
    ],
)  # fmt: skip
def test_captions_as_others_write_them(tmp_path: Path, name: str, content: str, held_out: int | None) -> None:
    for number in range(9):
        picture(tmp_path / "train2014" / f"{number}.jpg", number)
    (tmp_path / name).write_text(content, encoding="utf-8")
    for path in (tmp_path, tmp_path / name):
        dataset = read(path)
        assert dataset.kind == "captions"
        every = [*dataset.train, *dataset.validation]
        assert sorted(each.captions for each in every) == [(f"picture {n}",) for n in range(9)]
        assert all(each.image.stem == each.captions[0].split()[-1] for each in every)  # type: ignore[union-attr]
        assert held_out in (None, len(dataset.validation))
