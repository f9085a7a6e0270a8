"""What a person changes on the page, and what the model makes of it, beside the original.

A change is a line of a link: a token written anew, the temperature, or one of `look/changes.py`. The decoder of the
changed model reads the words of the original, so that every number has its counterpart; what it would write by itself
is its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from clearhead.decode import Prompts, generate
from clearhead.errors import ProbeError
from clearhead.look.build import compute_look, run_probes
from clearhead.look.changes import (
    BlockChange,
    Change,
    HeadChange,
    Index,
    MaskChange,
    PatchChange,
    PlaceChange,
    PositionsChange,
    SeenChange,
    Uncached,
    WeightChange,
    changed,
)
from clearhead.look.inputs import PreparedInput
from clearhead.look.look import Look
from clearhead.look.record import LookRecord, index_range
from clearhead.serve.registry import ServedModel
from clearhead.studio.inputs import InputBody, continues_text, limit_tokens
from clearhead.text import Tokenizer

CONTINUED = 24  # tokens that a language model adds


class TokenChange(BaseModel):
    """A token that is written anew."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["token"] = "token"
    stack: Literal["encoder", "decoder"]
    token: Index
    word: Annotated[str, Field(max_length=100)]


class TemperatureChange(BaseModel):
    """What the logits are divided by before the softmax; the answer is then drawn by these probabilities."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["temperature"] = "temperature"
    value: Annotated[float, Field(ge=0.05, le=10)]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


PageChange = Annotated[
    TokenChange
    | TemperatureChange
    | WeightChange
    | HeadChange
    | BlockChange
    | SeenChange
    | MaskChange
    | PositionsChange
    | PlaceChange
    | PatchChange,
    Field(discriminator="kind"),
]


class ChangedBody(InputBody):
    """An input and what is changed; with an output that is given (`target`), or while a text is continued (`generate`).

    With `follow` the decoder of a changed model reads what the model itself writes now.
    """

    target: Annotated[str | None, Field(max_length=2000)] = None
    generate: bool = False
    beams: Annotated[int, Field(ge=0, le=8, description="Of a beam search; 0 is the usual search.")] = 0
    changes: Annotated[list[PageChange], Field(max_length=64)] = []
    follow: bool = False

    @property
    def temperature(self) -> TemperatureChange | None:
        return next((each for each in reversed(self.changes) if isinstance(each, TemperatureChange)), None)


@dataclass(frozen=True)
class ChangedModel:
    """A model with changes, and the input that it reads."""

    served: ServedModel
    prepared: PreparedInput
    ids: list[int] | None  # what the decoder reads after the prompt; None = it reads the input alone
    inner: list[Change]  # those inside the network
    vectors: dict[Change, Tensor]
    beams: int = 0  # of the search that writes its answer; 0 is the usual one

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make the changes inside the network."""
        with changed(self.served.model.network, self.inner, self.vectors):
            yield

    def look(self) -> Look:
        """Everything that the network computes; call it while the changes are open, or without them."""
        model = self.served.model
        if self.ids is None:
            return compute_look(model.network, self.prepared, model.output_of, model=model.name, task=model.task)
        return look_at(model, self.prepared, self.ids)

    def answer(self, temperature: TemperatureChange | None = None) -> str:
        """What the model answers; call it while the changes are open."""
        model = self.served.model
        if not model.generates:
            return self.look().output
        item = self.prepared.text
        limit = limit_tokens(self.served, item, CONTINUED) if continues_text(self.served) else self.prepared.max_tokens
        ids = written(model, self.prepared, limit, temperature, self.beams)
        return str(model.tokenizer.decode(ids))


def original_answer(served: ServedModel, look: LookRecord) -> str:
    """What a model answers without any change: a language model continues the text, the others answered in the look."""
    model = served.model
    if not model.generates or not continues_text(served):
        return look.output
    limit = limit_tokens(served, look.text, CONTINUED)
    ids = model.generate_ids(model.prepare(look.text), max_tokens=limit, beam_width=1)
    return str(model.tokenizer.decode(ids))


def changed_model(served: ServedModel, item: Any, body: ChangedBody, original: LookRecord) -> ChangedModel:
    """The model and its input after every change; `original` is the look at what was not changed."""
    model = served.model
    inner: list[Change] = [each for each in body.changes if isinstance(each, Change)]
    for change in inner:
        _check_pair(change, original)
    vectors: dict[Change, Tensor] = {each: donated(served, each) for each in inner if isinstance(each, PatchChange)}
    edits = [each for each in body.changes if isinstance(each, TokenChange)]
    starts_anew = model.generates and not continues_text(served)
    ids: list[int] | None = None
    if starts_anew:
        item = edited(model, item, [each for each in edits if each.stack == "encoder"])
        prepared = model.prepare(item)
        ids = original.inputs[-1][0, len(prepared.prompt) :].tolist()
        if later := [each for each in edits if each.stack == "decoder"]:
            text = model.tokenizer.decode(ids)
            for edit in later:
                text = with_token(model.tokenizer, text, edit.token - len(prepared.prompt), edit.word)
            ids = model.tokenizer.encode(text)
        if body.follow:
            with changed(model.network, inner, vectors):
                ids = written(model, prepared, prepared.max_tokens, body.temperature, body.beams)
    else:
        if body.generate and model.generates:
            prepared = model.prepare(item)
            ids = original.inputs[-1][0, len(prepared.prompt) :].tolist()
            if edits:
                item, ids = model.tokenizer.decode([*prepared.prompt, *ids]), None
        item = edited(model, item, edits)
        prepared = model.prepare(item)
    return ChangedModel(served, prepared, ids, inner, vectors, body.beams)


def _check_pair(change: Change, original: LookRecord) -> None:
    """Refuse a query or a key that the text does not have."""
    if not isinstance(change, WeightChange | SeenChange):
        return
    stack, _, part = change.layer.rpartition(".")
    seen = original.attention.get(f"{stack.split('.')[0]}.{part}")
    if seen and 0 < len(seen.rows) <= change.query:
        raise ProbeError(f"{change.layer} has no query {change.query}; choose from {index_range(len(seen.rows))}")
    if seen and 0 < len(seen.columns) <= change.key:
        raise ProbeError(f"{change.layer} has no key {change.key}; choose from {index_range(len(seen.columns))}")


def look_at(model: Any, prepared: PreparedInput, ids: Sequence[int]) -> Look:
    """Everything that the network computes while its decoder reads these tokens."""
    stop = None if prepared.stop is None else model.token_strings([prepared.stop])[0]
    text = model.tokenizer.decode(ids)
    whole = prepared.continued(ids, model.token_strings(ids), stop)
    return compute_look(model.network, whole, lambda _logits: text, model=model.name, task=model.task)


def written(
    model: Any, prepared: PreparedInput, max_tokens: int, temperature: TemperatureChange | None = None, beams: int = 0
) -> list[int]:
    """What the network writes as it is now, by whole passes: by a search, or drawn at a temperature."""
    chosen: dict[str, Any] = {"max_tokens": max_tokens, **({"beam_width": beams} if beams else {})}
    if temperature is not None:
        chosen |= {"beam_width": 1, "temperature": temperature.value, "seed": temperature.seed}
    stepper = Uncached(model.network, prepared.sources)
    prompts = Prompts([prepared.prompt], prepared.stop)
    [[best, *_]] = generate(stepper, stepper.start(), prompts, model.generation_settings(prepared, **chosen))
    return list(best.ids)


# --- tokens ---


def edited(model: Any, text: Any, edits: Sequence[TokenChange]) -> Any:
    """An input with some of its tokens written anew, one after the other."""
    for edit in edits:
        if not isinstance(text, str):
            raise ProbeError("an image has no words to write anew; draw on it instead")
        prepared = model.prepare(text)
        read = list(prepared.prompt) if not prepared.sources else prepared.sources[0][0].tolist()
        text = with_token(model.tokenizer, text, edit.token - _offset(read, model.tokenizer.encode(text)), edit.word)
    return text


def _offset(read: Sequence[int], ids: Sequence[int]) -> int:
    """How many special tokens stand before a text."""
    starts = (start for start in range(len(read) - len(ids) + 1) if read[start : start + len(ids)] == ids)
    return next(starts, 0)


def with_token(tokenizer: Tokenizer, text: str, token: int, word: str) -> str:
    """A text with one of its tokens replaced by a word, blanks around it kept; an empty word takes the token out."""
    ids = tokenizer.encode(text)
    if not 0 <= token < len(ids):
        raise ProbeError("this token is not a word of the text, so it cannot be written anew")
    before, through, whole = (tokenizer.decode(ids[:count]) for count in (token, token + 1, len(ids)))
    own = through.removeprefix(before)  # with the blank before it, as this kind of token has it
    blank = own[: len(own) - len(own.lstrip())] if own.strip() and before else ""
    after = whole.removeprefix(through) if whole.startswith(through) else tokenizer.decode(ids[token + 1 :])
    before = f"{before}{blank}" if word else before
    found = f"{before}{word}{after}"
    if not found.strip():
        raise ProbeError("nothing is left of the text: write another word instead")
    return found


# --- states of another text ---


def donated(served: ServedModel, change: PatchChange) -> Tensor:
    """The vector (D,) that a patch takes from its donor, whose decoder reads the donor's own answer."""
    model = served.model
    prepared = model.prepare(change.donor)
    if model.generates and not continues_text(served):
        ids = model.generate_ids(prepared, beam_width=1)
        prepared = prepared.continued(ids, model.token_strings(ids), None)
    with torch.no_grad():
        states = run_probes(model.network, prepared.inputs, change.state)[change.state][0]  # (T, D)
    if change.taken >= len(states):
        raise ProbeError(f"{change.donor!r} has no token {change.taken}; choose from {index_range(len(states))}")
    return states[change.taken].cpu()
