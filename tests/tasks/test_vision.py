"""Training images that are moved a little: same size, same place in time, never the validation part."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from clearhead.tasks.vision import augment


def images() -> torch.Tensor:
    return torch.rand(5, 3, 11, 13, generator=torch.Generator().manual_seed(1)) * 2 - 1


def test_moving_by_nothing_changes_nothing() -> None:
    assert_close(augment(images(), 0.0), images(), rtol=0, atol=1e-5)


def test_each_image_moves_in_its_own_way_and_stays_in_range() -> None:
    torch.manual_seed(2)
    same = images()[:1].expand(5, -1, -1, -1)
    after = augment(same, 0.7)
    assert after.shape == same.shape
    assert after.min() >= -1
    assert after.max() <= 1
    for i in range(5):
        for j in range(i):
            assert (after[i] - after[j]).abs().max() > 0.05


def test_an_even_image_stays_even_up_to_its_border() -> None:
    even = torch.full((2, 1, 7, 5), -1.0)
    assert_close(augment(even, 1.0), even)


def test_the_same_seed_moves_in_the_same_way() -> None:
    torch.manual_seed(3)
    first = augment(images(), 0.5)
    torch.manual_seed(3)
    assert torch.equal(augment(images(), 0.5), first)


def test_a_bright_spot_moves_no_further_than_it_may() -> None:
    torch.manual_seed(5)
    spot = torch.zeros(101, 1, 41, 41)
    spot[:, :, 20, 20] = 1.0
    after = augment(spot, 0.2)[:, 0]
    where = after.flatten(1).argmax(1)
    rows, columns = where // 41 - 20, where % 41 - 20
    assert rows.abs().max() <= 2  # 0.2 × SHIFT × half of 41 pixels, made larger by the scale, is 1.3
    assert columns.abs().max() <= 2
    assert (rows != 0).any()
    assert (columns != 0).any()
