import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from clearhead.errors import ShapeError
from clearhead.nn import Cache, DecoderCache, FixedCache, GrowingCache, MemoryCache, MultiHeadAttention, WindowCache


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def some(tokens: int, rows: int = 2) -> tuple[Tensor, Tensor]:
    """Keys (B, 3, S, 5) and values (B, 3, S, 7)."""
    return torch.randn(rows, 3, tokens, 5), torch.randn(rows, 3, tokens, 7)


@pytest.mark.parametrize("make", [GrowingCache, lambda: FixedCache(11)])
def test_a_cache_gives_all_it_has_seen(make):
    cache, parts = make(), [some(2), some(1), some(4)]
    assert (cache.start, cache.first, cache.bytes) == (0, 0, 0)
    for i, part in enumerate(parts):
        seen = cache.extend(part[0].size(2), lambda part=part: part)
        wanted = tuple(torch.cat(tensors, dim=2) for tensors in zip(*parts[: i + 1], strict=True))
        assert_close(seen, wanted)
    assert (cache.start, cache.first) == (7, 0)


def test_a_growing_cache_grows():
    cache = GrowingCache()
    cache.extend(2, lambda: some(2))
    assert cache.bytes == 2 * 3 * 2 * (5 + 7) * 4
    cache.extend(3, lambda: some(3))
    assert cache.bytes == 2 * 3 * 5 * (5 + 7) * 4


def test_a_fixed_cache_takes_its_memory_once():
    cache = FixedCache(11)
    cache.extend(2, lambda: some(2))
    place, size = cache.keys.data_ptr(), cache.bytes
    cache.extend(9, lambda: some(9))
    assert (cache.keys.data_ptr(), cache.bytes) == (place, size)
    assert size == 2 * 3 * 11 * (5 + 7) * 4


def test_a_fixed_cache_that_is_full():
    cache = FixedCache(5)
    cache.extend(3, lambda: some(3))
    with pytest.raises(ShapeError, match=r"^the cache holds 5 tokens and 6 are needed; make it longer$"):
        cache.extend(3, lambda: some(3))
    cache.extend(2, lambda: some(2))  # what fits still does


def test_a_window_cache_keeps_the_last_tokens():
    cache, parts = WindowCache(3), [some(2), some(5), some(1), some(1)]
    keys = torch.cat([k for k, _ in parts], dim=2)
    for part, first, last in zip(parts, (0, 0, 4, 5), (2, 7, 8, 9), strict=True):
        k, v = cache.extend(part[0].size(2), lambda part=part: part)
        assert (cache.first, cache.start) == (first, last)
        assert_close(k, keys[:, :, first:last])
        assert v.size(2) == last - first
    assert cache.bytes == 2 * 3 * 3 * (5 + 7) * 4
    held = sum(x.untyped_storage().nbytes() for x in (cache.keys, cache.values))
    assert held == cache.bytes  # a copy, not a view of all that was read


def test_a_memory_cache_computes_once():
    cache, calls = MemoryCache(), []

    def project() -> tuple[Tensor, Tensor]:
        calls.append(some(5))
        return calls[-1]

    first, second = cache.extend(2, project), cache.extend(3, project)
    assert len(calls) == 1
    assert_close(first, second, rtol=0, atol=0)
    assert (cache.start, cache.first) == (5, 0)  # the queries move on, the memory stays


@pytest.mark.parametrize("make", [GrowingCache, lambda: FixedCache(11), lambda: WindowCache(4), MemoryCache])
@pytest.mark.parametrize("rows", [[1, 0, 2], [2, 2], [0, 1, 1, 2, 0]])
def test_reorder(make, rows):
    cache, part = make(), some(3, rows=3)
    cache.reorder(torch.tensor([0]))  # nothing is there yet
    cache.extend(part[0].size(2), lambda: part)
    cache.reorder(torch.tensor(rows))
    assert_close(cache.keys[:, :, :3], part[0][rows])
    assert_close(cache.values[:, :, :3], part[1][rows])


def test_decoder_cache():
    cache = DecoderCache(FixedCache(7))
    assert isinstance(cache.own, FixedCache)
    assert isinstance(cache.memory, MemoryCache)
    assert isinstance(DecoderCache().own, GrowingCache)
    own, memory = some(3), some(5)
    cache.own.extend(own[0].size(2), lambda: own)
    cache.memory.extend(1, lambda: memory)
    cache.reorder(torch.tensor([1, 1, 0]))
    assert_close(cache.own.keys[:, :, :3], own[0][[1, 1, 0]])
    assert_close(cache.memory.values, memory[1][[1, 1, 0]])


def test_a_cache_must_say_what_it_does():
    assert Cache.__abstractmethods__ == {"extend", "reorder", "bytes"}
    with pytest.raises(TypeError, match="abstract class Cache"):
        Cache()  # type: ignore[abstract]


def test_shared_heads_make_the_cache_smaller():
    sizes = []
    for kv_heads in (6, 2, 1):
        cache = GrowingCache()
        MultiHeadAttention(12, 6, kv_heads=kv_heads)(torch.randn(2, 5, 12), cache=cache)
        sizes.append(cache.bytes)
    assert sizes == [3 * sizes[1], sizes[1], sizes[1] // 2]
