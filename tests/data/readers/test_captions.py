from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from clearhead.data import read
from clearhead.data.examples import Captioned
from clearhead.errors import DataError

from ..helpers import put, real

FLICKR = "a.jpg#0\tA dog .\na.jpg#1\tThe dog .\nb.jpg#0\tA cat .\nc.jpg#0\tA bird .\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path / "captions.tsv.gz", gzip.compress(FLICKR.encode()))
    for name in "abc":
        put(tmp_path / "images" / f"{name}.jpg", f"pixels of {name}")
    return tmp_path


def captions(path: Path, **options) -> list[Captioned]:
    return sorted(read(path, validation=0, **options).train, key=lambda example: example.line)


def test_captions_are_grouped_by_image(folder: Path) -> None:
    assert captions(folder) == [
        Captioned(folder / "images" / "a.jpg", ("A dog .", "The dog ."), 1),
        Captioned(folder / "images" / "b.jpg", ("A cat .",), 3),
        Captioned(folder / "images" / "c.jpg", ("A bird .",), 4),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.tsv", "a.jpg\tA dog .\nb.jpg\tA cat .\n"),
        ("captions.txt", "image,caption\na.jpg,A dog .\nb.jpg,A cat .\n"),
        ("captions.csv", 'caption,image\n"A dog .",a.jpg\nA cat .,b.jpg\n'),
        ("captions.jsonl", '{"file_name": "a.jpg", "text": "A dog ."}\n{"file_name": "b.jpg", "text": "A cat ."}\n'),
    ],
)
def test_other_tables(folder: Path, name: str, content: str) -> None:
    (folder / "captions.tsv.gz").unlink()
    put(folder / name, content)
    assert [example.captions for example in captions(folder)] == [("A dog .",), ("A cat .",)]


def test_lists_say_which_part_an_image_is_in(folder: Path) -> None:
    put(folder / "train.txt", "b.jpg\n")
    put(folder / "dev.txt", "a.jpg\n")
    (folder / "images" / "c.jpg").unlink()  # in no list, so not missed
    dataset = read(folder)
    assert dataset.kind == "captions"
    assert [[example.image.name for example in part] for part in (dataset.train, dataset.validation)] == [
        ["b.jpg"],
        ["a.jpg"],
    ]


def test_missing_images_are_counted_and_the_first_named(folder: Path) -> None:
    for name in "bc":
        (folder / "images" / f"{name}.jpg").unlink()
    with pytest.raises(
        DataError, match=r"captions\.tsv\.gz, line 3: has captions of 2 images not in .*, the first b\.jpg"
    ):
        read(folder)


def test_listed_images_need_captions(folder: Path) -> None:
    put(folder / "train.txt", "a.jpg\nd.jpg\n")
    with pytest.raises(DataError, match=r"train\.txt: lists 1 images without a caption, the first d\.jpg"):
        read(folder)


def test_a_folder_without_captions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no captions\.tsv beside its images"):
        read(tmp_path, kind="captions")


def test_an_uneven_row(folder: Path) -> None:
    put(folder / "captions.tsv.gz", FLICKR + "d.jpg\tone\ttwo\n")
    with pytest.raises(DataError, match="line 5: has 3 columns where the rows before it have 2"):
        read(folder)


def test_the_captions_of_flickr8k_without_their_images() -> None:
    with pytest.raises(DataError, match=r"has captions of 6,000 images not in .*, the first 2513260012_03d33305cf"):
        read(real("flickr8k"))
