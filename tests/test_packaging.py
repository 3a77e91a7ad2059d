"""The built wheel holds the four packages and their type markers, nothing else, installs, and gives the command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"particles", "attention", "theory", "experiments"}


def call(*arguments: object, **options: object) -> str:
    done = subprocess.run([str(item) for item in arguments], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (file,) = folder.glob("kernelgas-*.whl")
    return file


def test_wheel_holds_the_four_packages_and_their_markers(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    expected = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == expected


def test_wheel_metadata_has_the_licence_the_command_and_the_extras(wheel):
    archive = zipfile.ZipFile(wheel)
    info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
    metadata = archive.read(f"{info}/METADATA").decode()
    assert "License-Expression: BSD-3-Clause" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert all(f"Provides-Extra: {extra}" in metadata for extra in ("notebook", "bench", "test", "lint"))
    assert "kernelgas = experiments.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_wheel_installs_and_runs_outside_the_checkout(wheel, tmp_path):
    target = tmp_path / "site"
    call(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        target,
        wheel,
    )
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r}); import particles, attention, theory, experiments; "
        f"assert all(m.__file__.startswith({str(target)!r}) for m in (particles, attention, theory, experiments)); "
        "from experiments.cli import main; sys.exit(main(['list']))"
    )
    assert "kernel_learning" in call(sys.executable, "-I", "-c", code, cwd=tmp_path)
