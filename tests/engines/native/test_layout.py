"""The structures that Python mirrors have the sizes that C gives them."""

from __future__ import annotations

import ctypes

import pytest

from clearhead.engines.native.layout import STRUCTURES
from clearhead.engines.native.library import load_library

pytestmark = pytest.mark.skipif(load_library() is None, reason="no C compiler (cc, gcc or clang) on this machine")


def c_size(number: int) -> int:
    library = load_library()
    assert library is not None
    library.clearhead_structure_size.restype = ctypes.c_int64
    return int(library.clearhead_structure_size(number))


@pytest.mark.parametrize("number", range(len(STRUCTURES)), ids=[each.__name__ for each in STRUCTURES])
def test_a_structure_is_as_large_as_in_c(number: int) -> None:
    assert ctypes.sizeof(STRUCTURES[number]) == c_size(number)


def test_every_structure_of_layout_is_compared() -> None:
    from clearhead.engines.native import layout

    mirrored = {each for each in vars(layout).values() if isinstance(each, type) and issubclass(each, ctypes.Structure)}
    assert mirrored == set(STRUCTURES)
    assert c_size(len(STRUCTURES)) == 0
