"""Translation: pairs of sentences, teacher forcing, BLEU; and the translator.

B pairs, S source tokens, T target tokens
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from clearhead.config import AnyConfig, Config
from clearhead.data import Pair
from clearhead.data.batches import pad
from clearhead.data.examples import AnyDataset
from clearhead.decode import Hypothesis, Settings, SpecialTokens, Steps, finish, generate_batch
from clearhead.engines.engine import native_engine
from clearhead.errors import DataError
from clearhead.look.inputs import MAX_LOGGED, PreparedInput
from clearhead.models.config import AlignedConfig, CellName
from clearhead.models.rnn import RnnSeq2Seq
from clearhead.models.seq2seq import Seq2Seq
from clearhead.run import ModelMeta, Sizes
from clearhead.tasks.base.metrics import Score, bleu, chrf, exact_match
from clearhead.tasks.base.predictor import MAX_WINDOW, GeneratingPredictor, growing_windows
from clearhead.tasks.base.recipe import MUON, Budget, DataFacts, Recipe, shape
from clearhead.tasks.base.task import Batch, Workspace, read_dataset, train_tokenizer
from clearhead.tasks.base.text import SourceToTextTask
from clearhead.text import split_sentences
from clearhead.text.scripts import is_without_spaces

FEW_PAIRS = 3000  # fewer are read so often that a model would learn them by heart
READ = 1_900_000  # characters that a model 128 wide with two layers reads in a minute of a core
SELDOM = 4  # times that a text is read: it cannot be learned by heart
PART_SEED = 1 << 32  # between the seeds of two parts of one text: more than a stream has texts


class TranslateModel(AlignedConfig):
    """A model that reads one sentence and writes another."""

    architecture: Literal["transformer", "rnn"] = Field("transformer", description="attention, or what came before")
    cell: CellName = Field("gru", description="kind of recurrent cell (rnn)")


@dataclass(frozen=True)
class PairPart:
    """Pairs as text and as ids."""

    pairs: list[Pair]
    sources: list[list[int]]
    targets: list[list[int]]


class Translate(SourceToTextTask[TranslateModel, PairPart]):
    """Read a sentence in one language, write it in another; one vocabulary serves both."""

    name = "translate"
    title = "A translator"
    data_kind = "pairs"
    model_type = TranslateModel
    rank = 0
    defaults = {"train": {"label_smoothing": 0.1}}
    max_scored = 200  # pairs translated at each evaluation but the last
    metric, score_names = "BLEU", ("BLEU", "chrF2", "exact match")

    @classmethod
    def build(cls, model: TranslateModel, sizes: Sizes) -> nn.Module:
        system = Seq2Seq if model.architecture == "transformer" else RnnSeq2Seq
        return system(model, sizes.vocabulary, sizes.pad)

    @classmethod
    def facts(cls, dataset: AnyDataset) -> DataFacts:
        pairs: Sequence[Pair] = list(dataset.train)
        characters = sum(len(pair.source) + len(pair.target) for pair in pairs)
        return DataFacts(len(pairs), "pairs", characters / max(1, len(pairs)))

    @classmethod
    def default_minutes(cls, facts: DataFacts) -> float:
        return min(60.0, max(2.0, round(facts.examples / 5000)))

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:
        dim, layers = (128, 2) if budget.core_minutes < 10 else (192, 3) if budget.core_minutes < 60 else (256, 4)
        size = max(14 * facts.examples**0.5, min(4500, 32 * facts.examples**0.5))
        average: Recipe = {}
        if facts.examples < FEW_PAIRS:
            dim, layers, size, average = 96, 2, 14 * facts.examples**0.5, {"train.average": 0.98}
        return {
            **MUON,
            **shape(dim, layers),
            **average,
            "model.dropout": dropout_for(facts, budget, dim, layers),
            "tokenizer.size": min(8000, max(500, round(size, -2))),
            "data.batch_tokens": 768 if budget.core_minutes < 10 else 2048,
            "model.positions": "rotary",
        }

    def full_evaluation_cost(self) -> float:
        share = len(self.held_out.pairs) / min(self.max_scored or len(self.held_out.pairs), len(self.held_out.pairs))
        return share * (2.0 if self.config.train.beam > 1 else 1.0)

    def __init__(self, config: Config[TranslateModel], workspace: Workspace):
        dataset = read_dataset(config, "pairs", workspace)
        train, held_out = _filled(dataset.train), _filled(dataset.validation)
        texts = (text for pair in train for text in (pair.source, pair.target))
        self.config = config
        self.tokenizer = train_tokenizer(config, workspace, texts)
        self.train, self.held_out = self._part(train), self._part(held_out)
        p99 = math.ceil(np.quantile([len(ids) for ids in self.train.sources], 0.99))
        sizes = Sizes(vocabulary=len(self.tokenizer), pad=self.tokenizer.pad)
        self.meta = ModelMeta(sizes, p99_source_length=p99)
        longest, both = config.data.max_length, list(dataset.train) + list(dataset.validation)
        reasons = {
            "pairs without a text on one side": len(both) - len(train) - len(held_out),
            f"pairs of {longest} tokens or more (data.max_length)": len(train) - len(self.train.pairs),
        }
        self.notes = tuple(f"{count:,} {what} are left out" for what, count in reasons.items() if count)

    def _part(self, pairs: Sequence[Pair]) -> PairPart:
        """Tokenize, and keep the pairs that are short enough."""
        longest = self.config.data.max_length
        before = list(self.tokenizer.prefix)
        sources = [before + ids for ids in self.tokenizer.encode_batch([pair.source for pair in pairs])]
        targets = self.tokenizer.encode_batch([pair.target for pair in pairs])
        kept = [i for i in range(len(pairs)) if max(len(sources[i]), len(targets[i])) < longest]
        if not kept:
            message = f"has no pair shorter than {longest} tokens in a part; split the texts or raise data.max_length"
            raise DataError(message, path=self.config.data.path)
        return PairPart([pairs[i] for i in kept], [sources[i] for i in kept], [targets[i] for i in kept])

    def lengths(self, part: PairPart) -> list[tuple[int, int]]:
        """Tokens with the stop of the source, and the start or the stop of the target."""
        return [(len(source) + 1, len(target) + 1) for source, target in zip(part.sources, part.targets, strict=True)]

    def tensors(self, part: PairPart, indices: list[int]) -> Batch:
        """source (B, S) with its stop; target (B, 1 + T + 1) between start and stop."""
        tokenizer = self.tokenizer
        end = tokenizer.stop if tokenizer.ends_source else None
        source = pad([part.sources[i] for i in indices], tokenizer.pad, stop=end)
        target = pad([part.targets[i] for i in indices], tokenizer.pad, tokenizer.start, tokenizer.stop)
        return {"source": torch.from_numpy(source), "target": torch.from_numpy(target)}

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """BLEU, chrF and the share of exact translations of the held-out pairs, all or some evenly spaced."""
        count = len(self.held_out.pairs)
        some = slice(None, None, -(-count // min(self.max_scored or count, count)))
        pairs = self.held_out.pairs[some]
        written = self.share.merge(self.translate(model, list(self.share.mine(self.held_out.sources[some]))))
        references = [pair.target for pair in pairs]
        sample = f"{pairs[0].source} → {written[0]}"
        counted = "char" if is_without_spaces(references) else "13a"  # characters where words cannot be told apart
        words = bleu(written, references, tokenize=counted)
        return (words, chrf(written, references), exact_match(written, references)), sample

    def translate(self, model: Any, sources: Sequence[list[int]]) -> list[str]:
        """The best translation that is found of each source."""
        own = self.tokenizer
        special = SpecialTokens(own.pad, own.start, own.stop, own.ends_source)
        found = generate_batch(native_engine(model) or model, sources, special, Settings(beam_width=self.beam_width))
        return self.tokenizer.decode_batch([hypotheses[0].ids for hypotheses in found])

    def example(self) -> PreparedInput:
        """The first held-out pair."""
        batch, strings = self.tensors(self.held_out, [0]), self.tokenizer.pieces
        source, target = batch["source"][:, :MAX_LOGGED], batch["target"][0, : MAX_LOGGED + 1].tolist()
        read, written = target[:-1], target[1:]
        return PreparedInput(
            (source,), tuple(read), encoder=strings(source[0]), decoder=strings(read), output=strings(written)
        )

    @classmethod
    def card_rows(cls, config: AnyConfig) -> Iterator[tuple[str, str]]:
        yield "search", f"beams: {config.train.beam}"


def dropout_for(facts: DataFacts, budget: Budget, dim: int, layers: int) -> float:
    """From 0 to 0.3: a tenth more, each time that a model of this size reads every text twice as often."""
    reads = READ * budget.work * (128 * 128 * 2) / (dim * dim * layers) / max(1.0, facts.examples * facts.length)
    return round(min(0.3, 0.1 * math.log2(max(reads / SELDOM, 1.0))), 2)


def _filled(pairs: Iterable[Pair]) -> list[Pair]:
    """Those with a text on both sides."""
    return [pair for pair in pairs if pair.source.strip() and pair.target.strip()]


@dataclass(frozen=True)
class Candidate:
    """A translation and its score: the higher, the likelier; NaN unless log-probabilities were asked for."""

    text: str
    score: float


class Translator(GeneratingPredictor, task=Translate):
    """Translates texts of any number and any length.

    Lines are taken in windows, so that a file of any size needs little memory: the first of one line, for a quick first
    answer, and each of twice as many as the last. Within a window similar lengths go together. A text that is longer
    than the training sources is cut at the ends of sentences, and its parts are translated one by one: a model that has
    only seen short texts makes nothing good of a long one.
    """

    config: Config[TranslateModel]
    verb = "translate"
    example_inputs = (
        "She has a red car.",
        "A dog sees a cat.",
        "we are eating bread",
        "I'm not hungry yet.",
        "The animal didn't cross the street because it was too tired.",
    )

    @overload
    def translate(self, text: str, *, beam_width: int = 4, **settings: Any) -> str: ...
    @overload
    def translate(self, text: list[str], *, beam_width: int = 4, **settings: Any) -> list[str]: ...
    def translate(self, text: str | list[str], *, beam_width: int = 4, **settings: Any) -> str | list[str]:
        """The best translation that a beam search finds; `settings` are those of `clearhead.decode.Settings`."""
        texts = [text] if isinstance(text, str) else text
        best = [found[0].text for found in self.candidates(texts, Settings.create(beam_width=beam_width, **settings))]
        return best[0] if isinstance(text, str) else best

    def candidates(
        self,
        texts: Sequence[str],
        settings: Settings | None = None,
        on_note: Callable[[str], None] = lambda _note: None,
        first: int = 1,
    ) -> list[list[Candidate]]:
        """The translations of each text, best first; `on_note` gets remarks on the texts, counted from `first`.

        What is sampled depends on the seed and on the number of the text, not on where a window of a stream ends.
        """
        return finish(self.candidate_steps(texts, settings, on_note, first))

    def candidate_steps(
        self,
        texts: Sequence[str],
        settings: Settings | None = None,
        on_note: Callable[[str], None] = lambda _note: None,
        first: int = 1,
        work: int | None = None,
    ) -> Steps[list[list[Candidate]]]:
        """What `candidates` returns, step by step; `work` limits the tokens × beams of a step."""
        self.engines.on_note = on_note
        settings = settings or Settings(beam_width=4)
        whole = self.tokenizer.encode_batch([text.strip() for text in texts])
        parts: list[list[list[int]]] = []
        for number, (text, ids) in enumerate(zip(texts, whole, strict=True), first):
            parts.append(self._parts(text, ids, number, on_note))
            if len(parts[-1]) > 1:  # to split a long text takes a while
                yield
        sources = [[*self.tokenizer.prefix, *ids] for each in parts for ids in each]
        seeds = [first - 1 + i + PART_SEED * k for i, each in enumerate(parts) for k in range(len(each))]
        steps = self.engines.batch_steps(sources, self.special, self._forced(settings), work, seeds)
        found = iter((yield from steps))
        return [
            self._joined([next(found) for _ in each]) if each else [Candidate(text.strip(), 0.0)]
            for text, each in zip(texts, parts, strict=True)
        ]

    def _forced(self, settings: Settings) -> Settings:
        """The settings with the tokens that every text of a foreign model begins with, and those it never has."""
        own = self.tokenizer
        if not own.forced and not own.banned:
            return settings
        return replace(
            settings,
            prefix_tokens=(*own.forced, *settings.prefix_tokens),
            banned_tokens=(*settings.banned_tokens, *own.banned),
        )

    def generation_settings(self, prepared: PreparedInput, **settings: Any) -> Settings:
        return self._forced(super().generation_settings(prepared, **settings))

    def stream_candidates(
        self,
        texts: Iterable[str],
        settings: Settings | None = None,
        on_note: Callable[[str], None] = lambda _note: None,
        max_window: int = MAX_WINDOW,
    ) -> Iterator[list[Candidate]]:
        """The translations of each text as texts come; at most `max_window` of them are waited for."""
        first = 1
        for window in growing_windows(texts, max_window):
            yield from self.candidates(window, settings, on_note, first)
            first += len(window)

    def _parts(self, text: str, ids: list[int], number: int, on_note: Callable[[str], None]) -> list[list[int]]:
        """The ids of a text in parts that are short enough; none if there is nothing to translate."""
        if not any(self._is_known(token) for token in ids):
            if text.strip():
                on_note(f"text {number} has nothing that the model knows: it stays as it is")
            return []
        longest = self.config.data.max_length - 1
        usual = self.meta.p99_source_length or longest
        if len(ids) <= usual:
            return [ids]
        encode = self.tokenizer.encode
        parts = [encode(part) for part in split_sentences(text, usual, longest, lambda part: len(encode(part)))]
        if len(parts) > 1:
            on_note(f"text {number} is longer than what the model learned from: translated in {len(parts)} parts")
        return parts

    def _is_known(self, token: int) -> bool:
        """Whether a token is known, and more than a blank."""
        return token != self.tokenizer.unknown and bool(self.tokenizer.pieces([token])[0].strip("▁ "))

    def _joined(self, parts: Sequence[Sequence[Hypothesis]]) -> list[Candidate]:
        """The best of all parts as one text, then the second best, as far as every part has one."""
        ranks = list(zip(*parts, strict=False))
        texts = (" ".join(self.tokenizer.decode_batch([part.ids for part in rank])) for rank in ranks)
        return [Candidate(t, sum(p.score for p in rank) / len(rank)) for t, rank in zip(texts, ranks, strict=True)]

    def prepare(self, item: str) -> PreparedInput:
        end = [self.tokenizer.stop] if self.tokenizer.ends_source else []
        ids = [*self.tokenizer.prefix, *self.tokenizer.encode(item), *end]
        start = self.tokenizer.start
        return PreparedInput(
            (torch.tensor([ids]),),
            (start,),
            encoder=self.token_strings(ids),
            decoder=self.token_strings([start]),
            stop=self.tokenizer.stop,
            max_tokens=2 * len(ids) + 10,
            beam_width=4,
            text=item,
            choices=self.choices,
        )

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"translation": text} for text in self.translate(items)]

    def predict_steps(self, items: list[str], work: int | None = None) -> Steps[list[dict[str, Any]]]:
        found = yield from self.candidate_steps(items, work=work)
        return [{"translation": candidates[0].text} for candidates in found]

    def sample_input(self, sample: str) -> str:
        return sample.partition(" → ")[0]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return self.translate(item, beam_width=1)

    def token_vectors(self, inputs: Tensor) -> Tensor:
        """The encoder's memory: what the decoder looks at."""
        network = self.network
        return network.read(inputs).states if isinstance(network, RnnSeq2Seq) else network.encode(inputs)[0]  # type: ignore[operator]
