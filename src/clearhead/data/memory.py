"""Data that is already in Python: written once, as files that the readers read, so that a run can be resumed.

    write_examples([("a dog", "un perro"), …], "pairs", folder)      a list or an iterator of tuples
    write_examples(frame, "labelled", folder)                        a pandas DataFrame: its columns are found by name
    write_examples(load_dataset("…"), "pairs", folder)               a Hugging Face dataset, or a dict of its parts

What an item is depends on the kind: a text; (source, target); (text, label); (tokens, tags); (image, label);
(image, captions). A dict has the same by the names of its columns, where there is a table of that kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clearhead.data.images import pixels
from clearhead.errors import DataError

PARTS = {"train": "train", "validation": "valid", "valid": "valid", "val": "valid", "dev": "valid"}
COLUMNS = {"pairs": ("source", "target"), "labelled": ("text", "label"), "captions": ("image", "caption")}


def write_examples(data: Any, kind: str, folder: Path) -> Path:
    """Write Python data below `folder`, and return the path to train on."""
    if kind not in WRITERS:
        raise DataError(f"{kind} cannot be given as Python objects; give the path of a file or a folder")
    parts = {name: data[name] for name in data if name in PARTS} if isinstance(data, Mapping) else {"train": data}
    if "train" not in parts:
        raise DataError(f"a dict of parts needs one called train; it has {', '.join(map(str, data)) or 'none'}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        WRITERS[kind](_items(part), folder, PARTS[name])
    return folder


def _items(part: Any) -> Iterator[Any]:
    """The rows of a table as dicts, or the items as they are; numbered classes get their names."""
    if hasattr(part, "__getitem__") and hasattr(part, "__len__") and not hasattr(part, "__iter__"):
        part = map(part.__getitem__, range(len(part)))  # a torch.utils.data.Dataset
    if isinstance(part, str | bytes) or not hasattr(part, "__iter__"):
        raise DataError(f"{type(part).__name__} is not a list, an iterator, a DataFrame or a dataset of examples")
    if hasattr(part, "to_dict") and hasattr(part, "columns"):  # pandas
        yield from part.to_dict("records")
        return
    features = getattr(part, "features", None) or {}
    names = {key: each.int2str for key, each in features.items() if hasattr(each, "int2str")}
    for item in part:
        named = isinstance(item, Mapping) and names
        yield {**item, **{key: name(item[key]) for key, name in names.items()}} if named else item


def _write_text(items: Iterator[Any], folder: Path, part: str) -> None:
    with (folder / f"{part}.txt").open("w", encoding="utf-8") as file:
        for number, item in enumerate(items, start=1):
            text = item.get("text") if isinstance(item, Mapping) else item
            if not isinstance(text, str):
                raise DataError(f"item {number} is {_shown(item)}; a text is expected")
            file.write(text if text.endswith("\n") else text + "\n")


def _write_table(kind: str) -> Callable[[Iterator[Any], Path, str], None]:
    columns = COLUMNS[kind]

    def write(items: Iterator[Any], folder: Path, part: str) -> None:
        with (folder / f"{part}.jsonl").open("w", encoding="utf-8") as file:
            for number, item in enumerate(items, start=1):
                row = item
                if not isinstance(item, Mapping):
                    row = dict(zip(columns, _both(item, number, columns), strict=True))
                try:
                    file.write(json.dumps(row, ensure_ascii=False, default=_plain) + "\n")
                except (TypeError, ValueError):
                    raise DataError(f"item {number} is {_shown(item)}; {' and '.join(columns)} are expected") from None

    return write


def _write_tagged(items: Iterator[Any], folder: Path, part: str) -> None:
    with (folder / f"{part}.conll").open("w", encoding="utf-8") as file:
        for number, item in enumerate(items, start=1):
            pair = (item.get("tokens"), item.get("tags")) if isinstance(item, Mapping) else item
            tokens, tags = _both(pair, number, ("tokens", "tags"))
            tokens = tokens.split() if isinstance(tokens, str) else tokens
            tags = tags.split() if isinstance(tags, str) else tags
            if len(tokens) != len(tags):
                raise DataError(f"item {number} has {len(tokens)} tokens and {len(tags)} tags")
            file.write("".join(f"{token}\t{tag}\n" for token, tag in zip(tokens, tags, strict=True)) + "\n")


def _write_pictures(items: Iterator[Any], folder: Path, part: str) -> None:
    for number, item in enumerate(items, start=1):
        pair = (item.get("image"), item.get("label")) if isinstance(item, Mapping) else item
        image, label = _both(pair, number, ("image", "label"))
        _save_image(image, folder / part / str(label).replace("/", "_") / f"{number:07d}.png")


def _write_captioned(items: Iterator[Any], folder: Path, part: str) -> None:
    """All captions in one table, and a list of the images of each part."""
    with (
        (folder / "captions.tsv").open("a", encoding="utf-8") as table,
        (folder / f"{part}.txt").open("w", encoding="utf-8") as listed,
    ):
        if not table.tell():
            table.write("image\tcaption\n")
        for number, item in enumerate(items, start=1):
            pair = (item.get("image"), item.get("caption", item.get("captions"))) if isinstance(item, Mapping) else item
            image, captions = _both(pair, number, ("image", "captions"))
            name = f"{part}-{number:07d}.png"
            _save_image(image, folder / "images" / name)
            listed.write(f"{name}\n")
            for caption in [captions] if isinstance(captions, str) else captions:
                table.write(f"{name}\t{' '.join(caption.split())}\n")


WRITERS: Mapping[str, Callable[[Iterator[Any], Path, str], None]] = {
    "text": _write_text,
    "pairs": _write_table("pairs"),
    "labelled": _write_table("labelled"),
    "tagged": _write_tagged,
    "images": _write_pictures,
    "captions": _write_captioned,
}


def _save_image(image: Any, path: Path) -> None:
    from PIL import Image

    array = pixels(image)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(path)


def _both(item: Any, number: int, names: Iterable[str]) -> tuple[Any, Any]:
    """The two halves of an item."""
    halves = [] if isinstance(item, str) or not hasattr(item, "__iter__") else list(item)
    if len(halves) != 2 or any(half is None for half in halves):
        raise DataError(f"item {number} is {_shown(item)}; ({', '.join(names)}) is expected")
    return halves[0], halves[1]


def _plain(value: Any) -> Any:
    """A number of numpy or pandas as one of Python."""
    return value.item()


def _shown(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:57]}…"
