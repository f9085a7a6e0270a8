from __future__ import annotations

import sys

import pytest
import torch

from clearhead.errors import ConfigError, ShapeError, TextError
from clearhead.look.views.words import with_neighbours, word_map

GROUPS, EACH, DIM = 3, 7, 11
WORDS = [f"{group}{number}" for group in "abc" for number in range(EACH)]


def three_groups() -> torch.Tensor:
    torch.manual_seed(4)
    centers = torch.randn(GROUPS, 1, DIM) * 5
    return (centers + torch.randn(GROUPS, EACH, DIM)).reshape(-1, DIM)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_words_of_a_group_lie_together_and_the_same_every_time(method: str) -> None:
    if method == "tsne":
        pytest.importorskip("sklearn", reason="t-SNE is scikit-learn's")
    found = word_map(three_groups(), WORDS, method)  # type: ignore[arg-type]
    assert found.points.shape == (GROUPS * EACH, 2)
    apart = torch.cdist(found.points, found.points)
    own = torch.arange(GROUPS).repeat_interleave(EACH)
    alike = own[:, None] == own
    nearest_three = apart.fill_diagonal_(torch.inf).topk(3, largest=False).indices
    assert alike.gather(1, nearest_three).double().mean() > 0.95
    torch.testing.assert_close(word_map(three_groups(), WORDS, method).points, found.points)  # type: ignore[arg-type]


def test_the_plain_map_keeps_the_spread_of_the_first_two_components() -> None:
    vectors = three_groups().double()
    spread = torch.linalg.svdvals(vectors - vectors.mean(0))
    points = word_map(vectors, WORDS).points
    torch.testing.assert_close(points.norm(dim=0), spread[:2])
    torch.testing.assert_close(points.mean(0), torch.zeros(2, dtype=torch.float64))


def test_a_map_as_plain_data() -> None:
    document = word_map(three_groups(), WORDS).to_json()
    assert document["format"] == "clearhead-words-1"
    assert document["words"] == WORDS
    expected = word_map(three_groups(), WORDS).points.float()
    torch.testing.assert_close(torch.tensor(document["points"]), expected, atol=1e-5, rtol=1e-4)


def test_some_words_and_their_neighbours() -> None:
    rows = with_neighbours(three_groups(), WORDS, ["a0", "a1"], count=3)
    assert rows[0] == 0
    assert 1 in rows
    assert len(rows) == len(set(rows)) <= 8
    assert all(WORDS[row].startswith("a") for row in rows)
    with pytest.raises(TextError, match=r"'zz' is not among the 21 words of this model"):
        with_neighbours(three_groups(), WORDS, ["zz"])


def test_what_cannot_be_mapped_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = three_groups()
    with pytest.raises(ConfigError, match=r"unknown kind of map 'tnse'; did you mean tsne\?"):
        word_map(vectors, WORDS, "tnse")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"20 words do not fit vectors of shape \(21, 11\)"):
        word_map(vectors, WORDS[1:])
    with pytest.raises(ShapeError, match=r"a map of 2 words shows nothing; give it at least 3"):
        word_map(vectors[:2], WORDS[:2])
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(
        ConfigError, match=r"a t-SNE map needs scikit-learn: pip install 'clearhead\[look\]'; or choose"
    ):
        word_map(vectors, WORDS, "tsne")
