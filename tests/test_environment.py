"""environment.yml repeats the lower bounds of pyproject.toml under conda-forge's names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {"torch": "pytorch", "build": "python-build"}
NOT_ON_CONDA_FORGE = {"fmm3dpy", "finufft"}  # optional, each with a slower way that needs nothing
EXTRAS = ("notebook", "test")


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def bounds(requirements: list[str]) -> dict[str, str]:
    pairs = [re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", item).groups() for item in requirements]
    assert len({name for name, _ in pairs}) == len(set(pairs))  # the same package has the same bound everywhere
    return dict(pairs)


def test_environment_repeats_the_lower_bounds():
    project, environment = pyproject(), yaml.safe_load((ROOT / "environment.yml").read_text())
    wanted = project["dependencies"] + [item for extra in EXTRAS for item in project["optional-dependencies"][extra]]
    expected = {CONDA_NAMES.get(name, name): bound for name, bound in bounds(wanted).items() if name not in NOT_ON_CONDA_FORGE}
    plain = [item for item in environment["dependencies"] if isinstance(item, str) and item != "pip"]
    assert bounds(plain) == expected | {"python": project["requires-python"].removeprefix(">=")}


def test_environment_channels_and_its_only_pip_line():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert [item for item in environment["dependencies"] if isinstance(item, dict)] == [{"pip": ["-e ."]}]


def test_constraints_pin_what_pyproject_allows():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines)
    project = pyproject()
    wanted = bounds(project["dependencies"] + [item for items in project["optional-dependencies"].values() for item in items])
    assert pins["torch"] == "2.13.0"
    assert "uv" in pins

    def numbers(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", version))

    too_old = {name: pins.get(name) for name, bound in wanted.items() if name not in pins or numbers(pins[name]) < numbers(bound)}
    assert not too_old, f"constraints.txt misses or undercuts {too_old}"
