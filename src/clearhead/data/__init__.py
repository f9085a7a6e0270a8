"""Files -> examples -> batches. `read(path)` opens whatever a path holds; see `examples.py` for what comes out."""

from __future__ import annotations

from clearhead.data.dataset import detect, read
from clearhead.data.examples import Captioned, Dataset, Labelled, Pair, Picture, Tagged
from clearhead.data.images import pixels

__all__ = ["Captioned", "Dataset", "Labelled", "Pair", "Picture", "Tagged", "detect", "pixels", "read"]
