"""The page on kernels inside attention: its parts, its claims and its figures, on tiny runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import kernel_shape
from experiments import matching, recall
from experiments.matching_methods import METHODS, UNDIVIDED


@pytest.fixture(scope="module")
def found():
    """All parts with a few rows each."""
    rows = {
        "matching": ("softmax", "fixed", "end to end", "align", "align, unfreeze", "known rule"),
        "undivided": tuple(UNDIVIDED),
        "recall": ("softmax", "flexformer, literal"),
    }
    configs = {
        name: replace(
            config,
            **kernel_shape.TINY,
            methods=rows.get(name, rows["matching"]),
            **({"n_warm": 2} if name == "recall" else {"tasks": config.tasks[:2]}),
        )
        for name, config in kernel_shape.FULL.items()
    }
    return kernel_shape.results(configs, "")


def test_the_full_page_has_every_row_and_task_on_five_seeds():
    full = kernel_shape.FULL
    assert (*full["matching"].methods, *full["undivided"].methods) == tuple(METHODS)
    assert set(full["matching"].tasks) == set(matching.RULES)
    assert full["recall"].methods == tuple(recall.METHODS)
    assert all(config.n_seeds >= 5 for config in full.values())


def test_the_page_states_claims_and_shows_its_figures(found):
    page = kernel_shape.text(found)
    assert page.count("**Claims**") == 5
    assert "| phase: end to end |" in page
    assert "| recall: flexformer, literal |" in page
    assert all(f"images/{name}" in page for name in kernel_shape.FIGURES)
    images = kernel_shape.pictures(found)
    assert set(images) == set(kernel_shape.FIGURES)
    assert all(image.startswith(b"\x89PNG") for image in images.values())


def test_an_unknown_part_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["kernel_shape", "matchings"])
    assert kernel_shape.main() == 2
    assert "unknown part" in capsys.readouterr().err
