from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import capture
from clearhead.look.units import RankedUnit, features, rank_units, unit_layers, windows
from clearhead.look.views.cells import cells
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

V, DIM, INNER = 23, 12, 17
TEXT = 'A "b c"\n  (d[e]) F\n\ng'


def language_model(task: str = "lm", **settings: Any) -> nn.Module:
    torch.manual_seed(1)
    model = {"dim": DIM, "heads": 3, "layers": 2, "inner": INNER, "dropout": 0.0, **settings}
    config = TASKS[task].config_type().model_validate({"model": model})
    return build_network(config, Sizes(vocabulary=V)).eval()  # type: ignore[index]


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
