"""Every notebook runs from top to bottom with FAST = True, is short, and is committed with its outputs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SWITCH = re.compile(r"^FAST = False\b", re.MULTILINE)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_is_a_quickstart():
    assert "1_quickstart.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_short_and_committed_with_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) < 20
    assert sum(len(SWITCH.findall(cell.source)) for cell in code_cells(notebook)) == 1
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks`: the cells were not executed once, in order"
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    run_fast(path)


def readme_python() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_readme_is_complete_and_its_links_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "GAP" not in text
    for block in readme_python():
        compile(block, "README.md", "exec")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target


def test_readme_code_runs(capsys):
    simulation, attention = readme_python()
    exec(simulation, {"__name__": "readme"})
    assert "ok  Euler step included" in capsys.readouterr().out
    exec(attention, names := {"__name__": "readme"})
    assert abs(names["tail"] - names["out"][:, :, 4000:]).max() < 1e-4  # "the same rows again"
    assert names["text"].shape == (1, 14 + 20)


def run_fast(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in code_cells(notebook):
        cell.source, flipped = SWITCH.subn("FAST = True", cell.source)
        if flipped:
            break
    else:
        pytest.fail(f"{path.name} has no line FAST = False")
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
