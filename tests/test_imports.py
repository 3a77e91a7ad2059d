"""The direction of imports: particles <- attention <- experiments -> theory, and experiments -> particles."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "particles": set(),
    "theory": set(),
    "attention": {"particles"},
    "experiments": {"particles", "attention", "theory"},
}


def imported_packages(path: Path) -> set[str]:
    """The project's packages that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, f"{path} imports from outside its package by dots"
    return {name.split(".")[0] for name in names} & set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_direction(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = imported_packages(path) - MAY_IMPORT[package] - {package}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_the_check_sees_a_wrong_import(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from theory.spectral import x\n")
    assert imported_packages(wrong) == {"theory"}


@pytest.mark.parametrize("package", ["particles", "theory"])
def test_import_loads_neither_torch_nor_sklearn(package):
    code = f"import {package}, sys; print(sorted({{'torch', 'sklearn', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists():
    import particles

    for name in particles.__all__:
        assert getattr(particles, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = particles.no_such_name


def test_attention_loads_transformers_only_when_asked():
    code = (
        "import attention, sys; before = 'transformers' in sys.modules; import attention.conversion; "
        "from attention import convert, distil; print(before, callable(convert), callable(distil), 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False True True True"


def test_every_public_name_of_attention_exists():
    pytest.importorskip("transformers")
    import attention

    for name in attention.__all__:
        assert getattr(attention, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        attention.nothing  # noqa: B018
