from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.look.networks import small_network
from torch import Tensor, nn

import clearhead
from clearhead.data import read
from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import capture
from clearhead.look.units import (
    RIDGE,
    RankedUnit,
    Window,
    direction,
    features,
    rank_held_out,
    rank_units,
    unit_layers,
    windows,
)
from clearhead.look.views.cells import cells
from clearhead.run import Sizes

V, DIM, INNER, B, T = 23, 12, 17, 5, 31
TEXT = 'A "b c"\n  (d[e]) F\n\ng'


def language_model(task: str = "lm", **settings: Any) -> nn.Module:
    return small_network(task, Sizes(vocabulary=V), **settings)


def numbered(text: str) -> list[int]:
    return [sorted(set(text)).index(character) for character in text]


def test_what_a_text_has_character_by_character() -> None:
    found = {name: "".join(f"{int(value):x}" for value in each.tolist()) for name, each in features(list(TEXT)).items()}
    assert {"text": TEXT.replace("\n", "~"), **found} == {
        "text": 'A "b c"~  (d[e]) F~~g',
        "quotes": "001111100000000000000",
        "brackets": "000000000011221000000",
        "indentation": "000000002222222222200",
        "line position": "012345670123456789a00",
        "case": "100000000000000001000",
    }


def test_a_bracket_that_was_never_opened_closes_none() -> None:
    assert features(list(")(a"))["brackets"].tolist() == [0, 1, 1]


def test_a_feature_of_a_token_is_that_of_its_last_character() -> None:
    whole = features(list("ab cde\nfg"))
    pieces = features(["ab", " cde", "\nf", "g"])
    for name, values in pieces.items():
        torch.testing.assert_close(values, whole[name][[1, 5, 7, 8]])
    with pytest.raises(ShapeError, match=r"token 1 is empty; give the tokens as they stand in the text"):
        features(["a", "", "b"])


def test_windows_know_what_came_before_them() -> None:
    text = TEXT * 3
    ids = numbered(text)
    found = list(windows(ids, list(text), length=7, rows=2))
    assert [inputs[0].shape for inputs, _ in found] == [(2, 7), (2, 7), (2, 7), (2, 7), (1, 7)]
    assert torch.cat([inputs[0] for inputs, _ in found]).flatten().tolist() == ids[:63]
    for name, values in features(list(text)).items():
        torch.testing.assert_close(torch.cat([known[name] for _, known in found]).flatten(), values[:63])
    with pytest.raises(ShapeError, match=r"a text of 5 tokens is shorter than one window of 7; give a longer one"):
        next(windows(ids[:5], text[:5], length=7))
    with pytest.raises(ShapeError, match=r"5 ids do not fit 6 tokens"):
        next(windows(ids[:5], text[:6], length=2))


@pytest.mark.parametrize("settings", [{}, {"architecture": "rnn"}, {"architecture": "rnn", "cell": "gru"}])
def test_the_ranking_is_by_correlation_over_all_windows(settings: dict[str, Any]) -> None:
    model, text = language_model(**settings), TEXT * 5
    read = list(windows(numbered(text), list(text), length=7, rows=4))
    found = rank_units(model, read, count=3)
    activations: dict[str, list[torch.Tensor]] = {}
    for inputs, _ in read:
        with torch.no_grad(), capture(model, *unit_layers(model)) as seen:
            model(*inputs)
        for name, each in seen.items():
            activations.setdefault(name, []).append(each.flatten(0, 1))
    by_hand: dict[tuple[str, int, str], float] = {}
    for name, parts in activations.items():
        table = torch.cat(parts).double().numpy()
        for feature, values in features(list(text)).items():
            for unit in np.flatnonzero(table.std(0) > 1e-7).tolist():
                correlation = np.corrcoef(table[:, unit], values.numpy()[: len(table)])[0, 1]
                by_hand[name, unit, feature] = float(correlation)
    for each in found:
        assert each.correlation == pytest.approx(by_hand[each.layer, each.unit, each.feature], abs=1e-6)
    for feature in features(["a"]):
        own = [abs(each.correlation) for each in found if each.feature == feature]
        best = sorted((abs(value) for (*_, what), value in by_hand.items() if what == feature), reverse=True)
        assert own == pytest.approx(best[:3], abs=1e-6)
    strengths = [abs(each.correlation) for each in found]
    assert strengths == sorted(strengths, reverse=True)


def test_units_are_those_of_recurrent_layers_feed_forwards_and_blocks() -> None:
    assert unit_layers(language_model()) == [
        "decoder.0.feed_forward.inner",
        "decoder.0.hidden",
        "decoder.1.feed_forward.inner",
        "decoder.1.hidden",
    ]
    assert unit_layers(language_model(architecture="rnn", cell="gru")) == [
        "decoder.0.cell.hidden",
        "decoder.1.cell.hidden",
    ]
    with pytest.raises(ProbeError, match=r"this model has no units: it has neither blocks nor recurrent"):
        unit_layers(nn.Linear(2, 3))


def test_a_unit_that_is_the_line_position_is_found() -> None:
    """A model whose embedding says which line position its token stands at, in a text of one character for each."""
    model = language_model(positions="none")
    line = "abcdefg\n"
    with torch.no_grad():
        model.tokens.tokens.table.weight[: len(line), 5] = torch.arange(8.0).roll(1)  # type: ignore[union-attr,index]
        for block in model.stack.blocks:  # type: ignore[union-attr]
            block.self_attention.output.weight.zero_()  # type: ignore[union-attr]
            block.feed_forward.outer.weight.zero_()  # type: ignore[union-attr]
    # numbered: the new line is 0, a is 1, …; at position p of the line stands the token (p + 1) % 8
    text = line * 9
    found = rank_units(model, windows(numbered(text), list(text), length=24), ["decoder.1.hidden"], count=1)
    best = next(each for each in found if each.feature == "line position")
    assert best.unit == 5
    assert best.correlation == pytest.approx(1)


def test_a_text_coloured_by_a_unit() -> None:
    model, text = language_model(), TEXT
    ids = torch.tensor([numbered(text)])
    ranking = [RankedUnit(3, "decoder.1.feed_forward.inner", "case", 0.5)]
    found = cells(model, (ids,), list(text), "decoder.1.feed_forward.inner", 3, ranking)
    with torch.no_grad(), capture(model, "decoder.1.feed_forward.inner") as seen:
        model(ids)
    torch.testing.assert_close(found.values, seen["decoder.1.feed_forward.inner"][0, :, 3])
    document = found.to_json()
    assert {key: document[key] for key in ("format", "tokens", "layer", "unit")} == {
        "format": "clearhead-cells-1",
        "tokens": list(text),
        "layer": "decoder.1.feed_forward.inner",
        "unit": 3,
    }
    assert document["ranking"] == [
        {"unit": 3, "layer": "decoder.1.feed_forward.inner", "feature": "case", "correlation": 0.5}
    ]
    assert len(document["values"]) == len(text)


def test_a_translator_is_coloured_where_it_reads() -> None:
    model = language_model("translate")
    source, target = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[1, 2]])
    assert len(cells(model, (source, target), list("abcde"), "encoder.0.hidden", 1).values) == 5
    assert len(cells(model, (source, target), list("xy"), "decoder.0.hidden", 1).values) == 2


def test_what_has_no_cells_is_one_sentence() -> None:
    model, ids = language_model(), torch.tensor([[1, 2, 3]])
    with pytest.raises(ProbeError, match=r"decoder\.0\.hidden has no unit 12; choose from 0 to 11"):
        cells(model, (ids,), list("abc"), "decoder.0.hidden", 12)
    with pytest.raises(ProbeError, match=r"this model has no decoder\.2\.hidden: after decoder comes 0 to 1"):
        cells(model, (ids,), list("abc"), "decoder.2.hidden", 0)
    with pytest.raises(ProbeError, match=r"decoder\.0\.self\.weights has no units; choose from: decoder\.0\.f"):
        cells(model, (ids,), list("abc"), "decoder.0.self.weights", 0)
    with pytest.raises(ShapeError, match=r"decoder\.0\.hidden read 3 tokens and 2 were named"):
        cells(model, (ids,), list("ab"), "decoder.0.hidden", 0)
    with pytest.raises(ShapeError, match=r"units cannot be ranked without a text; give at least one window"):
        rank_units(model, [])


# --- directions ---

LAYER = "decoder.1.hidden"
REAL = Path(os.environ.get("CLEARHEAD_DATA", "nowhere"))


def units(model: nn.Module, ids: Tensor) -> Tensor:
    with torch.no_grad(), capture(model, LAYER) as seen:
        model(ids)
    return seen[LAYER].double()


def some_windows(model: nn.Module, noise: float, count: int = 4) -> list[Window]:
    """A feature that is a mixture of all units, with some noise."""
    torch.manual_seed(7)
    mixture = torch.randn(DIM, dtype=torch.float64)
    texts = [torch.randint(1, V, (B, T)) for _ in range(count)]
    return [
        ((ids,), {"mixture": units(model, ids) @ mixture + 3 + noise * torch.randn(B, T, dtype=torch.float64)})
        for ids in texts
    ]


def test_a_feature_that_is_spread_over_all_units_is_read_off() -> None:
    model = language_model()
    several = some_windows(model, noise=0.0)
    found = direction(model, several, LAYER, "mixture")
    assert found.correlation > 0.99
    (inputs, known) = several[1]
    said = found.read(model, inputs)
    assert said.shape == (B, T)
    assert float((said - known["mixture"]).abs().mean()) < 0.1 * float(known["mixture"].std())


def test_it_is_fitted_to_one_half_and_measured_on_the_other() -> None:
    model = language_model()
    several = some_windows(model, noise=4.0)
    found = direction(model, several, LAYER, "mixture")
    x, y = [], []
    for inputs, known in several:
        x.append(units(model, *inputs).flatten(0, 1).numpy())
        y.append(known["mixture"].flatten().numpy())
    fit_x, fit_y = np.concatenate([x[0], x[2]]), np.concatenate([y[0], y[2]])
    centred, wanted = fit_x - fit_x.mean(0), fit_y - fit_y.mean()
    ridge = RIDGE * np.mean((centred**2).sum(0)) * np.eye(DIM)
    weights = np.linalg.solve(centred.T @ centred + ridge, centred.T @ wanted)
    np.testing.assert_allclose(found.weights.numpy(), weights, rtol=1e-6)
    assert found.constant == pytest.approx(fit_y.mean() - fit_x.mean(0) @ weights, rel=1e-6)
    held_x, held_y = np.concatenate([x[1], x[3]]), np.concatenate([y[1], y[3]])
    assert found.correlation == pytest.approx(np.corrcoef(held_x @ weights, held_y)[0, 1], rel=1e-6)


def test_a_feature_that_never_changes_is_followed_by_nothing() -> None:
    model = language_model()
    still = [(inputs, {"still": torch.ones(B, T)}) for inputs, _ in some_windows(model, 0.0)]
    assert direction(model, still, LAYER, "still").correlation == 0


@pytest.mark.skipif(not (REAL / "tinyshakespeare").is_dir(), reason="needs the real corpora: set CLEARHEAD_DATA")
def test_a_model_of_shakespeare_knows_the_place_in_the_line() -> None:
    model = clearhead.load("shakespeare")
    text = "".join(read("tinyshakespeare", validation=0.1).validation)[:32768]
    found = direction(
        model.network, windows(model.tokenizer.encode(text), list(text)), "decoder.2.hidden", "line position"
    )
    assert found.correlation > 0.7


def test_what_cannot_be_followed_is_one_sentence() -> None:
    model = language_model()
    several = some_windows(model, 0.0)
    with pytest.raises(ProbeError, match=r"decoder\.1\.hiden has no units; did you mean decoder\.1\.hidden\?"):
        direction(model, several, "decoder.1.hiden", "mixture")
    with pytest.raises(ProbeError, match=r"the windows have no feature case; choose from: mixture"):
        direction(model, several, LAYER, "case")
    with pytest.raises(
        ShapeError, match=r"fitted to one half of the windows and measured on the other; give two or more"
    ):
        direction(model, several[:1], LAYER, "mixture")


def test_units_are_chosen_on_one_half_of_a_text_and_measured_on_the_other() -> None:
    model, text = language_model(), TEXT * 3 + TEXT.upper()[:37]
    ids, tokens = numbered(text), list(text)
    read = list(windows(ids, tokens, 11, rows=3))
    ranked = rank_held_out(model, read)
    chosen = {(each.layer, each.unit, each.feature): each.correlation for each in rank_units(model, read[::2])}
    assert {(each.layer, each.unit, each.feature): each.correlation for each in ranked} == chosen
    best = ranked[0]
    others = rank_units(model, read[1::2], [best.layer], count=10_000)
    measured = {(each.unit, each.feature): each.correlation for each in others}
    assert best.held_out == pytest.approx(measured[best.unit, best.feature])
    held_out = [abs(each.held_out or 0.0) for each in ranked]
    assert held_out == sorted(held_out, reverse=True)
