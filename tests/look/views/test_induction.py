from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.look.networks import small_network
from torch import nn
from torch.nn import functional as F

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.probes import capture
from clearhead.look.views.induction import induction, repeated_tokens

V, N, ROWS = 13, 5, 3


def language_model(task: str = "lm", **settings: Any) -> nn.Module:
    return small_network(task, **settings)


def test_random_tokens_are_written_twice() -> None:
    ids = repeated_tokens([3, 5, 11], N, ROWS, seed=2)
    assert ids.shape == (ROWS, 2 * N)
    assert torch.equal(ids[:, :N], ids[:, N:])
    assert set(ids.flatten().tolist()) <= {3, 5, 11}
    assert not torch.equal(ids, repeated_tokens([3, 5, 11], N, ROWS, seed=3))


def test_the_scores_are_weights_at_their_places() -> None:
    model = language_model()
    found = induction(model, range(1, V), length=N, rows=ROWS)
    ids = repeated_tokens(range(1, V), N, ROWS)
    with torch.no_grad(), capture(model, "decoder.1.self.weights") as seen:
        logits = model(ids)
    weights = seen["decoder.1.self.weights"]
    places = {
        "induction": [(i, i - N + 1) for i in range(N, 2 * N)],
        "previous": [(i, i - 1) for i in range(1, 2 * N)],
        "repeated": [(i, i - N) for i in range(N, 2 * N)],
    }
    for name, pairs in places.items():
        by_hand = torch.stack([weights[:, :, i, j] for i, j in pairs]).mean((0, 1))
        torch.testing.assert_close(getattr(found, name)[1], by_hand)
    assert found.chance == pytest.approx(sum(1 / (i + 1) for i in range(N, 2 * N)) / N)
    losses = [F.cross_entropy(logits[:, i], ids[:, i + 1]) for i in range(2 * N - 1)]
    assert found.first == pytest.approx(float(torch.stack(losses[: N - 1]).mean()))
    assert found.second == pytest.approx(float(torch.stack(losses[N:]).mean()))
    layer, head, score = found.best()
    assert score == float(found.induction.max()) == float(found.induction[layer, head])


def test_the_scores_as_plain_data() -> None:
    document = induction(language_model(), range(1, V), length=N, rows=ROWS).to_json()
    assert document["format"] == "clearhead-induction-1"
    assert [len(row) for row in document["induction"]] == [3, 3]


def test_what_cannot_have_induction_heads_is_one_sentence() -> None:
    with pytest.raises(ShapeError, match=r"1 tokens of 12 kinds cannot be repeated; take at least 2 of 2"):
        induction(language_model(), range(1, V), length=1)
    sentence = r"induction heads belong to a causal language model with attention; this model is not one"
    for model in (language_model(architecture="rnn"), language_model("masked_lm"), language_model("translate")):
        with pytest.raises(ProbeError, match=sentence):
            induction(model, range(1, V))
