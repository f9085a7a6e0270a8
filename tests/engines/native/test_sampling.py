"""Tokens chosen by native code: those that decode/ chooses from the same numbers, in the same shares."""

from __future__ import annotations

import ctypes
from array import array
from dataclasses import replace
from math import inf, isnan
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.native.test_sanitizers import compile_and_run, sanitizers
from torch.testing import assert_close

from clearhead.decode.logits import RowSampler, RowText, sampling_filters
from clearhead.decode.settings import Settings
from clearhead.engines.native.library import FOLDER, load_library
from clearhead.engines.native.sampling import STRUCTURES, NativeSampler

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")

__all__ = ["sanitizers"]  # the fixture

SIZE = 23


def sampler(settings: list[Settings]) -> NativeSampler:
    library = load_library()
    assert library is not None
    return NativeSampler(library, settings)


def test_every_structure_has_the_size_that_c_has() -> None:
    library = load_library()
    assert library is not None
    library.clearhead_sampling_size.restype = ctypes.c_int64
    sizes = [library.clearhead_sampling_size(number) for number in range(len(STRUCTURES) + 1)]
    assert sizes == [*map(ctypes.sizeof, STRUCTURES), 0]


shares = st.floats(0, 1, exclude_max=True)
tokens = st.integers(0, SIZE - 1)
settings = st.builds(
    Settings,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.9]),
    top_k=st.sampled_from([None, 1, 3, 11, SIZE, SIZE + 5]),
    top_p=st.sampled_from([1.0, 0.999, 0.7, 0.2, 1e-6]),
    min_p=st.sampled_from([0.0, 0.01, 0.4, 0.99]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 7.0]),
    presence_penalty=st.sampled_from([0.0, 0.75, -1.5]),
    frequency_penalty=st.sampled_from([0.0, 0.5, -0.25]),
    no_repeat_ngram=st.sampled_from([0, 1, 2, 3]),
    banned_tokens=st.lists(tokens, max_size=5).map(tuple),
    return_logprobs=st.booleans(),
)


@given(
    rows=st.lists(
        st.tuples(settings, shares, st.lists(tokens, max_size=9), st.integers(-1, SIZE - 1)), min_size=1, max_size=7
    ),
    seed=st.integers(0, 10**6),
)
def test_the_same_tokens_as_torch_from_the_same_numbers(
    rows: list[tuple[Settings, float, list[int], int]], seed: int
) -> None:
    """Rows with different settings in one call, each as decode/ would choose."""
    how, random, texts, forced = map(list, zip(*rows, strict=True))
    logits = 3 * torch.randn(len(rows), SIZE, generator=torch.Generator().manual_seed(seed))
    logits[:, ::7] = logits[:, 1:2]  # equal ones
    so_far = [RowText(array("i", ids), token, len(ids) // 3) for ids, token in zip(texts, forced, strict=True)]
    expected, expected_logprobs, expected_scores = RowSampler(how)(logits, random, so_far)
    found, logprobs, scores = sampler(how)(logits, random, so_far)
    assert list(found) == list(expected)
    for each, own, theirs, score, their_score in zip(
        how, logprobs, expected_logprobs, scores, expected_scores, strict=True
    ):
        if each.return_logprobs:
            assert_close([own, score], [theirs, their_score], rtol=1e-4, atol=1e-5)
        else:
            assert isnan(theirs)


def test_a_row_without_a_text_is_as_alone() -> None:
    """No forced token and no token so far: the texts may be left out."""
    how = [Settings(temperature=0.9), Settings(top_k=3, temperature=1.0), Settings()]
    logits, random = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(5)), [0.31, 0.87, 0.0]
    assert sampler(how)(logits, random, None)[0] == RowSampler(how)(logits, random, None)[0]
    assert [sampler([each])(logits[i : i + 1], random[i : i + 1], None)[0][0] for i, each in enumerate(how)] == (
        sampler(how)(logits, random, None)[0]
    )


@pytest.mark.parametrize(
    "how",
    [
        Settings(temperature=1.0),
        Settings(temperature=1.7, top_k=13),
        Settings(temperature=0.8, top_p=0.9),
        Settings(temperature=1.2, min_p=0.05),
        Settings(temperature=1.1, top_k=17, top_p=0.95, min_p=0.02),
    ],
)
def test_a_hundred_thousand_draws_have_the_shares_of_the_distribution(how: Settings) -> None:
    generator = torch.Generator().manual_seed(7)
    logits, draws = 2 * torch.randn(SIZE, generator=generator), 100_000
    probabilities = logits.double().unsqueeze(0)
    for each in sampling_filters(how):
        probabilities = each(probabilities)
    expected = draws * probabilities.softmax(-1)[0]
    random = torch.rand(draws, generator=generator, dtype=torch.float64).tolist()
    found, _, _ = sampler([how] * draws)(logits.expand(draws, -1), random, None)
    counts = torch.bincount(torch.tensor(found), minlength=SIZE)
    possible = expected > 0
    assert not counts[~possible].any()
    from scipy.stats import chisquare  # takes a second to import

    assert chisquare(counts[possible].numpy(), expected[possible].numpy()).pvalue > 1e-3


def test_a_large_vocabulary_is_filtered_alike() -> None:
    """Heaps with many tokens; a few draws, where torch sorts."""
    generator = torch.Generator().manual_seed(3)
    logits = 4 * torch.randn(5, 10_007, generator=generator)
    how = [
        Settings(temperature=1.0, top_k=50),
        Settings(temperature=1.3, top_p=0.9),
        Settings(temperature=2.0, top_p=0.999),
        Settings(temperature=1.0, min_p=0.001),
        Settings(temperature=1.0, top_k=9000, top_p=0.97),
    ]
    for share in (0.0, 0.2, 0.77, 0.9999):
        assert sampler(how)(logits, [share] * 5, None)[0] == RowSampler(how)(logits, [share] * 5, None)[0]


def test_what_is_no_number_still_gives_a_token() -> None:
    """NaN and infinity come from broken weights; the next step refuses no token that is out of range."""
    logits = torch.full((4, SIZE), float("nan"))
    logits[1], logits[2, 3], logits[3] = -inf, inf, 0.0
    how = [Settings(temperature=t, top_p=p) for t, p in ((1.0, 0.9), (1.0, 1.0), (0.0, 1.0), (1.0, 0.5))]
    found, _, _ = sampler(how)(logits, [0.999] * 4, None)
    assert all(0 <= token < SIZE for token in found)
    assert found[2] == 3


def test_tokens_that_do_not_exist_are_not_looked_up() -> None:
    """A text, a ban or a forced token beyond the vocabulary: nothing is read outside of it."""
    how = [replace(Settings(), repetition_penalty=2.0, no_repeat_ngram=1, banned_tokens=(5, SIZE + 1000))]
    logits = torch.arange(SIZE, dtype=torch.float32).unsqueeze(0)
    text = RowText(array("i", [SIZE + 10**6, SIZE - 1]), forced=SIZE + 7)
    assert sampler(how)(logits, [0.0], [text])[0] == [SIZE - 2]


@pytest.mark.usefixtures("sanitizers")
def test_native_sampling_reads_and_writes_only_its_memory(tmp_path: Path) -> None:
    sources = (Path(__file__).with_name("sampling_test.c"), FOLDER / "sample.c")
    flags = ("-std=gnu11", "-g", "-DVARIANT=portable", f"-I{FOLDER}")
    done = compile_and_run(tmp_path, *flags, *map(str, sources))
    assert done.returncode == 0, done.stderr
