"""A trained model, ready to use: what `clearhead.load` returns. Each task's file adds its own verb.

    m = clearhead.load("en-es")
    m.translate("we are eating bread")        the verb of a translator
    m.look("we are eating bread")             everything that the network computes
    m.embed("we are eating bread")            one vector

Whoever serves or shows a model asks the predictor: which verb it has (`verb`), what it reads (`reads`), whether it
generates token by token (`generates`), and how an item is prepared (`prepare`).

    B batch, T tokens, D width, N items
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.config import AnyConfig
from clearhead.decode import Prompts, Settings, SpecialTokens, Steps, generate
from clearhead.engines.engine import Engines
from clearhead.errors import ClearheadError, ProbeError, RunError, WrongTaskError
from clearhead.look.inputs import PreparedInput, display_token
from clearhead.run import BUNDLED, Description, Run, describe, find
from clearhead.tasks import TASKS, run_config
from clearhead.tasks.base.network import OpenedNetwork
from clearhead.tasks.base.own import NOTHING, Own
from clearhead.tasks.base.task import Task, Workspace
from clearhead.text import Tokenizer

if TYPE_CHECKING:  # what looks inside is imported on first use: a translation need not wait for it
    from clearhead.look.look import Look
    from clearhead.look.view import View
    from clearhead.look.views.beam import BeamTree

Vectors = NDArray[np.float32]
T = TypeVar("T")

MAX_WINDOW = 2048  # items of a stream that are taken together, at most
BATCH = 64  # items of one shape that are computed together


class Predictor(ABC):
    """A trained model of one task."""

    task: ClassVar[str]  # set by its Task, like `title`
    title: ClassVar[str]
    verb: ClassVar[str]  # what it does with an item; also its verb on the command line
    usage: ClassVar[str] = '"…"'  # what follows the model on the command line
    reads: ClassVar[Literal["text", "image", "words"]] = "text"
    generates: ClassVar[bool] = False  # token by token
    example_inputs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        run: Run,
        config: AnyConfig,
        engine: str = "auto",
        int8: bool = False,
        own: Own = NOTHING,
        quantise: str | None = None,
        cache_type: str | None = None,
    ):
        self.run, self.config = run, config
        self._opened = OpenedNetwork(run, config, own)
        self.meta = self._opened.meta
        self._tokenizer = own.tokenizer or run.load_tokenizer()
        if own.tokenizer is None and self._tokenizer is not None:
            self._check_tokenizer(self._tokenizer)
        self.engines = Engines(
            self.outline,
            engine,
            int8,
            self._vocabulary,
            run.converted,
            quantise=quantise,
            cache_type=cache_type,
            stored=self._opened,
        )

    @property
    def network(self) -> nn.Module:
        return self._opened.network()

    @property
    def outline(self) -> nn.Module:
        """The network for those who only ask how it is built: its quantised weights need not be in memory."""
        return self._opened.outline

    def _check_tokenizer(self, tokenizer: Tokenizer) -> None:
        if tokenizer.max_id >= self.meta.sizes.vocabulary:
            count, known = tokenizer.max_id + 1, self.meta.sizes.vocabulary
            where = self.run.path / "tokenizer.json"
            raise RunError(f"{where} has {count:,} tokens, and the network knows only {known:,}")

    def __init_subclass__(cls, task: type[Task[Any]] | None = None) -> None:
        super().__init_subclass__()
        if task is not None:
            task.predictor, cls.task, cls.title = cls, task.name, task.title

    @classmethod
    def load(cls, path: str | Path, engine: str = "auto", int8: bool = False, quantise: str | None = None) -> Self:
        """Load a run directory, or a model that comes with the package, of this task."""
        loaded = load(path, engine, int8, quantise=quantise)
        if not isinstance(loaded, cls):
            raise WrongTaskError(
                f"{loaded.name} is {loaded.description}: use clearhead.load or {type(loaded).__name__}"
            )
        return loaded

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def description(self) -> str:
        """What it is, in the middle of a sentence: a translator."""
        return self.title[0].lower() + self.title[1:]

    @property
    def folder(self) -> Path:
        """Its run directory."""
        return self.run.path

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise WrongTaskError(f"{self.run.path} has no tokenizer: its model does not read text")
        return self._tokenizer

    def _vocabulary(self) -> list[str]:
        """Every token as the vocabulary has it."""
        return [self.tokenizer.token(index) for index in range(len(self.tokenizer))]

    # --- what it can do ---

    def can(self, verb: str) -> bool:
        """Whether it has a method of this name."""
        return hasattr(type(self), verb)

    def require(self, verb: str) -> None:
        """Raise one sentence if it cannot do this."""
        if not self.can(verb):
            raise self.wrong_verb(verb)

    def wrong_verb(self, verb: str) -> WrongTaskError:
        """The error of a verb that belongs to another task."""
        model = self.name if self.run.path.parent == BUNDLED else self.run.path
        command = f"clearhead {self.verb} {model} {self.usage}"
        return WrongTaskError(f"{self.name}: cannot {verb}: it is {self.description} ({command})")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A method of another task's predictor gets a sentence that says what this one is."""
            if not name.startswith("_") and any(hasattr(TASKS[task].predictor, name) for task in TASKS.builtin()):
                raise self.wrong_verb(name)
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")

    @abstractmethod
    def prepare(self, item: Any) -> PreparedInput:
        """One item as the network reads it."""

    def token_count(self, item: Any) -> int:
        """The number of tokens or patches that the network reads of one item."""
        if self._tokenizer is not None and isinstance(item, str):
            return len(self._tokenizer.encode(item))
        prepared = self.prepare(item)
        return max(len(prepared.encoder), len(prepared.decoder))

    def predict(self, item: Any) -> dict[str, Any]:
        """The answer to one item as JSON, with default settings."""
        return self.predict_batch([item])[0]

    @abstractmethod
    def predict_batch(self, items: list[Any]) -> list[dict[str, Any]]:
        """The answer to each item as JSON, with default settings."""

    def predict_steps(self, items: list[Any], work: int | None = None) -> Steps[list[dict[str, Any]]]:
        """What `predict_batch` returns, step by step where a task can; `work` limits the tokens × beams of a step."""
        yield from ()
        return self.predict_batch(items)

    @abstractmethod
    def answer(self, item: Any, max_tokens: int | None = None) -> str:
        """The answer to one item as a text; what is generated is always the likeliest."""

    def examples(self) -> list[str]:
        """Inputs to try: those of its card, one from its last evaluation, or those of its task."""
        about = self.about
        if about is None:
            return list(self.example_inputs)
        sample = self.sample_input(about.sample)
        return list(about.examples) or ([sample] if sample else list(self.example_inputs))

    def passage(self) -> str:
        """A longer text of the kind that it was trained on."""
        return "" if self.about is None else self.about.passage or self.about.sample

    def sample_input(self, sample: str) -> str:
        """The input behind the sample of an evaluation; empty if there is none."""
        return ""

    @cached_property
    def about(self) -> Description | None:
        """What its run directory says of it; None for a model without a card."""
        try:
            return describe(self.run.path)
        except ClearheadError:
            return None

    # --- looking inside ---

    def look(self, item: Any, target: str | None = None, *, generate: bool = False, **settings: Any) -> Look:
        """Everything that the network computes for one item: weights, scores, queries, keys, values, hidden states."""
        if target is not None or generate or settings:
            raise ProbeError(f"{self.name} does not generate text: it takes no target and no generation settings")
        return self._look_at(self.prepare(item))

    def beam_tree(self, item: Any, beam_width: int = 4, **settings: Any) -> BeamTree:
        """Every text that a beam search keeps or drops on its way, with its log-probabilities."""
        raise ProbeError(f"{self.name} is {self.description}: it does not generate text, so it has no beams")

    def output_of(self, logits: Tensor) -> str:
        """The answer that the logits (T, V) or (V,) of the network give."""
        choices = self.choices
        return " ".join(choices[best] for best in logits.argmax(-1).reshape(-1).tolist())

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """What each logit is about: a label."""
        return self.meta.labels

    def token_strings(self, ids: Iterable[int]) -> list[str]:
        """Each token as people read it."""
        return [display_token(piece) for piece in self.tokenizer.pieces(ids)]

    def view(self, name: str, item: Any = None, **options: Any) -> View:
        """A view of the model, or of what it computes for an item: `view("heads", "a text").save("heads.svg")`."""
        from clearhead.look.view import show

        return show(cast(Any, self), name, item=item, **options)

    def _look_at(self, prepared: PreparedInput) -> Look:
        from clearhead.look.build import compute_look

        return compute_look(self.network, prepared, self.output_of, model=self.name, task=self.task)

    # --- vectors ---

    def token_vectors(self, inputs: Tensor) -> Tensor:
        """A vector (B, T, D) for each token or patch of what the network reads."""
        raise WrongTaskError(f"{self.name} is {self.description}: it has no vectors of texts or images")

    def embed(self, item: Any) -> Vectors:
        """One vector (D,) for a text or an image: the mean over its tokens or patches. A list of N gives (N, D).

        A text that is longer than the training texts is read in parts; items of equal length are computed together.
        """
        if isinstance(item, list | tuple):
            return self.embed_ids(self.tokenizer.encode_batch(list(item)))
        vector: Vectors = self.embed([item])[0]
        return vector

    def embed_stream(self, items: Iterable[Any], max_window: int = MAX_WINDOW) -> Iterator[Vectors]:
        """The vectors of items as they come, one after the other; at most `max_window` items are waited for."""
        for window in growing_windows(items, max_window):
            yield from self.embed(window)

    def embed_ids(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """(N, D) for texts as token ids; an empty text has the vector of the start token."""
        return self._mean_vectors([torch.tensor([part]) for part in self.embedding_parts(ids)] for ids in rows)

    def embedding_parts(self, ids: Sequence[int]) -> list[list[int]]:
        """What the network reads for the vector of a text: its tokens, in parts if they are many."""
        first, ids = self._embedding_prefix(), list(ids) or [self.tokenizer.start]
        room = max(1, self.max_read - len(first))
        return [[*first, *ids[start : start + room]] for start in range(0, len(ids), room)]

    @property
    def max_read(self) -> int:
        """Tokens of the longest text that it was trained with."""
        return self.config.data.max_length

    def _embedding_prefix(self) -> list[int]:
        return []

    @torch.inference_mode()
    def _mean_vectors(self, items: Iterable[Sequence[Tensor]]) -> Vectors:
        """(N, D) of items, each in parts that the network reads by themselves."""
        return cast(Vectors, mean_vectors(self.token_vectors, items).numpy())

    # --- its task on data ---

    @contextmanager
    def on_data(self, data: str | None = None) -> Iterator[Task[Any]]:
        """Its task on the data it was trained with, or on all of other data."""
        config = self.config
        if data is not None:
            config = config.model_copy(update={"data": config.data.model_copy(update={"path": data})})
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            workspace = Workspace(Path(folder), self._tokenizer, self.meta, whole=data is not None)
            yield TASKS[self.task](config, workspace)

    def validation_batches(self, data: str | None, count: int) -> tuple[list[dict[str, Tensor]], Callable[..., Any]]:
        """Some validation batches, and the loss of a network on one of them."""
        with self.on_data(data) as task:
            return list(islice(task.validation(), count)), task.loss


class GeneratingPredictor(Predictor):
    """A model that generates text token by token: from a source, or as a continuation of a prompt."""

    generates = True

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """What each logit is about: a token."""
        return tuple(self.token_strings(range(len(self.tokenizer))))

    @property
    def special(self) -> SpecialTokens:
        own = self.tokenizer
        return SpecialTokens(own.pad, own.start, own.end, own.ends_source)

    def look(self, item: Any, target: str | None = None, *, generate: bool = False, **settings: Any) -> Look:
        """Everything that the network computes for one item: weights, scores, queries, keys, values, hidden states.

        A translator or captioner is shown with `target`, or with the text that it generates; a language model reads
        the item. With `generate` a model is shown while it generates. `settings` are those of `decode.Settings`.
        """
        prepared = self.prepare(item)
        if target is not None:
            return self._look_at_output(prepared, self.tokenizer.encode(target))
        if generate:
            from clearhead.look.build import look_while_generating

            return look_while_generating(
                self.network,
                prepared,
                self.generation_settings(prepared, **settings),
                self.token_strings,
                self.tokenizer.decode,
                model=self.name,
                task=self.task,
            )
        if not prepared.sources:
            return self._look_at(prepared)
        return self._look_at_output(prepared, self.generate_ids(prepared, **settings))

    def beam_tree(self, item: Any, beam_width: int = 4, **settings: Any) -> BeamTree:
        from clearhead.look.views.beam import beam_tree

        prepared = self.prepare(item)
        return beam_tree(
            self.network,
            prepared.sources,
            prepared.prompt,
            prepared.stop,
            self.generation_settings(prepared, **{"beam_width": beam_width, **settings}),
            self.token_strings,
            prepared.text,
        )

    def generation_settings(self, prepared: PreparedInput, **settings: Any) -> Settings:
        """Settings with the defaults of an input."""
        return Settings.create(**{"max_tokens": prepared.max_tokens, "beam_width": prepared.beam_width, **settings})

    @torch.inference_mode()
    def start_state(self, stepper: Any, prepared: PreparedInput, max_tokens: int) -> Any:
        """The state of an engine or of the network that has read the sources of an input."""
        return stepper.start(*prepared.sources)

    def generate_ids(self, prepared: PreparedInput, **settings: Any) -> list[int]:
        """The tokens of the best text, without the stop token, by the network itself."""
        chosen = self.generation_settings(prepared, **settings)
        state = self.start_state(self.network, prepared, chosen.max_tokens)
        prompts = Prompts([prepared.prompt], prepared.stop)
        [[best, *_]] = generate(cast(Any, self.network), state, prompts, chosen)
        return best.ids

    def _look_at_output(self, prepared: PreparedInput, ids: Sequence[int]) -> Look:
        """What the network computes for a text that is already there; the answer is that text."""
        from clearhead.look.build import compute_look

        stop = None if prepared.stop is None else self.token_strings([prepared.stop])[0]
        text = self.tokenizer.decode(ids)
        whole = prepared.continued(ids, self.token_strings(ids), stop)
        return compute_look(self.network, whole, lambda _logits: text, model=self.name, task=self.task)


def load(
    path: str | Path,
    engine: str = "auto",
    int8: bool = False,
    own: Own = NOTHING,
    quantise: str | None = None,
    cache_type: str | None = None,
) -> Predictor:
    """Load a run directory, or a model that comes with the package.

    `engine` computes the steps of generation: auto, torch, compiled, exact or ct2. With `quantise` its weights are
    rounded to q8 (also `int8`) or q4, for less memory and time and a little less quality. `cache_type` is how a
    language model keeps keys and values: f16 or f32, or int8 with such weights. `own` has the user's own network or
    tokenizer.
    """
    run = Run.open(find(path))
    config = run_config(run)
    return TASKS[config.task].predictor(run, config, engine, int8, own, quantise, cache_type)


def growing_windows(items: Iterable[T], most: int = MAX_WINDOW) -> Iterator[list[T]]:
    """One item, then two, then four: a quick first answer, and soon many at a time."""
    waiting, size = iter(items), 1
    while window := list(islice(waiting, size)):
        yield window
        size = min(2 * size, most)


def mean_vectors(read: Callable[[Tensor], Tensor], items: Iterable[Sequence[Tensor]]) -> Tensor:
    """(N, D): the mean over all vectors of an item's parts, which are batches of one; nothing is padded.

    Items are taken as they come, and at most `BATCH` parts of each shape are held.
    """
    waiting: defaultdict[torch.Size, list[tuple[int, Tensor]]] = defaultdict(list)
    sums: list[Any] = []  # each becomes (D,)
    counts: list[int] = []

    def compute(batch: list[tuple[int, Tensor]]) -> None:
        numbers, parts = zip(*batch, strict=True)
        for number, vectors in zip(numbers, read(torch.cat(parts)), strict=True):  # each (T, D)
            sums[number] = sums[number] + vectors.sum(0)
            counts[number] += len(vectors)
        batch.clear()

    for number, parts in enumerate(items):
        sums.append(0)
        counts.append(0)
        for part in parts:
            batch = waiting[part.shape]
            batch.append((number, part))
            if len(batch) == BATCH:
                compute(batch)
    for batch in filter(None, waiting.values()):
        compute(batch)
    if not sums:
        return torch.empty(0, 0)
    return torch.stack([total / count for total, count in zip(sums, counts, strict=True)])
