"""Every field of the structures that Python mirrors is where C has it."""

from __future__ import annotations

import ctypes

import pytest

from clearhead.engines.native import layout, lm, short
from clearhead.engines.native.library import load_library

pytestmark = pytest.mark.skipif(load_library() is None, reason="no native library: python tools/build_native.py")

STRUCTURES = (*layout.STRUCTURES, *lm.STRUCTURES, *short.STRUCTURES)


class CFieldInfo(ctypes.Structure):
    _fields_ = (
        *(("structure", ctypes.c_char_p), ("field", ctypes.c_char_p)),
        *(("offset", ctypes.c_int64), ("size", ctypes.c_int64)),
    )


def fields_in_c() -> dict[tuple[str, str], tuple[int, int]]:
    """(structure, field) -> (offset, size); the field "" is the whole structure."""
    library = load_library()
    assert library is not None
    library._code.clearhead_fields.restype = ctypes.POINTER(CFieldInfo)
    table, found = library._code.clearhead_fields(), {}
    for row in table:
        if row.structure is None:
            break
        found[row.structure.decode(), row.field.decode()] = (row.offset, row.size)
    return found


def test_every_field_is_where_c_has_it() -> None:
    mirrored: dict[tuple[str, str], tuple[int, int]] = {}
    for structure in STRUCTURES:
        name = structure.__name__.removeprefix("C")
        mirrored[name, ""] = (0, ctypes.sizeof(structure))
        for field in structure._fields_:
            place = getattr(structure, field[0])
            mirrored[name, field[0]] = (place.offset, place.size)
    assert mirrored == fields_in_c()


def test_every_structure_is_compared() -> None:
    names = (*vars(layout).values(), *vars(lm).values(), *vars(short).values())
    found = {each for each in names if isinstance(each, type) and issubclass(each, ctypes.Structure)}
    assert found == set(STRUCTURES)
