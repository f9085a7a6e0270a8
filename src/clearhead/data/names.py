"""The words by which files, folders and columns say what they hold, in one place for every reader."""

from __future__ import annotations

import re
from pathlib import Path

# Parts of a dataset. A test part serves as validation only where there is no other.
TRAIN = frozenset({"train", "training"})
VALIDATION = frozenset({"valid", "validation", "val", "dev", "development"})
TEST = frozenset({"test", "testing", "t10k"})

# Columns.
SOURCE = frozenset({"source", "src"})
TARGET = frozenset({"target", "tgt", "trg"})
LABEL = frozenset({"label", "labels", "class", "category", "sentiment", "target", "y"})
TEXT = frozenset({"text", "sentence", "content", "review", "body", "question", "document", "message", "title"})
IMAGE = frozenset({"image", "image_name", "file", "file_name", "filename", "path"})
CAPTION = frozenset({"caption", "captions", "comment", "description"})
TOKEN = frozenset({"token", "word", "form"})
TAG = frozenset({"tag", "ner", "ner_tag", "pos", "upos", "xpos", "chunk"})

# ISO 639-1, and the names of the languages that sentence collections use most.
_LANGUAGES = """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv
    ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne
    ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st
    su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    arabic chinese czech danish dutch english finnish french german greek hebrew hindi hungarian italian japanese
    korean norwegian polish portuguese romanian russian spanish swedish turkish ukrainian vietnamese
"""
LANGUAGES = frozenset(_LANGUAGES.split())

COLUMNS = SOURCE | TARGET | LABEL | TEXT | IMAGE | CAPTION

TABLES = frozenset({".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json"})
TEXTS = frozenset({".txt", ".raw", ".tokens"})
TAGGED = frozenset({".conll", ".conllu", ".iob", ".iob2", ".bio"})
PICTURES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
NOT_DATA = frozenset({"readme", "license", "licence", "sources", "about"})


def bare(path: Path) -> str:
    """The lower-case name of a file without the ending of its compression.

    >>> bare(Path("corpus/Train.TSV.gz"))
    'train.tsv'
    """
    name = path.name.lower()
    return name.removesuffix(".gz").removesuffix(".xz")


def suffix(path: Path) -> str:
    """What a file is by its name: `.tsv` for `train.tsv.gz`."""
    return Path(bare(path)).suffix


def is_language(name: str) -> bool:
    """Whether a column or a file ending names a language: `en`, `pt-br`, `Spanish`."""
    return re.split(r"[-_]", name.strip().casefold())[0] in LANGUAGES


def part(path: Path) -> str:
    """Which part of a dataset a name speaks of: train, validation, test, or none of them ("").

    >>> [part(Path(name)) for name in ("train.tsv.gz", "wiki.valid.raw", "t10k-images-idx3-ubyte", "emma.txt")]
    ['train', 'validation', 'test', '']
    """
    stem = bare(path).removesuffix(suffix(path))
    words = [word for word in re.split(r"[._-]", stem) if word]
    for word in words[:1] + words[-1:]:
        for name, known in (("train", TRAIN), ("validation", VALIDATION), ("test", TEST)):
            if word in known:
                return name
    return ""
