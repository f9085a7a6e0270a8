"""Language modelling: windows of running text, the next token, perplexity; and the language model.

B windows, T tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from clearhead.config import Config
from clearhead.decode import Prompts, Settings, generate, text_pieces
from clearhead.errors import ConfigError
from clearhead.look.inputs import MAX_LOGGED, PreparedInput
from clearhead.models.build import smaller_window
from clearhead.models.lm import LanguageModel as LanguageModelNetwork
from clearhead.models.rnn import RnnLanguageModel
from clearhead.nn import MultiHeadAttention
from clearhead.nn.positions import reads_in_windows
from clearhead.run import Sizes
from clearhead.tasks.base.losses import IGNORE_INDEX, token_loss
from clearhead.tasks.base.metrics import Score, bits_per_character, perplexity
from clearhead.tasks.base.predictor import GeneratingPredictor
from clearhead.tasks.base.running_text import RunningTextTask, WindowModel
from clearhead.tasks.base.scheduled_sampling import replace_with_predictions
from clearhead.tasks.base.task import Batch, Evaluation, device_of
from clearhead.text.chat_template import ChatTemplate, Message, chat_template, encode_chat

if TYPE_CHECKING:  # imported on first use, like all that looks inside
    from clearhead.look.seeing import SeenText

SAMPLE = 120  # tokens generated at each evaluation
SAMPLE_CHARACTERS = 24  # of that text, as an example input


class TextModel(WindowModel):
    """A language model."""

    architecture: Literal["transformer", "rnn"] = Field("transformer", description="attention, or what came before")


class Lm(RunningTextTask[TextModel]):
    """Predict the next token of running text."""

    name = "lm"
    title = "A language model"
    score_names = ("perplexity", "bits per character")
    model_type = TextModel
    rank = 1

    legacy_settings = ("model.objective",)

    @classmethod
    def migrate(cls, values: dict[str, Any]) -> None:
        """The masked objective was a setting of `lm` before it became the task `masked_lm`."""
        if values.get("model", {}).pop("objective", "next") == "masked":
            values["task"] = "masked_lm"

    @classmethod
    def build(cls, model: TextModel, sizes: Sizes) -> nn.Module:
        system = LanguageModelNetwork if model.architecture == "transformer" else RnnLanguageModel
        return system(model, sizes.vocabulary, sizes.pad)

    def tensors(self, rows: Tensor) -> Batch:
        return {"ids": rows[:, :-1], "targets": rows[:, 1:]}

    def loss(self, model: Any, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Every token from those before it, all at once."""
        return token_loss(model(batch["ids"]), batch["targets"], pad=IGNORE_INDEX, smoothing=smoothing)

    def scheduled_sampling(self, model: Any, batch: Batch, share: float) -> Batch:
        with torch.no_grad():
            predicted = model(batch["ids"]).argmax(-1)
        return {**batch, "ids": replace_with_predictions(batch["ids"], predicted, share, pad=IGNORE_INDEX)}

    def evaluate(self, model: Any, device: torch.device) -> Evaluation:
        """The loss, as perplexity of a token and as bits per character."""
        found = super().evaluate(model, device)
        scores = (perplexity(found.loss), bits_per_character(found.loss, len(self.held_out) - 1, self.characters))
        return Evaluation(found.loss, scores, found.sample)

    def scores(self, model: Any) -> tuple[tuple[Score, ...], str]:
        """A sample that continues the first tokens of the validation text."""
        prompt = self.held_out.read(np.array([0]), min(16, len(self.held_out)))[0].tolist()
        longest = max(0, min(SAMPLE, self.config.model.length - len(prompt)))
        settings = Settings(max_tokens=longest, temperature=0.8, seed=1)
        [[written]] = generate(model, model.start(), Prompts([prompt], device=device_of(model)), settings)
        return (), self.tokenizer.decode(prompt + written.ids)

    def example(self) -> PreparedInput:
        """The first tokens of the validation text."""
        ids = next(self.validation())["ids"][0, :MAX_LOGGED].tolist()
        return PreparedInput(prompt=tuple(ids), decoder=self.tokenizer.pieces(ids))


class LanguageModel(GeneratingPredictor, task=Lm):
    """Continues a text."""

    config: Config[TextModel]
    verb = "generate"

    @overload
    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 200,
        stream: Literal[False] = False,
        stops: Sequence[str] = (),
        cache: int | None = None,
        **settings: Any,
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 200,
        stream: Literal[True],
        stops: Sequence[str] = (),
        cache: int | None = None,
        **settings: Any,
    ) -> Iterator[str]: ...
    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 200,
        stream: bool = False,
        stops: Sequence[str] = (),
        cache: int | None = None,
        **settings: Any,
    ) -> str | Iterator[str]:
        """The prompt and its continuation, up to the first of the stop strings; with `stream` an iterator over pieces.

        `settings` are those of `clearhead.decode.Settings`; without any, tokens are sampled from the model's own
        distribution. Where its positions allow it, a text can be longer than the training windows: the model then looks
        back at as many tokens as it was trained with, or at `cache` tokens.
        """
        temperature = 1.0 if settings.get("beam_width", 1) == 1 else 0.0
        chosen = self._settings(**{"max_tokens": max_tokens, "temperature": temperature, **settings})
        ids = self.prompt_ids(prompt)
        window = self.window(len(ids) + max_tokens, cache)
        tokens = self.engines.stream(ids, self.special, chosen, window)
        text = text_pieces(tokens, self.tokenizer.decode, before=ids, stops=stops)
        return text if stream else prompt + "".join(text)

    def see(
        self,
        prompt: str,
        *probes: str,
        heads: int | Sequence[int] | None = None,
        max_tokens: int = 200,
        **settings: Any,
    ) -> SeenText:
        """What `generate` generates, and some probes of it: `see("ROMEO:", "decoder.2.self.weights", heads=1)`.

        Attention weights and scores are handed out by the engine while it generates; for other probes the network reads
        the text once more.
        """
        from clearhead.look.seeing import SeenRow, SeenText, generate_seeing, heads_to_see, read_capturing

        chosen = self._settings(**{"max_tokens": max_tokens, "temperature": 1.0, **settings})
        if chosen.beam_width > 1:
            raise ConfigError(f"beam_width={chosen.beam_width} is decided at the end; only beam_width=1 can be seen")
        ids = self.prompt_ids(prompt)
        window, stepper = self.window(len(ids) + max_tokens), self.engines.stepper()
        wanted = heads_to_see(self.outline, stepper, probes, heads)
        seen = None if wanted is None else SeenRow(wanted)
        state = start_reading(stepper, window)
        whole = generate_seeing(stepper, state, ids, self.special.stop, chosen, seen)
        if seen is None:
            network: Any = self.network
            found = read_capturing(network, start_reading(network, window), whole, probes, heads)
        else:
            found = seen.tensors()
        return SeenText(prompt + self._continuation(ids, whole), self.token_strings(whole), found)

    def _continuation(self, prompt: list[int], ids: list[int]) -> str:
        """The text of the tokens after a prompt, as `generate` returns it."""
        return "".join(text_pieces(ids[len(prompt) :], self.tokenizer.decode, before=prompt))

    def prompt_ids(self, prompt: str) -> list[int]:
        """The tokens of a prompt, with what the model expects before every text; never none."""
        return [*self.tokenizer.prefix, *self.tokenizer.encode(prompt)] or [self.tokenizer.start]

    def _embedding_prefix(self) -> list[int]:
        return list(self.tokenizer.prefix)

    def start_state(self, stepper: Any, prepared: PreparedInput, max_tokens: int) -> Any:
        return start_reading(stepper, self.window(len(prepared.prompt) + max_tokens))

    def window(self, tokens: int, cache: int | None = None) -> int | None:
        """How many tokens back a text of this length is attended to; None for all of them."""
        if cache is not None and cache < 1:
            raise ConfigError(f"cache={cache} must be 1 or more")
        if not isinstance(self.outline, LanguageModelNetwork):
            return None  # the state of an RNN has one size
        if reads_in_windows(self.outline):
            cache = smaller_window(cache, self.config.model.length)
        return cache if cache is not None and cache < tokens else None

    def _settings(self, **values: Any) -> Settings:
        """Settings with which a text ends at any of the tokens that end one."""
        return Settings.create(**{"stop_tokens": self.tokenizer.stops, **values})

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """How a conversation becomes a prompt."""
        return chat_template(self.tokenizer)

    def chat(self, messages: Sequence[Message], *, max_tokens: int = 256, **settings: Any) -> Iterator[str]:
        """The assistant's next message in pieces, up to its end or the next speaker.

        `messages` are `{"role": "user", "content": "…"}`; `settings` are those of `clearhead.decode.Settings`.
        """
        chosen = self._settings(**{"max_tokens": max_tokens, "temperature": 0.7, **settings})
        ids = encode_chat(self.tokenizer, self.chat_template, messages)
        tokens = self.engines.stream(ids, self.special, chosen, self.window(len(ids) + max_tokens))
        return text_pieces(tokens, self.tokenizer.decode, before=ids, stops=self.chat_template.stops)

    def cache_bytes(self, tokens: int) -> int:
        """The memory of the keys and values of so many tokens."""
        layers = [part for part in self.outline.modules() if isinstance(part, MultiHeadAttention)]
        vector: Callable[[int], int] = getattr(self.engines.stepper(), "vector_bytes", lambda size: 4 * size)
        return sum(tokens * each.kv_heads * (vector(each.key_dim) + vector(each.value_dim)) for each in layers)

    def prepare(self, item: str) -> PreparedInput:
        ids = self.prompt_ids(item)
        return PreparedInput(
            prompt=tuple(ids),
            decoder=self.token_strings(ids),
            stop=self.tokenizer.end,
            text=item,
            choices=self.choices,
        )

    def output_of(self, logits: Tensor) -> str:
        """The likeliest next token."""
        return self.tokenizer.decode([int(logits[-1].argmax())])

    def predict_batch(self, items: list[str]) -> list[dict[str, Any]]:
        return [{"text": self.answer(item)} for item in items]

    def sample_input(self, sample: str) -> str:
        """How the text begins that it wrote."""
        start = sample[:SAMPLE_CHARACTERS]
        return start.rpartition(" ")[0] or start

    def answer(self, item: str, max_tokens: int | None = None) -> str:
        return self.generate(item, max_tokens=max_tokens or 40, temperature=0.0)

    def token_vectors(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = self.network.read(inputs)  # type: ignore[operator]
        return vectors

    @property
    def max_read(self) -> int:
        length: int = self.config.model.length
        return length


def start_reading(stepper: Any, window: int | None) -> Any:
    """The state of an engine or of the network before the first token."""
    return stepper.start() if window is None else stepper.start(window=window)
