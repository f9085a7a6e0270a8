"""A view: one way to see a model, as JSON, as a figure, as a page and in the terminal. One view = one file.

    view = show(model, "induction")              what `clearhead look MODEL --view induction` shows
    view.save("induction.svg")                   or .pdf, .png, .json, and .html if the view has a page
    VIEWS.names()                                every view, those from outside the package too

A view is a class in `look/views/NAME.py`, or in any Python file named in `$CLEARHEAD_PLUGINS`:

    @VIEWS.register("entropy")
    class Entropy(LookView):
        \"\"\"How spread out the attention of each head is.\"\"\"      # the first line is its help
        ...
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from clearhead.errors import ConfigError, ProbeError
from clearhead.files import write_errors, write_text
from clearhead.look.render import html
from clearhead.look.render.figure import FORMATS, SLIDE, Figure
from clearhead.registry import Registry

if TYPE_CHECKING:  # the names of views are known without torch
    from rich.console import Console
    from torch import Tensor, nn

    from clearhead.look.inputs import PreparedInput
    from clearhead.look.record import LookRecord
    from clearhead.look.render.matrix import Window
    from clearhead.look.views.beam import BeamTree

SUFFIXES = (*FORMATS, ".html", ".json")  # of the files that a view can be saved as

Loss = Callable[["nn.Module", Any], tuple["Tensor", "Tensor"]]  # model, batch -> sum of the losses, their count


class Tokenizer(Protocol):
    """Text <-> ids."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def pieces(self, ids: Iterable[int]) -> list[str]: ...

    def word_ids(self) -> list[int]: ...

    @property
    def start(self) -> int: ...  # the first input of a decoder


class TextModel(Protocol):
    """A network and the tokenizer of what it reads."""

    @property
    def network(self) -> Any: ...  # an nn.Module; word vectors are its `vectors`

    @property
    def tokenizer(self) -> Tokenizer: ...


class Model(TextModel, Protocol):
    """What a view may ask of a loaded model."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> Path:
        """The run directory."""

    def look(self, item: Any, target: str | None = None, *, generate: bool = False, **settings: Any) -> LookRecord:
        """Everything that is computed for one input."""

    def prepare(self, item: Any) -> PreparedInput:
        """One item as the network reads it."""

    def beam_tree(self, item: Any, beam_width: int, /) -> BeamTree:
        """Every text that a beam search considers."""

    def neighbours(self, word: str, count: int = 10) -> list[tuple[str, float]]:
        """The words nearest to a word, best first."""

    def validation_batches(self, data: str | None, count: int) -> tuple[Sequence[Any], Loss]:
        """The first batches of held-out examples, of `data` or of what the model was trained on, and its loss."""


@dataclass(frozen=True)
class ViewOptions:
    """What to show; each view uses the options that it understands."""

    item: Any = None  # a text, or an image: path, Pillow image or array
    kind: str | None = None  # of attention: encoder.self, decoder.self, decoder.cross
    layer: int | None = None
    head: int | None = None
    query: int | str | None = None  # a position, or the token that stands there
    target: str | None = None  # the output that a translator or captioner is made to read
    generate: bool = False  # look while a language model continues the text
    beam_width: int = 4
    unit: str | None = None  # LAYER:INDEX
    feature: str | None = None
    method: str | None = None
    data: str | None = None  # dataset to measure on
    rows: Window = None
    columns: Window = None

    def input_for(self, model: Model) -> Any:
        """The text or image, which this view needs."""
        if self.item is None:
            raise ConfigError(f'give a text or an image to look at: clearhead look {model.name} "a text"')
        return self.item

    def query_index(self, tokens: Sequence[str]) -> int | None:
        """The position of the query among these tokens, None if none was chosen."""
        if self.query is None or isinstance(self.query, int):
            return self.query
        if self.query.isdecimal():
            return int(self.query)
        if self.query not in tokens:
            raise ProbeError(f"no query is called {self.query}; choose from: {', '.join(tokens)}, or a number")
        return tokens.index(self.query)


class View(ABC):
    """One way to see a model: computed once, shown in several forms."""

    page: ClassVar[str | None] = None  # the interactive page: a name in render/js, or the path of a .js file

    @classmethod
    @abstractmethod
    def compute(cls, model: Model, options: ViewOptions) -> View:
        """Everything that the view shows."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Nested lists and strings, with the name of their `format`."""

    @abstractmethod
    def figure(self, width: float = SLIDE) -> Figure:
        """A figure, its width in inches."""

    @abstractmethod
    def show(self, console: Console) -> None:
        """Print a small picture to the terminal."""

    @property
    def title(self) -> str:
        return type(self).__name__

    def page_data(self) -> dict[str, Any]:
        """The data of the page, in the format that it reads."""
        return self.to_json()

    def html(self) -> str:
        """The interactive page as one HTML file that needs nothing else."""
        if self.page is None:
            choices = ", ".join(html.pages())
            raise ConfigError(f"this view has no page: choose another suffix, or a view with a page: {choices}")
        return html.page(self.page, self.page_data(), self.title)

    def save(self, path: str | Path, width: float = SLIDE) -> Path:
        """Write a figure (.svg, .pdf, .png), the page (.html) or the data (.json), by the suffix of the file name."""
        file = Path(path)
        check_suffix(file)
        if file.suffix.lower() in FORMATS:
            return self.figure(width).save(file)
        as_json = file.suffix.lower() == ".json"
        text = json.dumps(self.to_json(), ensure_ascii=False) + "\n" if as_json else self.html()
        with write_errors(file):
            write_text(file, text)
        return file

    def _repr_svg_(self) -> str:
        return self.figure().svg()


class LookView(View):
    """A view of one input: `of` makes it from a look, so that it can be made of a saved look too."""

    @classmethod
    def compute(cls, model: Model, options: ViewOptions) -> LookView:
        item = options.input_for(model)
        return cls.of(model.look(item, options.target, generate=options.generate), options)

    @classmethod
    @abstractmethod
    def of(cls, look: LookRecord, options: ViewOptions) -> LookView:
        """Everything that the view shows of one look."""


VIEWS: Registry[type[View]] = Registry("view", "clearhead.look.views")


def show(model: Model, name: str, **options: Any) -> View:
    """The view of this name; the options are the fields of `ViewOptions`."""
    return VIEWS[name].compute(model, ViewOptions(**options))


def check_suffix(file: Path) -> None:
    """Refuse a file name that no view can be saved as."""
    if file.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"cannot write {file}: choose a name that ends in {', '.join(SUFFIXES)}")
