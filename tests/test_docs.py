"""The documentation: every public name is in the reference, every row of papers.md leads to code and test, examples run, it builds."""

from __future__ import annotations

import ast
import datetime
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from experiments import cli, report

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if not {"_build", "notebooks"} & set(path.relative_to(DOCS).parts))
MODULES = [
    "particles",
    "particles.plots",
    "particles.viewer",
    "attention",
    "attention.plots",
    "theory.convergence",
    "theory.dynamics",
    "theory.ensembles",
    "theory.equilibrium",
    "theory.free_energy",
    "theory.ground_states",
    "theory.large_deviations",
    "theory.lattices",
    "theory.mean_field",
    "theory.plots",
    "theory.report",
    "theory.spectral",
    "experiments.plots",
]


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def listed(page: str) -> dict[str, list[str]]:
    """What the `public` directives of a page of the reference document: {module: names}, no names for all of the module's."""
    found: dict[str, list[str]] = {}
    for module, names in re.findall(r"^\.\. public:: (\S+)\n((?:\n|   .*\n)*)", page, re.MULTILINE):
        found.setdefault(module, []).extend(names.split() or ["*"])
    return found


@cache
def reference() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in (DOCS / "api").glob("*.md"):
        for module, names in listed(text(path)).items():
            found.setdefault(module, []).extend(names)
    return found


def resolve(name: str) -> Any:
    """The object of a dotted name: the longest module in it, then attributes."""
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            item: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            item = getattr(item, part)
        return item
    raise AssertionError(f"{name} is in no module")


@cache
def test_names(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(text(path))) if isinstance(node, ast.FunctionDef)}


test_names.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    """Classes and functions under a `public` directive; constants by name on a page."""
    names, found = importlib.import_module(module), reference().get(module, [])
    assert found, f"docs/api has no `.. public:: {module}`"
    if "*" in found:
        return
    constants = set(re.findall(r"`(\w+)`", "".join(text(path) for path in (DOCS / "api").glob("*.md"))))
    missing = [name for name in names.__all__ if name not in found and name not in constants]
    assert not missing, f"add to docs/api: {module} {missing}"
    assert len(found) == len(set(found))


def test_every_name_of_the_reference_exists():
    for module, names in reference().items():
        for name in names:
            if name != "*":
                assert resolve(f"{module}.{name}") is not None, (module, name)


def test_names_of_theory_itself_are_explained_where_they_are_made():
    import theory

    links = re.findall(r"\[`(\w+)`\]\(#(theory\.[\w.]+)\)", text(DOCS / "api" / "theory.md"))
    assert {name for name, _ in links} == {name for name in theory.__all__ if callable(getattr(theory, name))}
    for name, target in links:
        assert resolve(target) is getattr(theory, name)


def test_every_experiment_is_in_the_reference():
    assert {f"{name}.{part}" for name in cli.EXPERIMENTS for part in ("Config", "run")} <= set(reference()["experiments"])


def test_the_check_sees_a_missing_name():
    assert listed("```{eval-rst}\n.. public:: particles\n\n   Riesz Ball\n   Box\n```\n") == {"particles": ["Riesz", "Ball", "Box"]}
    assert listed("```{eval-rst}\n.. public:: theory.report\n```\n") == {"theory.report": ["*"]}


ROWS = [line for line in text(DOCS / "papers.md").splitlines() if line.startswith("| ") and "{py:obj}" in line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_row_of_the_papers_leads_to_code_and_test(row):
    functions, tests = re.findall(r"{py:obj}`([\w.]+)`", row), re.findall(r"`(tests/\w+\.py)::(\w+)`", row)
    assert functions
    assert tests
    assert all(callable(resolve(name)) for name in functions)
    for path, name in tests:
        assert name in test_names(ROOT / path), f"{path} has no {name}"


def test_every_paper_has_rows():
    assert len(ROWS) > 35
    tables = text(DOCS / "papers.md").split("\n## ")[1:]
    numbers = [re.findall(r"\d{4}\.\d{5}", table.splitlines()[0]) for table in tables]
    assert numbers == [["2607.23869"], ["2606.27748"], ["2110.11945", "2207.03341"]]
    assert all("{py:obj}" in table for table in tables)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_of_a_page_exist(page):
    """`docs/notebooks` is a copy of the folder `notebooks`, made by the build."""
    for target in re.findall(r"\]\(([^)#:\s]+)\)", text(page)) + re.findall(r"{image} (\S+)", text(page)):
        path = Path(os.path.normpath(page.parent / target))
        if path.is_relative_to(DOCS / "notebooks"):
            path = ROOT / path.relative_to(DOCS)
        assert path.exists(), f"{page.name}: {target}"


def test_every_page_is_reached_from_the_index():
    entries = set(re.findall(r"^([\w/]+)$", text(DOCS / "index.md"), re.MULTILINE))
    assert {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES} - {"index"} <= entries


def test_notebooks_are_in_the_gallery_with_question_and_picture():
    sys.path.insert(0, str(DOCS))
    try:
        gallery = importlib.import_module("gallery")
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed: the extra docs has it")
    finally:
        sys.path.remove(str(DOCS))
    assert re.search(r":glob:\n\nnotebooks/\*\n", text(DOCS / "gallery.md"))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        card = gallery.card(path)
        assert "data:image/png" in card, path.name
        title, question = re.search(r"<strong>(.*)</strong><span>(.*)</span>", card).groups()
        assert len(title) > 10
        assert len(question) > 20
        assert "#" not in title


CODE = [page for page in PAGES if "```python" in text(page)]


@pytest.mark.parametrize("page", CODE, ids=lambda path: str(path.relative_to(DOCS)))
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    if "transformers" in text(page):
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", text(page), re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


def test_an_experiment_of_your_own_runs(tmp_path, monkeypatch, capsys):
    """The guide's first block is a module, its second one a script that imports it, its third one reads what a command writes."""
    module, script, reading = re.findall(r"```{code-block} python\n(.*?)```", text(DOCS / "guides/experiments.md"), re.DOTALL)
    (tmp_path / "walks.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(script.replace("workers=2", "workers=0"), names)
    assert names["ds"]["distance"].mean("seed").sizes == {"row": 2}
    written = names["ds"]["distance"].mean("seed").sel(row="wide").item()
    report.store(names["ds"], report.new_folder("walks", now=datetime.datetime(2026, 1, 2, 3, 4, 5)) / "walks.zarr")
    capsys.readouterr()
    exec(reading, names)
    assert capsys.readouterr().out == f"{written}\n"
    assert len(list((tmp_path / "results/units").glob("walks-*.jsonl"))) == 1


@pytest.mark.slow
def test_documentation_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path):
    for needed in ("sphinx", "myst_nb", "furo", "sphinx_copybutton", "sphinx-mathjax-offline"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: the extra docs has it")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", tmp_path / "trees", "-b", "html", DOCS, tmp_path / "html"]
    offline = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(list(map(str, command)), cwd=tmp_path, env=os.environ | offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    for page in (tmp_path / "html").rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?://[^\"]+)\"", text(page))
        assert not loaded, f"{page.name} loads {loaded}"
    assert 'class="math' in text(tmp_path / "html" / "concepts.html")
    assert (tmp_path / "html" / "_static" / "tex-svg-full.js").exists()
