from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.bench import decode
from clearhead.bench.decode import (
    CELLS,
    COMPILED,
    COMPILED_INT8,
    CT2,
    CT2_INT8,
    SIZES,
    SOURCE,
    SPECIAL,
    STEPS,
    TORCH,
    TRANSFORMERS,
    Cell,
    Size,
    Tuned,
    cell_results,
    mean_results,
    network_of,
    sources_of,
    text_results,
)
from clearhead.bench.peers import marian, translate
from clearhead.engines.ct2_export import export, numbers
from clearhead.engines.native.library import load_library
from clearhead.models.seq2seq import Seq2Seq

SMALL = Size("small", 2, 22, 17, 2, 41, rounds=1, times=5, times_torch=2.5)
TINY, BASE = SIZES


@pytest.fixture(autouse=True)
def threads_stay() -> Any:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def livelier(network: Seq2Seq) -> Seq2Seq:
    """Biases and gains that are not those of a fresh network."""
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return network


def test_the_sizes_are_those_of_the_table() -> None:
    assert sum(weight.numel() for weight in network_of(TINY).parameters()) == pytest.approx(2.5e6, rel=0.1)
    assert [(size.layers, size.dim, size.inner, size.heads, size.vocabulary) for size in SIZES] == [
        (4, 128, 256, 4, 8_000),
        (6, 512, 2048, 8, 32_000),
    ]
    assert [str(cell) for cell in CELLS] == [
        "batch 1, greedy",
        "batch 1, beam 4",
        "batch 16, greedy",
        "batch 16, beam 4",
    ]


def test_every_process_has_the_same_weights_and_sentences() -> None:
    first, second = network_of(SMALL).state_dict(), network_of(SMALL).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    sources = sources_of(SMALL, Cell(3, 1))
    assert sources.shape == (3, SOURCE)
    assert torch.equal(sources, sources_of(SMALL, Cell(3, 1)))
    assert (sources[:, -1] == SPECIAL.stop).all()
    assert (sources[:, :-1] > SPECIAL.stop).all()


def test_marian_gives_our_logits() -> None:
    pytest.importorskip("transformers")
    network = livelier(network_of(SMALL))
    model = marian(network, SPECIAL, SOURCE + STEPS)
    source, target = sources_of(SMALL, Cell(3, 1)), torch.randint(1, SMALL.vocabulary, (3, STEPS))
    with torch.inference_mode():
        theirs = model(input_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(network(source, target), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("beams", [1, 4])
def test_all_make_every_step_and_write_the_same(beams: int, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    library = pytest.importorskip("ctranslate2")
    network, source = livelier(network_of(SMALL)), sources_of(SMALL, Cell(3, beams))
    ours = decode.generate_ids(network, source, beams)
    assert [len(row) for row in ours] == [STEPS] * 3
    theirs = translate(marian(network, SPECIAL, SOURCE + STEPS), source, beams, STEPS)
    assert theirs.shape == (3, STEPS + 1)
    assert theirs[:, 1:].tolist() == ours
    export(network, numbers(SMALL.vocabulary), tmp_path, start=SPECIAL.start, stop=SPECIAL.stop)
    [answer] = library.Translator(str(tmp_path)).translate_batch(
        [[str(token) for token in source[0, :-1].tolist()]],
        beam_size=beams,
        max_decoding_length=STEPS,
        min_decoding_length=STEPS,
    )
    assert len(answer.hypotheses[0]) == STEPS


def test_each_candidate_takes_a_turn(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    export(network_of(SMALL), numbers(SMALL.vocabulary), tmp_path, start=SPECIAL.start, stop=SPECIAL.stop)
    names = [TORCH, *([COMPILED, COMPILED_INT8] if load_library() is not None else []), TRANSFORMERS, CT2, CT2_INT8]
    for cell in (Cell(1, 1), Cell(3, 2)):
        turns = decode.candidates(SMALL, cell, True, tmp_path)
        assert list(turns) == names
        for make in turns.values():
            turn = make()
            assert isinstance(turn, Tuned)
            for _ in range(1 + len(turn.settings)):
                turn()
            assert max(turn.fastest) < float("inf")


@pytest.mark.usefixtures("in_this_process")
def test_ours_alone_without_peers() -> None:
    [(cell, taken)] = decode.milliseconds(SMALL, peers=False, cells=[Cell(1, 1)])
    assert cell == Cell(1, 1)
    assert set(taken) == {TORCH, *([COMPILED, COMPILED_INT8] if load_library() is not None else [])}


def test_the_fastest_setting_stays() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.1)

    turn = Tuned([slow, lambda: calls.append("fast")], tries=2)
    for _ in range(7):
        turn()
    assert calls == ["slow", "slow", "fast", "slow", "fast", "fast", "fast"]


def test_figures_say_how_many_times_as_fast() -> None:
    taken = {TORCH: 4.0, COMPILED: 2.0, COMPILED_INT8: 1.0, TRANSFORMERS: 16.0, CT2: 3.0, CT2_INT8: 0.5}
    other = {**taken, TRANSFORMERS: 4.0}
    table = {Cell(1, 1): taken, Cell(16, 4): other}
    each_cell = [each for cell in table for each in cell_results(SMALL, cell, table[cell])]
    found = {each.what: each for each in (*each_cell, *mean_results(SMALL, table))}
    assert found["small, batch 16, beam 4: transformers"].value == 4.0
    mean = found["small: clearhead, times as fast as transformers"]
    assert mean.value == pytest.approx(4.0)
    assert mean.holds is False
    assert mean.detail == {"times as fast": {"batch 1, greedy": 8.0, "batch 16, beam 4": 2.0}}
    torch_alone = found["small: clearhead torch, times as fast as transformers"]
    assert (torch_alone.value, torch_alone.limit) == (pytest.approx(2.0), 2.5)
    one = found["small, batch 1, greedy: clearhead, times as fast as CTranslate2 float32"]
    many = found["small, batch 16, beam 4: clearhead, times as fast as CTranslate2 float32"]
    assert (one.value, one.limit, many.value, many.limit, many.holds) == (1.5, 1.0, 1.5, 1.0, True)
    int8 = found["small, batch 1, greedy: clearhead compiled int8, times as fast as CTranslate2 int8"]
    assert (int8.value, int8.limit, int8.holds) == (0.5, 1.0, False)


def test_without_peers_there_is_nothing_to_compare() -> None:
    found = list(cell_results(SMALL, Cell(1, 1), {TORCH: 4.0}))
    assert [each.what for each in found] == ["small, batch 1, greedy: clearhead torch"]
    assert list(mean_results(SMALL, {Cell(1, 1): {TORCH: 4.0}})) == []


def test_text_is_counted_in_sentences_per_second() -> None:
    taken = {TORCH: 2000.0, COMPILED: 500.0, COMPILED_INT8: 250.0, CT2: 250.0, CT2_INT8: 500.0}
    results = list(text_results(taken, 1000))
    assert [each.holds for each in results] == [None] * 5 + [False, True]
    found = {each.what: each.value for each in results}
    assert found == {
        "en-es, 1,000 sentences of Tatoeba, beam 4: clearhead torch": 500.0,
        "en-es, 1,000 sentences of Tatoeba, beam 4: clearhead compiled": 2000.0,
        "en-es, 1,000 sentences of Tatoeba, beam 4: clearhead compiled int8": 4000.0,
        "en-es, 1,000 sentences of Tatoeba, beam 4: CTranslate2 float32": 4000.0,
        "en-es, 1,000 sentences of Tatoeba, beam 4: CTranslate2 int8": 2000.0,
        "en-es, 1,000 sentences of Tatoeba, beam 4: clearhead, times as fast as CTranslate2 float32": 0.5,
        "en-es, 1,000 sentences of Tatoeba, beam 4: clearhead compiled int8, times as fast as CTranslate2 int8": 2.0,
    }


def test_every_size_is_measured_and_then_real_text(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {TORCH: 4.0, COMPILED: 2.0, COMPILED_INT8: 1.0, TRANSFORMERS: 16.0, CT2: 3.0, CT2_INT8: 0.5}
    monkeypatch.setattr(decode, "held_out", lambda _model, count: [[7]] * count)
    monkeypatch.setattr(decode, "milliseconds", lambda _size, _peers: iter([(Cell(1, 1), taken)]))
    monkeypatch.setattr(decode, "text_milliseconds", lambda _peers, sources: {TORCH: 2.0 * len(sources)})
    monkeypatch.setenv("CLEARHEAD_CPU", "avx2")
    for name in decode.AVX2_ONLY:
        monkeypatch.setenv(name, "")
    found = {each.what: each.value for each in decode.run(peers=True)}
    assert found["tiny, batch 1, greedy: transformers"] == found["base, batch 1, greedy: transformers"] == 16
    assert found["base: clearhead, times as fast as transformers"] == pytest.approx(8)
    both = (
        "clearhead, times as fast as CTranslate2 float32",
        "clearhead compiled int8, times as fast as CTranslate2 int8",
    )
    assert [found[f"all cells: {what}"] for what in both] == pytest.approx([1.5, 0.5])
    text = f"en-es, {decode.SENTENCES:,} sentences of Tatoeba, beam 4: clearhead torch"
    assert list(found.items())[-1] == (text, 500.0)
    assert {os.environ[name] for name in decode.AVX2_ONLY} == {"AVX2"}  # for the processes that take the turns


@pytest.mark.usefixtures("in_this_process")
def test_real_text_is_translated_by_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    model = decode.Translator.load(decode.TEXT_MODEL)
    sources = model.tokenizer.encode_batch(["She has a red car.", "I read."])
    assert set(decode.text_milliseconds(False, sources)) <= {TORCH, COMPILED, COMPILED_INT8}
    native = {COMPILED, COMPILED_INT8} if load_library() is not None else set()
    assert set(decode.text_milliseconds(True, sources)) == {TORCH, decode.OUR_CT2, CT2, CT2_INT8, *native}


@pytest.mark.skipif(
    not (Path(os.environ.get("CLEARHEAD_DATA", "")) / "tatoeba/en-es.tsv.gz").is_file(),
    reason="no tatoeba/en-es.tsv.gz below $CLEARHEAD_DATA",
)
def test_the_engines_translate_real_text_alike(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model = decode.Translator.load(decode.TEXT_MODEL)
    sources = decode.held_out(model, 23)
    assert len(sources) == 23
    settings = decode.Settings(beam_width=decode.BEAMS)
    ours = decode.generate_batch(model.network, sources, decode.special_of(model), settings)
    theirs = decode.converted(model, tmp_path / "ct2", sources[:3]).generate_batch(
        sources, decode.special_of(model), settings
    )
    same = sum(own[0].ids == other[0].ids for own, other in zip(ours, theirs, strict=True))
    assert same == 23
