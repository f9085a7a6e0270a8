"""A wheel built from the tree installs into an empty environment and works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_it_carries_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"clearhead"}
    assert "clearhead/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)],
        check=True,
        capture_output=True,
    )
    # The dependencies are those of this environment; the package itself comes from the wheel.
    site = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True)
    dependencies = Path(site.strip()) / "zz_dependencies.pth"
    dependencies.write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    code = "import clearhead; print(clearhead.__file__)"
    where = subprocess.check_output([python, "-c", code], text=True, env=clean, cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(place)
    said = subprocess.check_output([place / "bin" / "clearhead", "demo", "--steps"], text=True, env=clean, cwd=tmp_path)
    assert '"it" looked mostly at "animal"' in said
    said = subprocess.check_output(
        [place / "bin" / "clearhead", "data", "check", "builtin", "--kind", "pairs"], text=True, env=clean, cwd=tmp_path
    )
    assert "clearhead train translate" in said
