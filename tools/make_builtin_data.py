"""Write the built-in text data again: `python tools/make_builtin_data.py [FOLDER]`.

Everything is a pure function of fixed seeds, so the files hold the same text as those in the package. Their compressed
bytes may differ between versions of zlib; `--check` compares the text and writes nothing.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from builtin_data.pairs import pairs
from builtin_data.prose import texts
from builtin_data.reviews import reviews
from builtin_data.tags import tagged_sentences

PACKAGE = Path(__file__).parents[1] / "src" / "clearhead" / "data" / "builtin"


def pair_lines() -> Iterator[str]:
    """`source<TAB>target`, one pair to a line."""
    return (f"{pair.source}\t{pair.target}\n" for pair in pairs())


def prose_lines() -> Iterator[str]:
    """Texts with two blank lines between them; inside a text there is at most one."""
    for number, text in enumerate(texts()):
        if "\n\n\n" in text or text != text.strip("\n"):
            raise ValueError(f"text {number} has blank lines that would be taken for its end")
        yield f"\n\n\n{text}" if number else text


def review_lines() -> Iterator[str]:
    """`label<TAB>text`, one review to a line."""
    return (f"{review.label}\t{review.text}\n" for review in reviews())


def tag_lines() -> Iterator[str]:
    """`word<TAB>tag`, one word to a line, and a blank line after each sentence."""
    for sentence in tagged_sentences():
        yield from (f"{token}\t{tag}\n" for token, tag in zip(sentence.tokens, sentence.tags, strict=True))
        yield "\n"


FILES: dict[str, Callable[[], Iterator[str]]] = {
    "pairs.tsv.gz": pair_lines,
    "prose.txt.gz": prose_lines,
    "reviews.tsv.gz": review_lines,
    "tags.conll.gz": tag_lines,
}


def content(name: str) -> bytes:
    """The uncompressed bytes of one of the files."""
    return "".join(FILES[name]()).encode()


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description="Write the built-in text data again.")
    parser.add_argument(
        "folder", nargs="?", type=Path, default=PACKAGE, help="where the files go; default: the package"
    )
    parser.add_argument("--check", action="store_true", help="compare the files in the folder, and write nothing")
    arguments = parser.parse_args()
    different = []
    for name in FILES:
        file = arguments.folder / name
        if not arguments.check:
            file.write_bytes(gzip.compress(content(name), compresslevel=9, mtime=0))
        elif gzip.decompress(file.read_bytes()) != content(name):
            different.append(name)
    if different:
        print(f"these files hold something else: {', '.join(different)}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
