"""Memory for weights: aligned, zeroed, apart, and alive as long as its pieces."""

from __future__ import annotations

import gc
import mmap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.engines.native import memory
from clearhead.engines.native.memory import LARGE_PAGE, LINE, WeightMemory, large_empty


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3 << 20), min_size=1, max_size=13))
def test_pieces_are_zeros_at_lines_and_do_not_overlap(sizes: list[int]) -> None:
    weights = WeightMemory()
    pieces = [weights.zeros(size) for size in sizes]
    assert [len(piece) for piece in pieces] == sizes
    for number, piece in enumerate(pieces, start=1):
        assert not piece.any()
        assert not len(piece) or piece.data_ptr() % LINE == 0
        piece.fill_(number)
    for number, piece in enumerate(pieces, start=1):
        assert (piece == number).all()


def test_a_piece_larger_than_what_is_reserved_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MORE", 2 << 20)
    weights = WeightMemory()
    small, large, after = weights.zeros(13), weights.zeros(5 << 20), weights.zeros(17)
    large.fill_(7)
    assert len(large) == 5 << 20
    assert not small.any()
    assert not after.any()


def test_a_copy_is_contiguous_and_keeps_every_number() -> None:
    weights = WeightMemory()
    for tensor in (torch.randn(13, 7).t(), torch.arange(-5, 6, dtype=torch.int8), torch.empty(0, 3), torch.ones(())):
        own = weights.copy(tensor)
        assert own.dtype == tensor.dtype
        assert own.is_contiguous()
        assert torch.equal(own, tensor)
        assert own.data_ptr() != tensor.data_ptr() or not tensor.numel()


def test_a_copy_of_a_parameter_has_no_gradient() -> None:
    assert not WeightMemory().copy(torch.nn.Parameter(torch.randn(3, 5))).requires_grad


def test_a_piece_outlives_what_handed_it_out() -> None:
    piece = WeightMemory().zeros(4 << 20)
    gc.collect()
    piece.fill_(3)
    assert int(piece.sum(dtype=torch.int64)) == 3 * (4 << 20)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="the system has no large pages to ask for")
def test_a_system_without_large_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9999)  # no advice has this number
    piece = WeightMemory().zeros(4 << 20)
    assert len(piece) == 4 << 20
    assert not piece.any()


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 1031, 257), (0, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8])
def test_a_large_tensor_has_its_shape_and_holds_its_numbers(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    own, other = large_empty(shape, dtype), large_empty(shape, dtype)
    numbers = torch.arange(own.numel()).remainder(251).view(shape).to(dtype)
    own.copy_(numbers)
    other.zero_()
    assert own.dtype == dtype
    assert own.is_contiguous()
    assert torch.equal(own, numbers)
    assert own.numel() * own.element_size() < LARGE_PAGE or own.data_ptr() % LARGE_PAGE == 0
