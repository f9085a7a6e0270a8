import types

import clearhead.nn

FIXED_BY_THE_DESIGN = {
    "attention",
    "MultiHeadAttention",
    "SinusoidalPositions",
    "LearnedPositions",
    "causal_mask",
    "padding_mask",
    "EncoderBlock",
    "DecoderBlock",
    "Encoder",
    "Decoder",
}


def test_all_names_what_can_be_imported():
    public = {
        name
        for name, thing in vars(clearhead.nn).items()
        if not name.startswith("_") and not isinstance(thing, types.ModuleType)
    }
    assert public == set(clearhead.nn.__all__)
    assert len(clearhead.nn.__all__) == len(public)


def test_names_fixed_by_the_design_are_there():
    assert set(clearhead.nn.__all__) >= FIXED_BY_THE_DESIGN
    assert callable(clearhead.nn.attention)  # the function, not the module of that name


def test_every_name_is_described():
    undescribed = [name for name in clearhead.nn.__all__ if not getattr(clearhead.nn, name).__doc__]
    assert undescribed == []
