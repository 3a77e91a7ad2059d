"""The page on converted encoders, on the tiny untrained teacher."""

from __future__ import annotations

import pytest

from benchmarks import conversion, pages
from experiments.conversion import ROWS, Config


def test_the_full_run_has_every_row_on_three_seeds():
    assert conversion.FULL.rows == tuple(ROWS)
    assert conversion.FULL.n_seeds >= 3


def test_the_page_is_written_from_finished_rows(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    sizes = {"n_fit": 64, "n_held_out": 32, "n_steps": 4, "n_windows": 8, "n_held_out_windows": 4, "window": 48, "n_window_steps": 2}
    tiny = Config(smoke=True, rows=("teacher", "uniform", "proposal"), n_seeds=2, **sizes)
    monkeypatch.setattr(conversion, "FULL", tiny)
    monkeypatch.setattr(conversion, "EVIDENCE", str(tmp_path / "evidence"))
    monkeypatch.setattr(pages, "HERE", tmp_path)
    monkeypatch.setattr("sys.argv", ["conversion", "proposal"])
    assert conversion.main() == 0
    assert not (tmp_path / "CONVERSION.md").exists()
    monkeypatch.setattr("sys.argv", ["conversion"])
    assert conversion.main() == 0
    page = (tmp_path / "CONVERSION.md").read_text()
    assert "| proposal |" in page
    assert "at least 94" in page
    assert (tmp_path / "images/conversion.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_row_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["conversion", "hedgehogs"])
    assert conversion.main() == 2
    assert "unknown row" in capsys.readouterr().err
