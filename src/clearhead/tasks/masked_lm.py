"""Masked language modelling: predict hidden tokens from all the others; and the model that fills them in.

B windows, T tokens
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.errors import ConfigError
from clearhead.look.inputs import MAX_LOGGED, PreparedInput
from clearhead.models.lm import MaskedLanguageModel as MaskedLanguageModelNetwork
from clearhead.run import Sizes
from clearhead.tasks.base.losses import IGNORE_INDEX, mask_tokens, token_loss
from clearhead.tasks.base.metrics import perplexity
from clearhead.tasks.base.predictor import Predictor
from clearhead.tasks.base.running_text import RunningTextTask, WindowModel
from clearhead.tasks.base.task import Batch, Evaluation


class MaskedTextModel(WindowModel):
    """A masked language model."""

    architecture: Literal["transformer", "rnn"] = Field("transformer", description="only transformer sees both sides")


class MaskedLm(RunningTextTask[MaskedTextModel]):
    """Predict tokens that were masked, each from all the others."""

    name = "masked_lm"
    title = "A masked language model"
    score_names = ("perplexity",)
    model_type = MaskedTextModel
    rank = 7
    row_by_row = False  # the masks follow from all tokens of a batch

    @classmethod
    def build(cls, model: MaskedTextModel, sizes: Sizes) -> nn.Module:
        if model.architecture == "rnn":
            raise ConfigError(
                "masked_lm with model.architecture=rnn: a recurrent network does not see what comes after a masked "
                "token; choose the task lm or model.architecture=transformer"
            )
        return MaskedLanguageModelNetwork(model, sizes.vocabulary, sizes.pad)

    def tensors(self, rows: Tensor) -> Batch:
        # The masks follow from the tokens themselves, so that they are the same after a resume.
        generator = torch.Generator().manual_seed(int(rows.sum()) + self.config.train.seed)
        tokenizer = self.tokenizer
        special = [tokenizer.pad, tokenizer.start, tokenizer.stop, tokenizer.cls]
        ids, targets = mask_tokens(
            rows[:, :-1], tokenizer.mask, len(tokenizer), generator=generator, special_ids=special
        )
        return {"ids": ids, "targets": targets}

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """The hidden tokens only."""
        targets = batch["targets"]
        hidden = targets != IGNORE_INDEX
        return token_loss(model(batch["ids"], hidden), targets[hidden], pad=IGNORE_INDEX, smoothing=smoothing)

    def evaluate(self, model: Any, device: torch.device) -> Evaluation:
        found = super().evaluate(model, device)
        return Evaluation(found.loss, (perplexity(found.loss),), found.sample)

    def example(self) -> PreparedInput:
        """The first tokens of the validation text."""
        ids = next(self.validation())["ids"][:1, :MAX_LOGGED]
        return PreparedInput((ids,), encoder=self.tokenizer.pieces(ids[0]))


class MaskedLanguageModel(Predictor, task=MaskedLm):
    """Reads a text and says which token it would expect in each place."""

    config: Config[MaskedTextModel]
    verb = "predict"

    @torch.inference_mode()
    def fill_in(self, text: str) -> str:
        """The likeliest token in each place, as one text; where the text has masks, only these are filled in."""
        [ids] = self.prepare(text).inputs
        best = self.network(ids)[0].argmax(-1)
        masks = ids[0] == self.tokenizer.mask
        return self.tokenizer.decode((torch.where(masks, best, ids[0]) if masks.any() else best).tolist())

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text, in which a mask may be spelled out."""
        tokenizer = self.tokenizer
        masked = tokenizer.mask != tokenizer.unknown and tokenizer.token(tokenizer.mask) in text
        ids = tokenizer.encode_special(text) if masked else tokenizer.encode(text)
        return tokenizer.framed(ids, self.max_read) or [tokenizer.start]

    def prepare(self, item: str) -> PreparedInput:
        ids = self._ids(item)
        return PreparedInput(
            (torch.tensor([ids]),),
            encoder=self.token_strings(ids),
            text=item,
            choices=tuple(self.token_strings(range(len(self.tokenizer)))),
        )

    def output_of(self, logits: Tensor) -> str:
        return self.tokenizer.decode(logits.argmax(-1).tolist())

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"text": self.fill_in(item)} for item in items]

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return self.fill_in(item)

    def token_vectors(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = self.network.read(inputs)  # type: ignore[operator]
        return vectors

    def _embedding_prefix(self) -> list[int]:
        return list(self.tokenizer.prefix)

    @property
    def max_read(self) -> int:
        length: int = self.config.model.length
        return length
