from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.optional import optional

from clearhead.decode import Hypothesis, Prompts, Settings, SpecialTokens, generate, generate_batch
from clearhead.engines import ct2
from clearhead.engines.ct2 import Ct2Engine, open_ct2
from clearhead.engines.ct2_export import export, numbers
from clearhead.errors import ConfigError, EngineError
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

library = optional("ctranslate2")

V = 37
SPECIAL = SpecialTokens(pad=0, start=2, stop=3)
LENGTHS = (3, 11, 7, 1, 5, 13, 2, 17, 3)


def make(task: str, seed: int = 3, **settings: Any) -> Any:
    """A network that stops now and then, and says something else of every source."""
    torch.manual_seed(seed)
    small = {"dim": 28, "heads": 2, "layers": 2, "inner": 17, "dropout": 0.0, "max_length": 61, "tied": False}
    network = build_network(
        TASKS[task].config_type().model_validate({"model": {**small, **settings}}), Sizes(vocabulary=V)
    ).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return network


@pytest.fixture(scope="module")
def translator() -> Any:
    return make("translate")


@pytest.fixture(scope="module")
def engine(translator: Any) -> Ct2Engine:
    return open_ct2(translator, numbers(V), SPECIAL, None)


@pytest.fixture(scope="module")
def writer() -> Any:
    return make("lm", positions="rotary")


@pytest.fixture(scope="module")
def generator(writer: Any) -> Ct2Engine:
    return open_ct2(writer, numbers(V), SPECIAL, None)


def sources() -> list[list[int]]:
    drawn = torch.Generator().manual_seed(5)
    return [torch.randint(6, V, (length,), generator=drawn).tolist() for length in LENGTHS]


def ids_of(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[each.ids for each in row] for row in found]


@pytest.mark.parametrize("rows", [2, 32])
@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(max_tokens=7),
        Settings(beam_width=4),
        Settings(beam_width=4, n_best=3, length_penalty=0.6),
        Settings(beam_width=3, n_best=2, length_penalty=0.0, max_tokens=11),
        Settings(banned_tokens=(3, 7, 11)),
        Settings(banned_tokens=(2,), no_repeat_ngram=2),
        Settings(banned_tokens=(2,), no_repeat_ngram=1),
        Settings(repetition_penalty=1.7),
        Settings(prefix_tokens=(7, 11)),
        Settings(prefix_tokens=(7, 11, 5), max_tokens=2),
        Settings(prefix_tokens=(7,), banned_tokens=(2, 11), no_repeat_ngram=3, repetition_penalty=1.2),
    ],
    ids=str,
)
def test_translations_equal_ours(
    settings: Settings, rows: int, translator: Any, engine: Ct2Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ct2, "BATCH", rows)
    ours = generate_batch(translator, sources(), SPECIAL, settings)
    theirs = engine.generate_batch(sources(), SPECIAL, settings)
    assert ids_of(theirs) == ids_of(ours)
    if settings.beam_width > 1:
        assert [[pytest.approx(each.score, abs=1e-4) for each in row] for row in ours] == [
            [each.score for each in row] for row in theirs
        ]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(return_logprobs=True),
        Settings(return_logprobs=True, prefix_tokens=(7, 11), banned_tokens=(5,), length_penalty=0.6),
        Settings(return_logprobs=True, beam_width=4, n_best=2),
    ],
    ids=str,
)
def test_scores_and_logprobs_equal_ours(settings: Settings, translator: Any, engine: Ct2Engine) -> None:
    ours = generate_batch(translator, sources(), SPECIAL, settings)
    theirs = engine.generate_batch(sources(), SPECIAL, settings)
    for own, other in zip(ours, theirs, strict=True):
        assert [each.ids for each in own] == [each.ids for each in other]
        assert [each.score for each in other] == pytest.approx([each.score for each in own], abs=1e-4)
        assert [each.finished for each in other] == [each.finished for each in own]
        for a, b in zip(own, other, strict=True):
            assert b.logprobs == pytest.approx(a.logprobs, abs=1e-4)


def test_some_texts_stop_and_some_are_cut(translator: Any) -> None:
    finished = [
        row[0].finished for row in generate_batch(translator, sources(), SPECIAL, Settings(return_logprobs=True))
    ]
    assert 0 < sum(finished) < len(finished)


def test_empty_sources_give_empty_texts(engine: Ct2Engine) -> None:
    assert engine.generate_batch([], SPECIAL, Settings()) == []
    [[nothing], [something]] = engine.generate_batch([[], [7, 11]], SPECIAL, Settings(return_logprobs=True))
    assert nothing.ids == []
    assert math.isnan(nothing.score)
    assert something.ids
    assert ids_of(engine.generate_batch([[7, 11]], SPECIAL, Settings(max_tokens=0))) == [[[]]]


def test_sampling_respects_top_k_and_top_p(translator: Any, engine: Ct2Engine) -> None:
    source, settings = [7, 11, 5], Settings(max_tokens=1, temperature=2.0, top_k=3, top_p=0.9)
    with torch.inference_mode():
        logits = translator(torch.tensor([[*source, SPECIAL.stop]]), torch.tensor([[SPECIAL.start]]))[0, -1]
    likeliest = {tuple([] if token == SPECIAL.stop else [token]) for token in logits.topk(3).indices.tolist()}
    found = {tuple(row[0].ids) for row in engine.generate_batch([source] * 200, SPECIAL, settings)}
    assert len(found) > 1
    assert found <= likeliest


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (Settings(min_p=0.2, temperature=1.0), "min_p=0.2"),
        (Settings(temperature=1.0, seed=5), "seed=5"),
        (Settings(beam_width=4, beam_groups=2, diversity_penalty=0.5), "beam_groups=2"),
        (Settings(beam_width=4, coverage_penalty=0.3), "coverage_penalty=0.3"),
        (Settings(beam_width=4, no_repeat_ngram=2), "no_repeat_ngram=2 with beam_width=4"),
        (Settings(beam_width=4, repetition_penalty=1.5), "repetition_penalty=1.5 with beam_width=4"),
        (Settings(beam_width=4, banned_tokens=(7,)), r"banned_tokens=\(7,\) with beam_width=4"),
        (Settings(beam_width=4, prefix_tokens=(7,)), r"prefix_tokens=\(7,\) with beam_width=4"),
        (Settings(return_logprobs=True, repetition_penalty=1.5), "return_logprobs with repetition_penalty=1.5"),
        (Settings(prefix_tokens=(7, 3)), "prefix_tokens with the stop token 3 among them"),
    ],
    ids=str,
)
def test_unsupported_translation_settings_are_refused(settings: Settings, named: str, engine: Ct2Engine) -> None:
    with pytest.raises(EngineError, match=f"the engine ct2 does not support {named}.*; use another engine"):
        engine.generate_batch(sources(), SPECIAL, settings)


def test_tokens_outside_the_vocabulary_are_refused(engine: Ct2Engine) -> None:
    with pytest.raises(ConfigError, match="banned_tokens: there is no token 37 in the vocabulary"):
        engine.generate_batch(sources(), SPECIAL, Settings(banned_tokens=(37,)))


def test_a_source_longer_than_the_positions_is_one_sentence(tmp_path: Path) -> None:
    short = open_ct2(make("translate", positions="learned"), numbers(V), SPECIAL, None)
    with pytest.raises(EngineError, match=r"CTranslate2 failed: .*positions.*; use another engine"):
        short.generate_batch([[7] * 67], SPECIAL, Settings(max_tokens=3))


@pytest.mark.parametrize(
    "settings",
    [
        Settings(max_tokens=19),
        Settings(max_tokens=0),
        Settings(max_tokens=13, beam_width=3),
        Settings(max_tokens=13, banned_tokens=(5, 7)),
        Settings(max_tokens=13, prefix_tokens=(5, 7)),
        Settings(max_tokens=13, prefix_tokens=(5, 7), beam_width=3),
        Settings(max_tokens=2, prefix_tokens=(5, 7, 11)),
    ],
    ids=str,
)
def test_continuations_equal_ours(settings: Settings, writer: Any, generator: Ct2Engine) -> None:
    for prompt in sources():
        [[ours]] = generate(writer, writer.start(), Prompts([prompt]), settings)
        assert list(generator.stream(prompt, settings)) == ours.ids
        for stop in {*ours.ids[2:3], *ours.ids[-1:]} if settings.beam_width == 1 else ():
            [[stopped]] = generate(writer, writer.start(), Prompts([prompt], stop), settings)
            assert list(generator.stream(prompt, settings, stop)) == stopped.ids


def test_tokens_come_one_by_one(generator: Ct2Engine) -> None:
    tokens = generator.stream([7, 11], Settings(max_tokens=100_000, temperature=1.0))
    assert len([next(tokens) for _ in range(5)]) == 5
    tokens.close()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (Settings(no_repeat_ngram=2), "no_repeat_ngram=2 after a prompt, which it would ignore"),
        (Settings(repetition_penalty=1.5), "repetition_penalty=1.5 after a prompt"),
        (Settings(beam_width=3, banned_tokens=(7,)), r"banned_tokens=\(7,\) with beam_width=3"),
    ],
    ids=str,
)
def test_unsupported_generation_settings_are_refused(settings: Settings, named: str, generator: Ct2Engine) -> None:
    with pytest.raises(EngineError, match=f"the engine ct2 does not support {named}"):
        list(generator.stream([7], settings))


def test_a_translator_cannot_generate_nor_a_language_model_translate(engine: Ct2Engine, generator: Ct2Engine) -> None:
    with pytest.raises(EngineError, match="this model cannot generate"):
        list(engine.stream([7], Settings()))
    with pytest.raises(EngineError, match="this model cannot translate"):
        generator.generate_batch([[7]], SPECIAL, Settings())


def test_a_copy_is_made_once_per_weights(translator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr(ct2, "export", lambda *rest, **more: (made.append(rest[2]), export(*rest, **more)))
    folder = tmp_path / "ct2"
    first = open_ct2(translator, numbers(V), SPECIAL, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["ct2"]
    again = open_ct2(translator, numbers(V), SPECIAL, folder, int8=True)
    assert len(made) == 1
    assert (first.model.compute_type, again.model.compute_type) == ("float32", "int8_float32")
    other = make("translate", seed=5)
    changed = open_ct2(other, numbers(V), SPECIAL, folder)
    assert len(made) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["ct2"]
    expected = ids_of(generate_batch(other, sources(), SPECIAL, Settings()))
    assert ids_of(changed.generate_batch(sources(), SPECIAL, Settings())) == expected
    kept = open_ct2(other, numbers(V), SPECIAL, folder)
    assert len(made) == 2
    assert ids_of(kept.generate_batch(sources(), SPECIAL, Settings())) == expected


def test_a_folder_with_other_contents_is_left_alone(writer: Any, tmp_path: Path) -> None:
    (tmp_path / "ct2").mkdir()
    (tmp_path / "ct2" / "letter.txt").write_text("dear", encoding="utf-8")
    assert list(open_ct2(writer, numbers(V), SPECIAL, tmp_path / "ct2").stream([7], Settings(max_tokens=3)))
    assert [path.name for path in (tmp_path / "ct2").iterdir()] == ["letter.txt"]


def test_an_unwritable_folder_is_no_error(writer: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    engine = open_ct2(writer, numbers(V), SPECIAL, tmp_path / "file" / "ct2")
    assert len(list(engine.stream([7], Settings(max_tokens=3)))) == 3


@pytest.mark.parametrize("task", ["translate", "lm"])
def test_a_copy_with_other_texts_is_refused(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = make(task, seed=7)
    monkeypatch.setattr(ct2, "export", lambda _, *rest, **more: export(wrong, *rest, **more))
    with pytest.raises(EngineError, match=r"the copy for CTranslate2 generates token \d+ where another one has"):
        open_ct2(make(task), numbers(V), SPECIAL, tmp_path / "ct2", examples=[[5, 7]])
    assert list(tmp_path.iterdir()) == []


def test_a_copy_is_checked_without_padding_and_within_the_positions() -> None:
    pad, *_ = (token for row in ct2._random_texts(V, SPECIAL) for token in row)
    odd = SpecialTokens(pad, SPECIAL.start, SPECIAL.stop)
    assert all(pad not in row for row in ct2._random_texts(V, odd))
    short = make("lm", positions="learned", max_length=13)
    engine = open_ct2(short, numbers(V), SPECIAL, None, examples=[[7] * 29, []])
    assert len(list(engine.stream([7], Settings(max_tokens=12)))) == 12


def test_equally_likely_tokens_may_differ() -> None:
    network = make("lm")
    with torch.inference_mode():
        best, *_, worst = network(torch.tensor([[5]]))[0, -1].argsort(descending=True).tolist()
    twin = 13 if best != 13 else 17
    with torch.no_grad():
        network.output.linear.weight[twin] = network.output.linear.weight[best]
    ct2._check_equal(network, SPECIAL, [5], [best, 8], [twin, 9])
    with pytest.raises(EngineError, match=f"generates token {worst} where"):
        ct2._check_equal(network, SPECIAL, [5], [best, 8], [worst, 9])


def test_the_fingerprint_depends_on_weights_tokens_and_settings(translator: Any) -> None:
    seen = {
        ct2.fingerprint_of(translator, numbers(V), SPECIAL),
        ct2.fingerprint_of(make("translate", seed=5), numbers(V), SPECIAL),
        ct2.fingerprint_of(translator, numbers(V)[::-1], SPECIAL),
        ct2.fingerprint_of(translator, numbers(V), SpecialTokens(0, 3, 2)),
        ct2.fingerprint_of(make("translate", score="dot"), numbers(V), SPECIAL),
    }
    assert len(seen) == 5
    assert ct2.fingerprint_of(make("translate"), numbers(V), SPECIAL) in seen
