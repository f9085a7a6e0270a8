"""A trained model, ready to be used: `clearhead.load(directory)`, or by the name of one that comes with the package.

    m = clearhead.load("en-es")
    m.translate("we are eating bread")
    m.generate("ROMEO:", max_tokens=200, temperature=0.8)
    m.classify("a warm, funny film").label
    m.analogy("king", "man", "woman")
    m.embed("a warm, funny film")
    m.look("we are eating bread").weights["decoder.cross"]

Each method takes one thing or a list of them, and gives one or a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clearhead.bundled import FOLDER, find
from clearhead.config import Config, TextModel
from clearhead.decode import Prompts, Settings, Special, pieces, steps, write
from clearhead.engines.choose import MANY, Engines
from clearhead.errors import ConfigError, RunError
from clearhead.files import cache_folder
from clearhead.interop.ct2 import tokens_of
from clearhead.models.assemble import smaller
from clearhead.models.lm import LanguageModel
from clearhead.models.vectors import READERS, mean_vectors
from clearhead.models.word_vectors import analogy, neighbours
from clearhead.nn import MultiHeadAttention
from clearhead.run import ModelMeta, Run
from clearhead.text import Tokenizer
from clearhead.translator import LARGEST, Candidate, Translator, growing

if TYPE_CHECKING:
    from clearhead.data.examples import Pixels
    from clearhead.look.beams import BeamTree
    from clearhead.look.look import Look
    from clearhead.looker import Looker

LONG = 2000  # tokens of a text for which a compiler is worth waiting for

ABILITIES = {
    "translate": "translate",
    "lm": "generate",
    "classify": "classify",
    "tag": "tag",
    "vision": "classify",
    "caption": "caption",
    "words": "words",
}


@dataclass(frozen=True)
class Label:
    """The likeliest label, and how likely each one is."""

    label: str
    probabilities: dict[str, float]


class Model:
    """A run directory, loaded."""

    def __init__(self, run: Run, engine: str = "auto", int8: bool = False):
        self.run = run
        self.config: Config = run.config
        self.network: Any
        self.network, self.meta = run.load_network()
        self._tokenizer = run.load_tokenizer()
        self.engines = Engines(self.network, engine, int8, lambda: tokens_of(self.tokenizer), copies(run.path))

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.run.path.resolve().name

    @property
    def tokenizer(self) -> Tokenizer:
        """Text <-> ids."""
        if self._tokenizer is None:
            raise RunError(f"{self.run.path} has no tokenizer: its model does not read text")
        return self._tokenizer

    def translate(self, text: str | Sequence[str], beams: int = 4, **settings: Any) -> Any:
        """The likeliest translation that a beam search finds; the settings are those of `clearhead.decode.Settings`."""
        texts = [text] if isinstance(text, str) else text
        written = [found[0].text for found in self.translator(beams=beams, **settings).window(texts)]
        return written[0] if isinstance(text, str) else written

    def translator(self, on_note: Callable[[str], None] = lambda _note: None, **settings: Any) -> Translator:
        """For more than one good translation of a text, with scores, or for more texts than memory holds."""
        self._must("translate")
        chosen, longest = Settings.of(**settings), self.config.data.max_length - 1
        self.engines.on_note = on_note
        return Translator(
            self.engines, self.tokenizer, self.meta.p99_source_length or longest, longest, chosen, on_note
        )

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 200,
        stream: bool = False,
        stops: Sequence[str] = (),
        cache: int | None = None,
        **settings: Any,
    ) -> Any:
        """Text that goes on from a prompt, up to the first of the stop strings; with `stream` an iterator over pieces.

        The settings are those of `clearhead.decode.Settings`; without any, each token is drawn as likely as it is.
        A text of any length can be written where the positions allow it: the model then looks back at the last tokens
        only, as many as it was trained with, or as `cache` says.
        """
        self._must("generate")
        chosen = Settings.of(**{"longest": max_tokens, "temperature": 1.0, **settings})
        ids = self.tokenizer.encode(prompt) or [self.tokenizer.start]
        window = self.window(len(ids) + max_tokens, cache)
        said = pieces(self._tokens(ids, chosen, window), self.tokenizer.decode, before=ids, stops=stops)
        return said if stream else prompt + "".join(said)

    def window(self, tokens: int, cache: int | None = None) -> int | None:
        """How many tokens a text of so many looks back at, and its cache holds; none where that is all of them."""
        model = self.config.model
        if cache is not None and cache < 1:
            raise ConfigError(f"cache={cache} must be 1 or more")
        if not isinstance(self.network, LanguageModel):
            return None  # what an RNN remembers has one size
        if model.positions in ("rotary", "t5", "none"):
            cache = smaller(cache, model.length)
        return cache if cache is not None and cache < tokens else None

    def cache_bytes(self, tokens: int) -> int:
        """The memory of the keys and values of so many tokens."""
        layers = [part for part in self.network.modules() if isinstance(part, MultiHeadAttention)]
        return sum(4 * tokens * layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in layers)

    def _tokens(self, ids: list[int], settings: Settings, window: int | None) -> Iterator[int]:
        if self.engines.wanted == "ct2" and not self.engines.changed:
            yield from self.engines.ct2(self._special).generate(ids, settings)
            return
        prompts, model = Prompts([ids]), self.engines.stepper(settings.longest // LONG * MANY, settings)
        state = model.start() if window is None else model.start(window=window)
        if settings.beams > 1:  # known only when all is written
            [found] = write(model, state, prompts, settings)
            yield from found[0].ids
            return
        for step in steps(model, state, prompts, settings):
            yield from (token.id for token in step)

    @property
    def _special(self) -> Special:
        return Special(self.tokenizer.pad, self.tokenizer.start, self.tokenizer.stop)

    def classify(self, item: Any) -> Any:
        """The label of a text, of an image (pixels, Pillow image or path), or of each in a list."""
        self._must("classify")
        if isinstance(item, list):
            return [self.classify(each) for each in item]
        with torch.inference_mode():
            probabilities = self.network(self.classified(item)).softmax(-1)[0].tolist()
        best = int(np.argmax(probabilities))
        return Label(self.meta.labels[best], dict(zip(self.meta.labels, probabilities, strict=True)))

    def classified(self, item: Any) -> torch.Tensor:
        """What the network reads of a text, (1, T), or of an image, (1, C, height, width)."""
        if self.config.task == "vision":
            return self._image(item)
        room = self.config.data.max_length - 1
        return torch.tensor([[self.tokenizer.cls, *self.tokenizer.encode(item)[:room]]])

    def pixels(self, item: Any) -> Pixels:
        """An image (pixels, Pillow image or path) in the size that the model reads, (height, width, C) bytes."""
        from clearhead.data import pixels

        sizes = self.meta.sizes
        image = Path(item) if isinstance(item, str) else item if isinstance(item, Path) else np.asarray(item)
        if isinstance(image, np.ndarray) and image.ndim == 2:
            image = image[:, :, None]
        return pixels(image, size=sizes.height, channels=sizes.channels)

    def _image(self, item: Any) -> torch.Tensor:
        from clearhead.train.pixels import normalised

        return normalised(self.pixels(item)[None])

    def caption(self, image: Any) -> str:
        """A sentence about an image."""
        self._must("caption")
        vocabulary = self.tokenizer
        with torch.inference_mode():
            state = self.network.start(self._image(image))
        settings = Settings(longest=self.config.data.max_length)
        [[written]] = write(self.network, state, Prompts([[vocabulary.start]], vocabulary.stop), settings)
        return vocabulary.decode(written.ids)

    def tag(self, text: str) -> list[tuple[str, str]]:
        """A tag for each word of a text that is cut at blanks."""
        self._must("tag")
        words = text.split()
        with torch.inference_mode():
            best = self.network(torch.tensor([self.word_ids(words)])).argmax(-1)[0].tolist()
        return [(word, self.meta.labels[number]) for word, number in zip(words, best, strict=True)]

    def word_ids(self, words: Sequence[str]) -> list[int]:
        """One id for each word, as a tagger reads them."""
        return [(self.tokenizer.encode(word) or [self.tokenizer.unknown])[0] for word in words]

    def embed(self, item: Any) -> np.ndarray:
        """One vector (D,) for a text or an image: the mean of what the model makes of its tokens or patches.

        A text that is longer than those it was trained with is read in parts; a list of N items gives (N, D), and
        those of one length are read together.
        """
        if not isinstance(item, list | tuple):
            vector: np.ndarray = self.embed([item])[0]
            return vector
        if self.config.task == "vision":
            return self._mean_vectors([self._image(each)] for each in item)
        return self.embed_ids(self.tokenizer.encode_batch(list(item)))

    def embed_each(self, items: Iterable[Any], largest: int = LARGEST) -> Iterator[np.ndarray]:
        """The same for items as they come, one vector after the other; no more than `largest` are waited for."""
        for window in growing(items, largest):
            yield from self.embed(window)

    def embed_ids(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """The same for texts as ids, (N, D); one without any has the vector of the start token."""
        first = [self.tokenizer.cls] if self.config.task == "classify" else []
        room = max(1, self._longest - len(first))

        def parts(ids: list[int]) -> list[torch.Tensor]:
            return [torch.tensor([first + ids[start : start + room]]) for start in range(0, len(ids), room)]

        return self._mean_vectors(parts(list(ids) or [self.tokenizer.start]) for ids in rows)

    @property
    def _longest(self) -> int:
        """Tokens of the texts that it was trained with."""
        model, data = self.config.model, self.config.data
        return model.length if isinstance(model, TextModel) else data.max_length

    @torch.inference_mode()
    def _mean_vectors(self, items: Iterable[Sequence[torch.Tensor]]) -> np.ndarray:
        """(N, D) of items in parts, each of which the network reads by itself."""
        if self.config.task not in READERS:
            raise RunError(f"{self.run.path} is a model for {self.config.task}: it has no vectors of texts or images")
        vectors: np.ndarray = mean_vectors(partial(READERS[self.config.task], self.network), items).numpy()
        return vectors

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.run.path

    def validation_batches(self, data: str | None, count: int) -> tuple[list[Any], Callable[..., Any]]:
        """The first batches of held-out examples, of `data` or of what it was trained on, and the loss of its task."""
        from clearhead.train.task import Workspace
        from clearhead.train.tasks import TASKS

        config = self.config
        if data is not None:
            config = config.model_copy(update={"data": config.data.model_copy(update={"path": data})})
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            workspace = Workspace(Path(folder), self._tokenizer, self.meta, whole=data is not None)
            task = TASKS[config.task](config, workspace)
            return list(islice(task.validation(), count)), task.loss

    def look(self, item: Any, target: str | None = None, *, generate: bool = False, **settings: Any) -> Look:
        """Everything that the model computes for a text or an image: weights, scores, queries, keys, values, states.

        A translator or captioner is seen with `target`, or with what it writes itself; a language model reads a text.
        With `generate` a model is seen while it writes, and a language model goes on from the text. The settings are
        those of `clearhead.decode.Settings`.
        """
        return self._looker.look(item, target, generate, **settings)

    def beam_tree(self, item: Any, beams: int = 4, **settings: Any) -> BeamTree:
        """Every text that a beam search keeps or drops on its way, with its log-probabilities."""
        return self._looker.beam_tree(item, beams, **settings)

    @cached_property
    def _looker(self) -> Looker:
        from clearhead.looker import Looker

        return Looker(self)

    def neighbours(self, word: str, count: int = 10, measure: str = "cosine") -> list[tuple[str, float]]:
        """The words nearest to a word, best first, and how near."""
        vectors, words = self._words()
        return neighbours(vectors, words, self._folded(word), count, measure)

    def analogy(self, a: str, b: str, c: str, count: int = 10, measure: str = "cosine") -> list[tuple[str, float]]:
        """The words nearest to a - b + c: king - man + woman."""
        vectors, words = self._words()
        a, b, c = map(self._folded, (a, b, c))
        return analogy(vectors, words, a, b, c, count, measure)

    def _words(self) -> tuple[torch.Tensor, list[str]]:
        """(V, D), and the word of each row."""
        self._must("words")
        ids = self.tokenizer.word_ids()
        return self.network.vectors[ids], self.tokenizer.pieces(ids)

    def _folded(self, word: str) -> str:
        return word.lower() if self.config.tokenizer.lowercase else word

    def _must(self, ability: str) -> None:
        can = ABILITIES[self.config.task]
        if can != ability:
            raise RunError(f"{self.run.path} is a model for {self.config.task}: it can {can}, not {ability}")


def copies(path: Path) -> Path:
    """Where the copies of a run for other engines are kept: in it, or in the cache if it is part of the package."""
    return cache_folder("ct2") / path.name if path.parent == FOLDER else path / "ct2"


def load(path: str | Path, engine: str = "auto", int8: bool = False) -> Model:
    """Load a run directory, or a model that comes with the package.

    `engine` is what makes the steps of translating and generating: auto, torch, compiled or ct2; with `int8` its
    weights are rounded to bytes, for less memory and time and a little less quality.
    """
    return Model(Run.open(find(path)), engine, int8)


__all__ = ["Candidate", "Label", "Model", "ModelMeta", "Translator", "load"]
