"""A model directory of CTranslate2, for translators and language models."""

from __future__ import annotations

from pathlib import Path

from clearhead.engines import ct2_export
from clearhead.errors import RunError
from clearhead.interop.exporting import EXPORTS, ExportFormat, Write
from clearhead.tasks.base.predictor import Predictor


@EXPORTS.register("ct2")
class CTranslate2(ExportFormat):
    """model.bin, config.json, the vocabulary, and the tokenizer beside them. The library quantises when it loads."""

    def plan(self, model: Predictor, quantise: str | None) -> Write:
        ct2_export.library()
        if reasons := ct2_export.unsupported_features(model.network):
            raise RunError(f"{model.name}: CTranslate2 cannot express {reasons[0]}; export to onnx")
        own = model.tokenizer
        names = [own.token(index) for index in range(len(own))]

        def write(folder: Path) -> None:
            ct2_export.export(model.network, names, folder, start=own.start, stop=own.stop)  # type: ignore[arg-type]
            own.save(folder / "tokenizer.json")

        return write
