"""Files -> examples -> batches. `read(path)` opens whatever a path holds; see `examples.py` for what comes out."""

from __future__ import annotations

from clearhead.data.examples import Captioned, Dataset, Labelled, Pair, Picture, Tagged
from clearhead.data.kinds import detect
from clearhead.data.pictures import pixels
from clearhead.data.read import read

__all__ = ["Captioned", "Dataset", "Labelled", "Pair", "Picture", "Tagged", "detect", "pixels", "read"]
