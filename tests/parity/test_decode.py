"""Search and rules against transformers: the same weights behind a Stepper, so that only the writing is compared.

Where a text is cut at the longest length, transformers lets it compete with finished ones; here those come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from clearhead.decode import Hypothesis, Prompts, Settings, generate
from clearhead.decode.logits import (
    ban_repeated_ngrams,
    ban_tokens,
    min_p_filter,
    penalise_repetition,
    top_k_filter,
    top_p_filter,
)

from .setting import VOCABULARY

STOP, PAD, START = 1, 0, 2
LONGEST = 11
PROMPTS = [[5, 7, 11], [13], [3, 3], [29, 4, 8, 8, 30]]
SOURCES = torch.tensor([[7, 3, 19, 1, 0], [23, 5, 5, 11, 1], [4, 1, 0, 0, 0]])


@dataclass
class Text:
    """A language model of theirs; its state is all that was read."""

    theirs: Any

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.cat((state, ids), dim=1)
        return self.theirs(whole).logits[:, -ids.size(1) :], whole

    def reorder(self, state: Tensor, rows: Tensor) -> Tensor:
        return state[rows]


@dataclass
class Translation:
    """A translator of theirs; its state is the source and all that was written."""

    theirs: Any

    def step(self, ids: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        source, whole = state[0], torch.cat((state[1], ids), dim=1)
        logits = self.theirs(input_ids=source, attention_mask=source != PAD, decoder_input_ids=whole).logits
        return logits[:, -ids.size(1) :], (source, whole)

    def reorder(self, state: tuple[Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
        return state[0][rows], state[1][rows]


def nothing(rows: int) -> Tensor:
    return torch.empty(rows, 0, dtype=torch.long)


def gpt2(transformers: Any) -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=23,
        n_embd=21,
        n_layer=2,
        n_head=3,
        initializer_range=0.3,
        bos_token_id=START,
        eos_token_id=STOP,
        pad_token_id=PAD,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.lm_head = nn.Linear(21, VOCABULARY)
    nn.init.normal_(model.lm_head.weight, std=0.5)
    nn.init.constant_(model.lm_head.bias[STOP], 3.0)  # texts end before they are cut
    return model


def marian(transformers: Any) -> Any:
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=22,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=17,
        decoder_ffn_dim=17,
        max_position_embeddings=23,
        init_std=0.5,
        decoder_start_token_id=START,
        eos_token_id=STOP,
        pad_token_id=PAD,
        forced_eos_token_id=None,
    )
    model = transformers.MarianMTModel(config).eval()
    model.final_logits_bias[:, STOP] = 5.0
    return model


def theirs_written(model: Any, ids: Tensor, **named: Any) -> tuple[list[list[int]], list[float]]:
    """Their texts after the prompt, up to and with the stop, and their scores."""
    read = 1 if model.config.is_encoder_decoder else ids.size(1)
    usual = {"max_new_tokens": LONGEST, "do_sample": False, "return_dict_in_generate": True, "output_scores": True}
    found = model.generate(ids, attention_mask=ids != PAD, **usual, **named)
    texts = [row[read:].tolist() for row in found.sequences]
    ends = [text.index(STOP) + 1 if STOP in text else len(text) for text in texts]
    scores = found.sequences_scores.tolist() if named.get("num_beams", 1) > 1 else []
    return [text[:end] for text, end in zip(texts, ends, strict=True)], scores


def assert_finished_are_the_same(ours: list[Hypothesis], theirs: tuple[list[list[int]], list[float]]) -> int:
    """Their finished hypotheses, in their order, are the first of ours; how many there were."""
    finished = [(text[:-1], score) for text, score in zip(*theirs, strict=True) if text[-1] == STOP]
    first = ours[: len(finished)]
    assert [each.ids for each in first] == [ids for ids, _ in finished]
    assert [each.score for each in first] == pytest.approx([score for _, score in finished], abs=1e-5)
    assert all(each.finished for each in first)
    return len(finished)


def searching(how: Settings) -> dict[str, Any]:
    """Our settings in their words."""
    return {
        "num_beams": how.beam_width,
        "num_return_sequences": how.n_best,
        "length_penalty": how.length_penalty,
        "no_repeat_ngram_size": how.no_repeat_ngram,
        "early_stopping": "never",  # until no open beam can win
    }


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("no_repeat", [0, 2])
@pytest.mark.parametrize("beams", [2, 5])
def test_beam_search_of_a_language_model(transformers, penalty, no_repeat, beams) -> None:
    model, compared = gpt2(transformers), 0
    how = Settings(
        max_tokens=LONGEST, beam_width=beams, n_best=beams, length_penalty=penalty, no_repeat_ngram=no_repeat
    )
    ours = generate(Text(model), nothing(4), Prompts(PROMPTS, STOP), how)
    for prompt, hypotheses in zip(PROMPTS, ours, strict=True):
        theirs = theirs_written(model, torch.tensor([prompt]), **searching(how))
        compared += assert_finished_are_the_same(hypotheses, theirs)
    assert compared > 2 * beams


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("no_repeat", [0, 2])
def test_beam_search_of_a_translator(transformers, penalty, no_repeat) -> None:
    model, compared = marian(transformers), 0
    how = Settings(max_tokens=LONGEST, beam_width=4, n_best=3, length_penalty=penalty, no_repeat_ngram=no_repeat)
    ours = generate(Translation(model), (SOURCES, nothing(3)), Prompts([[START]] * 3, STOP), how)
    texts, scores = theirs_written(model, SOURCES, **searching(how))
    for row, hypotheses in enumerate(ours):
        span = slice(3 * row, 3 * row + 3)
        compared += assert_finished_are_the_same(hypotheses, (texts[span], scores[span]))
    assert compared > 4


@pytest.mark.parametrize("settings", [{}, {"no_repeat_ngram": 2}, {"repetition_penalty": 1.7}])
def test_greedy_search(transformers, settings) -> None:
    model = gpt2(transformers)
    how = Settings(max_tokens=LONGEST, return_logprobs=True, **settings)
    named = {"no_repeat_ngram_size": how.no_repeat_ngram, "repetition_penalty": how.repetition_penalty}
    ours = generate(Text(model), nothing(4), Prompts(PROMPTS, STOP), how)
    for prompt, (found,) in zip(PROMPTS, ours, strict=True):
        [text], _ = theirs_written(model, torch.tensor([prompt]), **named)
        assert [*found.ids, STOP][: len(text)] == text
        assert len(found.logprobs) == len(text)


@pytest.fixture
def logits() -> Tensor:
    return 3 * torch.randn(7, VOCABULARY)


@pytest.fixture
def so_far() -> Tensor:
    return torch.randint(0, 5, (7, 13))


@pytest.mark.parametrize("value", [1, 3, 30])
def test_top_k(transformers, logits, so_far, value) -> None:
    assert_close(top_k_filter(logits, value), transformers.TopKLogitsWarper(value)(so_far, logits))


@pytest.mark.parametrize("value", [0.1, 0.5, 0.97])
def test_top_p(transformers, logits, so_far, value) -> None:
    assert_close(top_p_filter(logits, value), transformers.TopPLogitsWarper(value)(so_far, logits))


@pytest.mark.parametrize("value", [0.01, 0.1, 0.9])
def test_min_p(transformers, logits, so_far, value) -> None:
    assert_close(min_p_filter(logits, value), transformers.MinPLogitsWarper(value)(so_far, logits))


@pytest.mark.parametrize("value", [1.1, 4.0])
def test_repetition_penalty(transformers, logits, so_far, value) -> None:
    theirs = transformers.RepetitionPenaltyLogitsProcessor(value)(so_far, logits.clone())
    assert_close(penalise_repetition(logits, so_far, value), theirs)


@pytest.mark.parametrize("value", [1, 2, 3])
def test_no_repeats(transformers, logits, so_far, value) -> None:
    theirs = transformers.NoRepeatNGramLogitsProcessor(value)(so_far, logits.clone())
    assert_close(ban_repeated_ngrams(logits, so_far, value), theirs)


def test_banned_tokens(transformers, logits, so_far) -> None:
    torch.set_default_dtype(torch.float32)  # theirs knows no other
    theirs = transformers.NoBadWordsLogitsProcessor([[3], [29]], eos_token_id=STOP)(so_far, logits.clone())
    assert_close(ban_tokens(logits, (29, 3)), theirs)
