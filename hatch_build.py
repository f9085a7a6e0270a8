"""Builds the native library with the wheel or the editable install, and brings a compiler where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

sys.path.insert(0, str(Path(__file__).parent / "tools"))
import build_native


class NativeBuildHook(BuildHookInterface[Any]):
    """Compiles `engines/native` into the source tree, from where the wheel takes it."""

    def dependencies(self) -> list[str]:
        """The compiler that pip installs for the build, where the system has none and the library is not built yet."""
        return [] if build_native.is_built() or build_native.find_compiler() else ["ziglang>=0.13,<0.17"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel: any Python 3, this platform only."""
        made = build_native.build()
        build_data["artifacts"].append(made.relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{next(sys_tags()).platform}"
