from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import clearhead
from clearhead.data import read
from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import capture
from clearhead.look.units import RIDGE, Window, direction, windows
from clearhead.run import Sizes
from clearhead.tasks import TASKS
from clearhead.tasks.base.network import build_network

V, DIM, B, T = 23, 12, 5, 31
LAYER = "decoder.1.hidden"
REAL = Path(os.environ.get("CLEARHEAD_DATA", "nowhere"))


def language_model(**settings: Any) -> nn.Module:
    torch.manual_seed(1)
    model = {"dim": DIM, "heads": 3, "layers": 2, "inner": 17, "dropout": 0.0, **settings}
    return build_network(TASKS["lm"].config_type().model_validate({"model": model}), Sizes(vocabulary=V)).eval()


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
