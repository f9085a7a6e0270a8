"""The built-in data: it is quick to read, and the drawn pictures show what their labels and captions say."""

from __future__ import annotations

import re
import time
from collections import Counter

import numpy as np
import pytest

from clearhead.data import builtin
from clearhead.data.builtin import pictures
from clearhead.data.builtin.pictures import CAPTIONED_SHAPES, SHAPES, PlacedShape, coverage, draw
from clearhead.data.examples import Captioned, Picture, Pixels
from clearhead.errors import ConfigError


@pytest.fixture(scope="module")
def images() -> tuple[Picture, ...]:
    return builtin.examples("images")


@pytest.fixture(scope="module")
def captioned() -> tuple[Captioned, ...]:
    return builtin.examples("captions")


def pixels(example: Picture | Captioned) -> Pixels:
    assert isinstance(example.image, np.ndarray)
    return example.image


def test_pictures_are_many_small_and_balanced(images: tuple[Picture, ...]) -> None:
    assert len(images) == 6_000
    assert {(pixels(image).shape, pixels(image).dtype) for image in images} == {((28, 28, 3), np.dtype(np.uint8))}
    assert Counter(image.label for image in images) == dict.fromkeys(SHAPES, 600)
    assert len({pixels(image).tobytes() for image in images}) == 6_000


def test_pictures_are_always_the_same_and_quick(images: tuple[Picture, ...]) -> None:
    start = time.process_time()
    again = pictures.images()
    assert time.process_time() - start < 20, "should take one second; more on a slow machine or while it is traced"
    assert all(np.array_equal(pixels(one), pixels(two)) for one, two in zip(images, again, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_stays_inside_its_circle_and_has_soft_edges(shape: str) -> None:
    for turn in (0.0, 0.7, 2.0):
        share = coverage(PlacedShape(shape, (255, 255, 255), 16, 16, 9, turn), 32)
        across, down = np.meshgrid(np.arange(32) + 0.5, np.arange(32) + 0.5)
        outside = np.hypot(across - 16, down - 16) > 9 * 1.15 + 1
        assert share[outside].max() == 0
        assert share.max() == 1
        assert ((share > 0.05) & (share < 0.95)).sum() > 8


def test_shapes_have_the_areas_that_geometry_says() -> None:
    areas = {shape: coverage(PlacedShape(shape, (0, 0, 0), 50, 50, 40), 100).sum() / 40**2 for shape in SHAPES}
    assert areas["circle"] == pytest.approx(np.pi * 0.9**2, rel=0.01)
    assert areas["square"] == pytest.approx(1.44**2, rel=0.01)
    assert areas["triangle"] == pytest.approx(3 * np.sqrt(3) / 4, rel=0.01)
    assert areas["ring"] == pytest.approx(np.pi * (0.92**2 - 0.52**2), rel=0.01)
    assert areas["bar"] == pytest.approx(0.8, rel=0.01)
    assert areas["cross"] == pytest.approx(2 * 1.9 * 0.52 - 0.52**2, rel=0.01)
    assert areas["star"] == pytest.approx(5 * 0.42 * np.sin(np.pi / 5), rel=0.01)


def test_turning_and_moving_keep_the_area() -> None:
    for shape in SHAPES:
        plain = coverage(PlacedShape(shape, (0, 0, 0), 32, 32, 20), 64).sum()
        turned = coverage(PlacedShape(shape, (0, 0, 0), 30, 34, 20, rotation=1.1), 64).sum()
        assert turned == pytest.approx(plain, rel=0.02)


def test_shapes_differ_from_each_other() -> None:
    masks = {shape: coverage(PlacedShape(shape, (0, 0, 0), 14, 14, 10), 28) for shape in SHAPES}
    names = list(masks)
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            assert np.abs(masks[first] - masks[second]).sum() > 40, (first, second)


def test_later_shapes_cover_earlier_ones() -> None:
    shapes = [PlacedShape("square", (255, 0, 0), 8, 8, 6), PlacedShape("circle", (0, 0, 255), 8, 8, 3)]
    drawn = draw(np.zeros((16, 16, 3)), shapes)
    assert drawn[8, 8].tolist() == [0, 0, 255]
    assert drawn[8, 4].tolist() == [255, 0, 0]
    assert drawn[0, 0].tolist() == [0, 0, 0]


def test_every_picture_has_a_shape_that_stands_out(images: tuple[Picture, ...]) -> None:
    for image in images[::37]:
        values = pixels(image).astype(float)
        edge = np.concatenate([values[0], values[-1], values[:, 0], values[:, -1]])
        far = np.linalg.norm(values - np.median(edge, axis=0), axis=2) > 60
        assert far.sum() > 15, image.label


def test_captions_are_many_and_always_the_same(captioned: tuple[Captioned, ...]) -> None:
    assert len(captioned) == 4_000
    assert {pixels(example).shape for example in captioned} == {(32, 32, 3)}
    assert all(len(example.captions) == len(set(example.captions)) == 3 for example in captioned)
    again = pictures.captioned()
    assert all(one.captions == two.captions for one, two in zip(captioned, again, strict=True))
    assert all(np.array_equal(pixels(one), pixels(two)) for one, two in zip(captioned, again, strict=True))


def test_every_colour_shape_size_and_relation_is_mentioned(captioned: tuple[Captioned, ...]) -> None:
    words = Counter(word for example in captioned for caption in example.captions for word in caption.split())
    mentioned = (
        *pictures.COLOURS,
        *CAPTIONED_SHAPES,
        *pictures.GROUNDS,
        "small",
        "big",
        "above",
        "below",
        "left",
        "right",
    )
    assert min(words[word] for word in mentioned) > 300
    assert not any(
        re.search(r"\ba [aeio]|\ban [^aeio]", caption) for example in captioned for caption in example.captions
    )


def middle_of(image: Pixels, colour: str) -> tuple[float, float, int]:
    """Where the pixels of a named colour are, and how many: x, y, count."""
    palette = np.array([*pictures.COLOURS.values(), *pictures.GROUNDS.values()], dtype=float)
    nearest = np.linalg.norm(image[:, :, None].astype(float) - palette, axis=3).argmin(axis=2)
    distance = np.linalg.norm(image - np.array(pictures.COLOURS[colour]), axis=2)
    down, across = np.nonzero((nearest == list(pictures.COLOURS).index(colour)) & (distance < 45))
    return float(across.mean()), float(down.mean()), len(across)


TWO = re.compile(r"^an? (small|big) (\w+) (\w+) (above|below|to the left of|to the right of) an? (\w+) (\w+)$")


def test_relations_are_true_of_the_pixels(captioned: tuple[Captioned, ...]) -> None:
    seen = 0
    for example in captioned[:1_200]:
        for caption in example.captions:
            if match := TWO.match(caption):
                x, y, _ = middle_of(pixels(example), match[2])
                other_x, other_y, _ = middle_of(pixels(example), match[5])
                held = {
                    "above": y < other_y,
                    "below": y > other_y,
                    "to the left of": x < other_x,
                    "to the right of": x > other_x,
                }
                assert held[match[4]], caption
                assert abs(x - other_x) + abs(y - other_y) > 8
                seen += 1
    assert seen > 1_000


def test_sizes_are_true_of_the_pixels(captioned: tuple[Captioned, ...]) -> None:
    counts: dict[tuple[str, str], list[int]] = {}
    for example in captioned[:1_500]:
        for caption in example.captions[:2]:
            if match := re.match(r"^an? (small|big) (\w+) (\w+)", caption):
                counts.setdefault((match[3], match[1]), []).append(middle_of(pixels(example), match[2])[2])
    for shape in CAPTIONED_SHAPES:
        assert np.median(counts[shape, "big"]) > 1.8 * np.median(counts[shape, "small"]), shape


def test_backgrounds_and_places_are_true_of_the_pixels(captioned: tuple[Captioned, ...]) -> None:
    for example in captioned[:600:3]:
        place = next(spot for spot in pictures.SPOTS if example.captions[0].endswith(spot))
        colour = example.captions[0].split()[2]
        x, y, _ = middle_of(pixels(example), colour)
        assert (x, y) == pytest.approx(pictures.SPOTS[place], abs=4), example.captions
        ground = example.captions[1].split()[-2]
        assert np.linalg.norm(np.median(pixels(example), axis=(0, 1)) - np.array(pictures.GROUNDS[ground])) < 40


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ConfigError, match="no built-in data of the kind picture; choose from: captions, images"):
        builtin.examples("picture")


def test_texts_are_read_quickly() -> None:
    start = time.process_time()
    for kind in ("pairs", "text", "labelled", "tagged"):
        builtin._READERS[kind]()
    assert time.process_time() - start < 10, "should take a third of a second; more on a slow machine"
