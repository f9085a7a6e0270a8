from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.errors import ProbeError, ShapeError
from clearhead.look.views.patches import patch_components, principal_components
from clearhead.nn import PatchEmbedding

PATCH, CHANNELS, DIM = 3, 2, 23
N, D = 11, 5


def test_components_are_small_images_and_lie_as_the_patch_does() -> None:
    torch.manual_seed(1)
    embedding = PatchEmbedding(PATCH, CHANNELS, DIM)
    found = patch_components(nn.Sequential(embedding), count=5)
    assert found.components.shape == (5, PATCH, PATCH, CHANNELS)
    image = torch.randn(1, CHANNELS, PATCH, PATCH)
    by_hand = torch.einsum("dhwc,chw->d", found.filters, image[0]) + embedding.linear.bias
    torch.testing.assert_close(embedding(image)[0, 0], by_hand)


def test_one_filter_in_many_strengths_is_the_first_component() -> None:
    embedding = PatchEmbedding(PATCH, CHANNELS, DIM)
    edge = torch.zeros(PATCH, PATCH, CHANNELS)
    edge[:, 0], edge[:, 2, 0] = 1, 0.5
    with torch.no_grad():
        embedding.linear.weight.copy_(torch.linspace(-1, 2, DIM)[:, None] * edge.flatten())
    found = patch_components(embedding, count=99)
    torch.testing.assert_close(found.components[0].float(), edge / edge.norm())
    assert found.components.shape[0] == PATCH * PATCH * CHANNELS
    torch.testing.assert_close(found.shares[0], torch.ones((), dtype=torch.float64))
    document = found.to_json()
    assert document["format"] == "clearhead-patches-1"
    assert document["shares"][0] == 1
    torch.testing.assert_close(torch.tensor(document["components"][0]), edge / edge.norm(), atol=1e-4, rtol=0)


def test_a_model_that_reads_no_images_says_so() -> None:
    with pytest.raises(ProbeError, match=r"this model reads no images, so it has no patch embedding; look at one for"):
        patch_components(nn.Linear(2, 3))


def test_components_are_the_eigenvectors_of_the_covariance() -> None:
    torch.manual_seed(2)
    vectors = torch.randn(N, D, dtype=torch.float64) * torch.tensor([5.0, 1, 3, 0.5, 2]) + 7
    found = principal_components(vectors, 3)
    values, columns = torch.linalg.eigh(torch.cov(vectors.T))
    for place in range(3):
        direction = columns[:, -1 - place]
        assert abs(float(found.directions[place] @ direction)) == pytest.approx(1)
        assert float(found.directions[place][found.directions[place].abs().argmax()]) > 0
    torch.testing.assert_close(found.shares, values.flip(0)[:3] / values.sum())
    torch.testing.assert_close(found.project(vectors), (vectors - vectors.mean(0)) @ found.directions.T)


def test_all_components_lose_nothing() -> None:
    torch.manual_seed(3)
    vectors = torch.randn(N, D, dtype=torch.float64)
    found = principal_components(vectors, D)
    torch.testing.assert_close(found.project(vectors) @ found.directions + found.mean, vectors)
    torch.testing.assert_close(found.shares.sum(), torch.ones((), dtype=torch.float64))


def test_vectors_that_are_all_alike_have_no_spread_to_share() -> None:
    assert principal_components(torch.ones(N, D), 2).shares.tolist() == [0, 0]


@pytest.mark.parametrize("count", [0, 6])
def test_more_components_than_there_are_is_one_sentence(count: int) -> None:
    with pytest.raises(ShapeError, match=rf"{count} principal components of \(11, 5\) numbers; choose from 1 to 5"):
        principal_components(torch.ones(N, D), count)
