"""A foreign model in one common form, whatever file it came from.

    a file or folder  --format-->  Checkpoint  --family-->  a run directory

A format (`formats/x.py`) reads files and gives Hugging Face's names, layouts and config keys, so that a family
(`families/x.py`) is written once. A new format is registered under the name of its file:

    @FORMATS.register("mine")
    class Mine(Format):
        def can_read(self, path): ...          # by the contents of the files, cheaply
        def read(self, path): ...              # Path -> Checkpoint

What is no Transformer is a family too: word vectors are a Checkpoint whose `model_type` is `word_vectors`.
A file that is not what it claims to be is a `RunError`: one sentence that names the file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer as Library

from clearhead.errors import RunError
from clearhead.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.nn.quantised import Quantised


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer as the `tokenizers` library reads it, and how the model's own code uses it."""

    json: str  # a `tokenizers` tokenizer.json
    special: dict[str, str]  # "bos_token": "<s>", …
    add_bos: bool
    add_eos: bool
    chat_template: str | None

    def token_id(self, name: str) -> int | None:
        """The id of a special token; None if there is none of this name."""
        return Library.from_str(self.json).token_to_id(self.special[name]) if name in self.special else None


@dataclass(frozen=True)
class Checkpoint:
    """A foreign model in one common form: what Hugging Face would have written."""

    source: Path
    config: dict[str, Any]  # as config.json has it ("model_type", "architectures", sizes, …)
    tensors: Mapping[str, Tensor]  # Hugging Face's names and layouts, read lazily; float32 or float16 as stored
    tokenizer: TokenizerFiles | None  # tokenizer.json text and special tokens, chat template
    skipped: dict[str, str]  # tensors that were left out by the reader, and why
    precision: str  # "float32", "float16", "Q4_1, Q8_0 dequantised to float32"
    quantised: Mapping[str, Callable[[], Quantised]] = field(
        default_factory=dict
    )  # tensors as they are stored in blocks


class Format(ABC):
    """One way to store a model."""

    @abstractmethod
    def can_read(self, path: Path) -> bool:
        """Whether these files are of this format, by what they contain; never raises for another's files."""

    @abstractmethod
    def read(self, path: Path) -> Checkpoint:
        """The model, or a RunError for files that are damaged."""


FORMATS: Registry[type[Format]] = Registry("format", package="clearhead.interop.formats")


def format_of(path: Path) -> str | None:
    """The name of the format that a path is stored in; None: no format that is known here."""
    return next((name for name in FORMATS.names() if path.exists() and FORMATS[name]().can_read(path)), None)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a foreign model in whatever format it is stored."""
    if not path.exists():
        raise RunError(f"{path}: there is no such file or folder")
    name = format_of(path)
    if name is None:
        raise RunError(f"{path} is not a model in a format that Clearhead reads: {', '.join(FORMATS.names())}")
    return FORMATS[name]().read(path)
