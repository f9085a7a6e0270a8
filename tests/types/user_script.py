"""A user's script, for the type checker: what comes out of the public API has a type. It is checked, not run."""

# mypy: disallow-any-expr

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import clearhead
from clearhead import Candidate, Classification, Classifier, LanguageModel, Translator, WordVectors
from clearhead.look import Figure, Look

m = clearhead.load("en-es")
assert_type(m.name, str)
assert_type(m.translate("we are eating bread"), str)
assert_type(m.translate(["we are eating bread"]), list[str])
assert_type(m.candidates(["we are eating bread"]), list[list[Candidate]])
assert_type(m.generate("ROMEO:", max_tokens=20, temperature=0.8, top_p=0.9), str)
assert_type(m.generate("ROMEO:", stream=True), Iterator[str])
assert_type(m.classify("a warm, funny film"), Classification)
assert_type(m.classify(["a warm, funny film"]), list[Classification])
assert_type(m.classify("a warm, funny film").probabilities, dict[str, float])
assert_type(m.tag("the old dog"), list[tuple[str, str]])
assert_type(m.tag(["the old dog"]), list[list[tuple[str, str]]])
assert_type(m.caption(Path("image.png")), str)
assert_type(m.caption([Path("image.png")]), list[str])
assert_type(m.embed("a text"), NDArray[np.float32])
assert_type(m.neighbours("king"), list[tuple[str, float]])
assert_type(m.analogy("king", "man", "woman"), list[tuple[str, float]])
assert_type(m.examples(), list[str])

seen = m.look("we are eating bread")
assert_type(seen, Look)
assert_type(seen.tokens, dict[str, list[str]])
assert_type(seen.weights, dict[str, list[Tensor]])
assert_type(seen.scores, dict[str, list[Tensor]])
assert_type(seen.q, dict[str, list[Tensor]])
assert_type(seen.hidden, dict[str, list[Tensor]])
assert_type(seen.output, str)
assert_type(seen.heads(layer=2, head=1), Figure)

translator = Translator.load("en-es")
assert_type(translator, Translator)
assert_type(translator.config.model.dim, int)
assert_type(translator.config.model.architecture == "rnn", bool)
assert_type(translator.config.train.seed, int)
assert_type(translator.meta.labels, tuple[str, ...])
assert_type(LanguageModel.load("shakespeare").generate("ROMEO:"), str)
assert_type(Classifier.load("runs/reviews").classify(["good", "bad"]), list[Classification])
assert_type(WordVectors.load("words").vectors(), tuple[Tensor, list[str]])
