"""Classification of texts: one label for each; and the classifier.

A word may be read with its features (its beginning and ending, its neighbours), so that one that training never saw is
not unknown. B texts, T tokens, F features, C classes
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.data import Labelled
from clearhead.data.examples import AnyDataset
from clearhead.look.inputs import PreparedInput
from clearhead.models.classifier import Classifier as ClassifierNetwork
from clearhead.models.classifier import TextEncoder, WideClassifier, WordEncoder
from clearhead.models.config import PooledConfig, WordFeatureConfig
from clearhead.nn.wide import FACTORS, TEMPERATURES, best_mixture, linear_logits, mixture_losses, solve_tables
from clearhead.run import Sizes
from clearhead.tasks.base.labels import (
    Classification,
    TextLabelTask,
    Words,
    classifications,
    numbered,
    padded_batches,
    word_tensor,
)
from clearhead.tasks.base.losses import class_loss, label_loss
from clearhead.tasks.base.predictor import BATCH, Predictor
from clearhead.tasks.base.recipe import Budget, DataFacts, Recipe
from clearhead.tasks.base.task import Batch, Examples, device_of
from clearhead.text import Tokenizer
from clearhead.text.scripts import is_without_spaces
from clearhead.text.word_features import word_features

SCRIPT_SAMPLE = 500  # texts that show in which script they are written
WIDE_ROWS = {20: 262_144, 100: 65_536}  # of the linear model beside the network, for how many labels at most
WIDE_CHARACTERS = 20_000_000  # of all texts, at most: it is solved for in seconds
LONG_WORD = 15.0  # characters: the text has hardly any spaces


class ClassifyModel(PooledConfig, WordFeatureConfig):
    """A classifier of texts."""

    several: bool = Field(False, description="each label has a probability of its own: a text may have several")
    wide: int = Field(
        0, ge=0, description="rows for hashed tokens and pairs of a linear model beside the network; 0 = none"
    )


class Classify(TextLabelTask[ClassifyModel, Labelled]):
    """Choose one of a few labels for a text; its first token is the class token."""

    name = "classify"
    title = "A classifier of texts"
    data_kind = "labelled"
    model_type = ClassifyModel
    rank = 2
    defaults = {"model": {"positions": "learned", "feed_forward": "gelu"}}
    unit = "examples"
    metric, score_names = "accuracy", ("accuracy", "macro F1")

    @classmethod
    def facts(cls, dataset: AnyDataset) -> DataFacts:
        found = replace(super().facts(dataset), labels=len({each.label for each in dataset.train}))
        some = (each.text for each in islice(dataset.train, SCRIPT_SAMPLE))
        return replace(found, word=math.inf) if is_without_spaces(some) else found

    @classmethod
    def recipe(cls, facts: DataFacts, budget: Budget) -> Recipe:
        """Words with features and n-grams where texts are few; pieces where they are many, or have no spaces."""
        own: dict[str, Any]
        if facts.examples < 20_000 and facts.word < LONG_WORD:
            own = {"tokenizer.kind": "word", "tokenizer.size": 8000, "model.ngrams": 3, "model.features": 16384}
            own |= {"model.layers": 1, "model.dropout": 0.5}
        else:
            own = {"tokenizer.size": 8000, "tokenizer.lowercase": True, "data.augment": 0.15}
            own |= {"train.learning_rate": 0.002, "train.average": 0.99}
        return {**super().recipe(facts, budget), **own, "model.wide": _wide_rows(facts)}

    @classmethod
    def build(cls, model: ClassifyModel, sizes: Sizes) -> nn.Module:
        encoder = (
            WordEncoder(model, sizes.vocabulary, sizes.pad)
            if model.features
            else TextEncoder(model, sizes.vocabulary, sizes.pad, model.ngrams, model.causal)
        )
        shape = (model, sizes.vocabulary, sizes.classes, sizes.pad)
        if model.wide:
            return WideClassifier(*shape, encoder=encoder, rows=model.wide)
        return ClassifierNetwork(*shape, encoder=encoder)

    @torch.inference_mode()
    def finish(self, model: nn.Module) -> Mapping[str, Tensor]:
        """The linear model beside the network, weighted so that the two together fit the validation part best."""
        if not isinstance(model, WideClassifier):
            return {}
        model.eval()
        output, old = model.output, model.output.table.cpu()
        rows, classes = old.shape
        tables = solve_tables([each.ids for each in self.ids], torch.from_numpy(self.labels), rows, classes)
        losses = torch.zeros(len(tables), len(FACTORS), len(TEMPERATURES))
        smoothing = classes / (len(self.held_out_ids) + classes)  # the rule of succession
        for batch in self.validation():
            text = model.encoder.real(batch["ids"]), model.encoder.token_ids(batch["ids"])
            network = model(batch["ids"].to(device_of(model))).cpu() - linear_logits(old, *text)
            for loss, table in zip(losses, tables, strict=True):
                loss += mixture_losses(network, linear_logits(table, *text), batch["labels"], smoothing)
        number, factor, temperature = best_mixture(self.share.all_reduce(losses))
        scaled = {f"output.linear.{name}": each / temperature for name, each in output.linear.named_parameters()}
        return {**scaled, "output.table": tables[number] * (factor / temperature)}

    def text(self, example: Labelled) -> str:
        return example.text

    def labels_of(self, example: Labelled) -> Sequence[str]:
        return (example.label,)

    def encode(self, examples: Sequence[Labelled]) -> list[Words]:
        """The class token, then the text up to the longest length."""
        return encode_texts(self.tokenizer, [each.text for each in examples], self.config)

    def label_numbers(
        self, examples: Sequence[Labelled], ids: Sequence[Words], known: Sequence[str]
    ) -> NDArray[np.int64]:
        return numbered((each.label for each in examples), known, self.config.data.path)

    def tensors(self, ids: Sequence[Words], labels: Any, indices: list[int]) -> Batch:
        """ids (B, T) or (B, T, 1 + F), and labels (B,)."""
        rows = word_tensor([ids[i] for i in indices], self.tokenizer.pad)
        return {"ids": rows, "labels": torch.from_numpy(labels[indices])}

    def batch(self, examples: Examples) -> Batch:
        """Some training texts, a share of their tokens hidden with `data.augment`."""
        batch = super().batch(examples)
        share = self.config.data.augment
        return {**batch, "ids": self._hidden(batch["ids"], share)} if share else batch

    def _hidden(self, rows: Tensor, share: float) -> Tensor:
        """Replace a random share of the tokens by the unknown token; class token and padding stay, features too."""
        ids = rows if rows.ndim == 2 else rows[..., 0]
        kept = torch.tensor([self.tokenizer.pad, self.tokenizer.cls, *self.tokenizer.prefix, *self.tokenizer.suffix])
        words = ~torch.isin(ids, kept)
        ids = torch.where(words & (torch.rand(ids.shape) < share), self.tokenizer.unknown, ids)
        return ids if rows.ndim == 2 else torch.cat([ids[..., None], rows[..., 1:]], -1)

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        loss = label_loss if self.config.model.several else class_loss
        return loss(model(batch["ids"]), batch["labels"], smoothing=smoothing)

    def predicted_and_right(self, model: Any) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.validation():
            yield model(batch["ids"].to(device_of(model))).argmax(-1), batch["labels"]


def _wide_rows(facts: DataFacts) -> int:
    """Of the linear model: 0 where there are too many labels or texts for one."""
    fitting = (rows for labels, rows in WIDE_ROWS.items() if facts.labels <= labels)
    return next(fitting, 0) if facts.examples * facts.length <= WIDE_CHARACTERS else 0


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], config: Config[ClassifyModel]) -> list[Words]:
    """Each text between what the model expects around it, up to the longest length, with the features of its words."""
    longest, first, rows = config.data.max_length, _class_token(config, tokenizer), config.model.features
    if not rows:
        return [Words(tokenizer.framed(ids, longest, first)) for ids in tokenizer.encode_batch(texts)]
    found = []
    for ids, words in tokenizer.encode_with_text(texts):
        framed, before = tokenizer.framed(ids, longest, first), len(tokenizer.prefix or first)
        inside = word_features(words, rows)[: len(framed) - before - len(tokenizer.suffix)]
        found.append(Words(framed, features=np.pad(inside, ((before, len(tokenizer.suffix)), (0, 0)))))
    return found


def _class_token(config: Config[ClassifyModel], tokenizer: Tokenizer) -> tuple[int, ...]:
    """What stands first; in a causal model it would see nothing, and the last token sees all."""
    return () if config.model.causal else (tokenizer.cls,)


class Classifier(Predictor, task=Classify):
    """Chooses a label for a text."""

    config: Config[ClassifyModel]
    verb = "classify"
    example_inputs = ("a warm, funny film", "two hours that I will never get back")

    @overload
    def classify(self, item: str) -> Classification: ...
    @overload
    def classify(self, item: list[str]) -> list[Classification]: ...
    def classify(self, item: str | list[str]) -> Classification | list[Classification]:
        """The label of a text, with the probability of each; a list gives a list."""
        if isinstance(item, str):
            return self._classify([item])[0]
        return self._classify(item)

    @torch.inference_mode()
    def _classify(self, texts: list[str]) -> list[Classification]:
        rows = encode_texts(self.tokenizer, texts, self.config)
        found: dict[int, Classification] = {}
        groups = list(padded_batches(rows, BATCH))
        batches = (word_tensor([rows[i] for i in group], self.tokenizer.pad) for group in groups)
        for group, logits in zip(groups, self.engines.apply_all(batches), strict=True):
            probabilities = logits.sigmoid() if self.config.model.several else logits.softmax(-1)
            found |= zip(group, classifications(probabilities, self.meta.labels), strict=True)
        return [found[i] for i in range(len(rows))]

    def prepare(self, item: str) -> PreparedInput:
        [words] = encode_texts(self.tokenizer, [item], self.config)
        return PreparedInput(
            (word_tensor([words], self.tokenizer.pad),),
            encoder=self.token_strings(words.ids),
            text=item,
            choices=self.choices,
            class_token=not self.config.model.causal,
        )

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"label": each.label, "probabilities": each.probabilities} for each in self.classify(items)]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return self.classify(item).label

    def token_vectors(self, inputs: Tensor) -> Tensor:
        """A text comes as the ids of its tokens: the features are those of the tokens, not of unknown words."""
        if rows := self.config.model.features:
            read = [Words(ids, features=word_features(self.tokenizer.pieces(ids), rows)) for ids in inputs.tolist()]
            inputs = word_tensor(read, self.tokenizer.pad)
        return self.engines.encode(inputs)

    def _embedding_prefix(self) -> list[int]:
        return list(self.tokenizer.prefix) or list(_class_token(self.config, self.tokenizer))
