"""Every field of the structures that Python mirrors is where C has it."""

from __future__ import annotations

import ctypes

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


@given(
    inputs=st.integers(1, 37),
    outputs=st.integers(1, 7),
    seed=st.integers(0, 99),
    kind=st.sampled_from(["normal", "one"]),
)
def test_bytes_fit_the_sums_of_avx2(inputs: int, outputs: int, seed: int, kind: str) -> None:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))
    if kind == "one":  # the largest is far from the others
        weight[:, inputs // 2] *= 99
    scale = layout._byte_scales(weight)
    rounded = (weight / scale.unsqueeze(1)).round().to(torch.int64)
    pairs = torch.nn.functional.pad(rounded, (0, inputs % 2)).unflatten(1, (-1, 2))
    inputs_of_two = torch.cartesian_prod(torch.tensor([0, 255]), torch.tensor([0, 255]))  # bytes of a token
    sums = pairs.double() @ inputs_of_two.double().T
    assert sums.min() >= -(2**15)
    assert sums.max() < 2**15
    assert rounded.abs().max() <= 127
    largest_sums = torch.maximum(pairs.clamp(min=0).sum(2), -pairs.clamp(max=0).sum(2)).amax(1)
    assert (largest_sums >= 126).all()  # the scale is not larger than it must be


def test_rows_of_zeros_have_a_scale() -> None:
    assert (layout._byte_scales(torch.zeros(3, 5)) > 0).all()
