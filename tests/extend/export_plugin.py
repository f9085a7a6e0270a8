"""An export format from outside the package: the weights as a NumPy archive.

`CLEARHEAD_PLUGINS=export_plugin.py clearhead export npz RUN --out DIR` writes `weights.npz`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clearhead.errors import RunError
from clearhead.interop.exporting import EXPORTS, ExportFormat, Write
from clearhead.tasks.base.predictor import Predictor


@EXPORTS.register("npz")
class Npz(ExportFormat):
    """Every weight under its own name, in float16 with `--quantise half`."""

    quantisations = ("half",)

    def plan(self, model: Predictor, quantise: str | None) -> Write:
        if model.reads == "words":
            raise RunError(f"{model.name} has one table, for which there are better formats")
        kind = np.float16 if quantise else np.float32
        weights = {name: weight.numpy().astype(kind) for name, weight in model.network.state_dict().items()}

        def write(folder: Path) -> None:
            np.savez(folder / "weights.npz", **weights)

        return write
