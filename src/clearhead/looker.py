"""What `Model.look` does for each task: from a text or an image to what the network reads, each token with its word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.decode import Prompts, Settings, generate
from clearhead.errors import ProbeError
from clearhead.look.beams import BeamTree, beam_tree
from clearhead.look.look import Look
from clearhead.look.see import About, Example, patch_names, readable, see
from clearhead.look.writing import Beginning, look_while_writing
from clearhead.train.pixels import normalised

if TYPE_CHECKING:
    from clearhead.api import Model

CONTINUED = 40  # tokens that a language model adds, unless said


@dataclass(frozen=True)
class Given:
    """What a model is given before it writes."""

    about: About
    beginning: Beginning
    longest: int = CONTINUED  # tokens written at most
    beams: int = 1

    def settings(self, **settings: Any) -> Settings:
        """How it writes, where nothing else is said."""
        return Settings.create(**{"max_tokens": self.longest, "beam_width": self.beams, **settings})


class Looker:
    """A loaded model that is to be looked into."""

    def __init__(self, model: Model):
        self.model = model
        self.writers: dict[str, Callable[[Any], Given]] = {
            "translate": self.sentence,
            "caption": self.picture,
            "lm": self.beginning,
        }
        self.readers: dict[str, Callable[[Any], Look]] = {
            "classify": self.label,
            "tag": self.tag,
            "vision": self.recognise,
        }

    def look(self, item: Any, target: str | None = None, generate: bool = False, **settings: Any) -> Look:
        """All that the model computes for one input; a `target` is what it is to have written."""
        task = self.model.config.task
        if task == "words":
            raise ProbeError(f"{self.model.name} has one vector for each word and no attention; ask it for neighbours")
        if task in self.readers or self._masked:
            if target is not None or generate or settings:
                raise ProbeError(f"{self.model.name} does not write: it takes no target and no settings of writing")
            return self.fill_in(item) if self._masked else self.readers[task](item)
        given = self.writers[task](item)
        if target is not None:
            return self.written(given, self.model.tokenizer.encode(target))
        if generate:
            chosen, vocabulary = given.settings(**settings), self.model.tokenizer
            return look_while_writing(self.model.network, given.beginning, chosen, vocabulary, given.about)
        if task == "lm":
            return self.read(given)
        return self.written(given, self.write(given, **settings))

    def beam_tree(self, item: Any, beams: int = 4, **settings: Any) -> BeamTree:
        """Every text that a beam search kept or dropped."""
        task = self.model.config.task
        if task not in self.writers or self._masked:
            raise ProbeError(f"{self.model.name} is a model for {task}: it does not write, so it has no beams")
        given = self.writers[task](item)
        chosen, start = given.settings(**{"beam_width": beams, **settings}), given.beginning
        text = given.about.text
        return beam_tree(self.model.network, start.sources, start.prompt, start.stop, chosen, self.words, text)

    # --- what writes ---

    def sentence(self, text: str) -> Given:
        """A translator reads a sentence."""
        vocabulary = self.model.tokenizer
        ids = [*vocabulary.encode(text), vocabulary.stop]
        beginning = Beginning([vocabulary.start], (torch.tensor([ids]),), vocabulary.stop, encoder=self.words(ids))
        return Given(self._about(text, self.tokens), beginning, longest=2 * len(ids) + 10, beams=4)

    def picture(self, item: Any) -> Given:
        """A captioner reads an image: with an encoder, or as the first tokens of its text."""
        images, about = self._image(item, self.tokens)
        patches = patch_names(images, self.model.config.model.patch)
        one_sequence = self.model.config.model.architecture == "sequence"
        beginning = Beginning(
            prompt=[self.model.tokenizer.start],
            sources=(images,),
            stop=self.model.tokenizer.stop,
            encoder=() if one_sequence else ["class", *patches],
            before=patches if one_sequence else (),
        )
        about = replace(about, class_token=not one_sequence)
        return Given(about, beginning, longest=self.model.config.data.max_length)

    def beginning(self, text: str) -> Given:
        """A language model goes on from what it has read."""
        ids = self.model.tokenizer.encode(text) or [self.model.tokenizer.start]
        return Given(self._about(text, self.tokens), Beginning(ids))

    def write(self, given: Given, **settings: Any) -> list[int]:
        """The ids that are found or drawn, without the stop."""
        network, start = self.model.network, given.beginning
        with torch.inference_mode():
            state = network.start(*start.sources)
        [[best, *_]] = generate(network, state, Prompts([start.prompt], start.stop), given.settings(**settings))
        return best.ids

    def written(self, given: Given, ids: Sequence[int]) -> Look:
        """What the model computes for a text that is there already, and this text as its answer."""
        start = given.beginning
        read = [*start.prompt, *ids]
        end = [] if start.stop is None else [start.stop]
        example = Example(
            inputs=(*start.sources, torch.tensor([read])),
            encoder=start.encoder,
            decoder=[*start.before, *self.words(read)],
            written=self.words([*ids, *end]),
        )
        text = self.model.tokenizer.decode(ids)
        return see(self.model.network, example, replace(given.about, answer=lambda _logits: text))

    def read(self, given: Given) -> Look:
        """What a language model computes for a text, and its likeliest next token."""
        ids, decode = given.beginning.prompt, self.model.tokenizer.decode
        about = replace(given.about, answer=lambda logits: decode([int(logits[-1].argmax())]))
        return see(self.model.network, Example((torch.tensor([ids]),), decoder=self.words(ids)), about)

    # --- what only reads ---

    @property
    def _masked(self) -> bool:
        """Whether it is a language model that sees both ways."""
        return self.model.config.task == "lm" and self.model.config.model.objective == "masked"

    def fill_in(self, text: str) -> Look:
        """A masked language model reads a text; it answers with the likeliest token in each place."""
        given, decode = self.beginning(text), self.model.tokenizer.decode
        ids = given.beginning.prompt
        about = replace(given.about, answer=lambda logits: decode(logits.argmax(-1).tolist()))
        return see(self.model.network, Example((torch.tensor([ids]),), encoder=self.words(ids)), about)

    def label(self, text: str) -> Look:
        """A classifier reads a text, after a token that stands for all of it."""
        ids = self.model.classified(text)
        about = replace(self._about(text, self.model.meta.labels), class_token=True)
        return see(self.model.network, Example((ids,), encoder=self.words(ids[0])), about)

    def tag(self, text: str) -> Look:
        """A tagger reads words."""
        words = text.split()
        if not words:
            raise ProbeError("there is nothing to look at: the text has no words")
        ids = torch.tensor([self.model.word_ids(words)])
        return see(self.model.network, Example((ids,), encoder=words), self._about(text, self.model.meta.labels))

    def recognise(self, item: Any) -> Look:
        """A vision transformer reads an image, after a token that stands for all of it."""
        images, about = self._image(item, self.model.meta.labels)
        patches = patch_names(images, self.model.config.model.patch)
        example = Example((images,), encoder=["class", *patches])
        return see(self.model.network, example, replace(about, class_token=True))

    # --- words and images ---

    def words(self, ids: Iterable[int]) -> list[str]:
        """Each token as people read it."""
        return [readable(piece) for piece in self.model.tokenizer.pieces(ids)]

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """All that a model chooses from when it writes."""
        return tuple(self.words(range(len(self.model.tokenizer))))

    def _about(self, text: str, choices: tuple[str, ...]) -> About:
        """The answer is the likeliest choice, or one for each position."""

        def answer(logits: Tensor) -> str:
            return " ".join(choices[best] for best in logits.argmax(-1).reshape(-1).tolist())

        return About(self.model.name, self.model.config.task, text, answer, choices)

    def _image(self, item: Any, choices: tuple[str, ...]) -> tuple[Tensor, About]:
        """What the network reads (1, C, height, width), and what is said of it."""
        pixels = self.model.pixels(item)
        name = Path(item).name if isinstance(item, str | Path) else "image"
        patch = self.model.config.model.patch
        grid = (pixels.shape[0] // patch, pixels.shape[1] // patch)
        about = replace(self._about(name, choices), image=torch.from_numpy(pixels.copy()), grid=grid)
        return normalised(pixels[None]), about
