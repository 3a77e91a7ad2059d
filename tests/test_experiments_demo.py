"""Reports, figures and the demo: run folders are new, stores come back, the page stands alone, words follow the intervals."""

from __future__ import annotations

import datetime
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from experiments import cli, demo, plots, report, sections
from experiments.metrics import Estimate

METHODS = ["particles", "rff"]


def kernel_dataset(accuracy: np.ndarray) -> xr.Dataset:
    """A tiny kernel_learning Dataset: accuracy (method, seed) for one task."""
    rng = np.random.default_rng(0)
    n_seeds = accuracy.shape[1]
    scores = dict.fromkeys(("accuracy", "log_loss", "brier", "seconds"), (("task", "method", "seed"), accuracy[None]))
    return xr.Dataset(
        {
            **scores,
            "radial_density": (("task", "stage", "radius"), rng.random((1, 2, 5))),
            "marginal_density": (("task", "stage", "frequency"), rng.random((1, 2, 5))),
            "gram": (("task", "stage", "row", "column"), np.tile(np.corrcoef(rng.random((6, 9))), (1, 2, 1, 1))),
            "gram_label": (("task", "row"), np.array([[0, 0, 0, 1, 1, 1]])),
        },
        coords={
            "task": ["ring3"],
            "method": METHODS,
            "seed": np.arange(n_seeds),
            "stage": ["start", "learned"],
            "radius": np.arange(5.0),
            "frequency": np.arange(5.0),
        },
        attrs={"experiment": "kernel_learning", "config": json.dumps({"n_seeds": n_seeds}), "facts": {"a": 1}},
    )


# ---- words and tables --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (Estimate(0.2, 0.1, 0.3), "better (+20.0 points, 95 % interval +10.0 to +30.0)"),
        (Estimate(-0.2, -0.3, -0.1), "WORSE (-20.0 points, 95 % interval -30.0 to -10.0)"),
        (Estimate(0.1, -0.1, 0.3), "no difference shown (+10.0 points, 95 % interval -10.0 to +30.0)"),
        (Estimate(0.1, 0.0, 0.2), "no difference shown (+10.0 points, 95 % interval 0.0 to +20.0)"),
        (Estimate(0.1, -math.inf, math.inf), "+10.0 points on one seed, no interval"),
        (Estimate(0.1, 0.1, 0.1), "+10.0 points on every seed, no interval"),
        (Estimate(0.0, 0.0, 0.0), "no difference shown (0.0 points, 95 % interval 0.0 to 0.0)"),
        (Estimate(-0.1, math.nan, math.nan), "-10.0 points on one seed, no interval"),
        (Estimate(-0.0004, -0.1, 0.0004), "no difference shown (0.0 points, 95 % interval -10.0 to 0.0)"),
    ],
)
def test_verdict_follows_the_interval(difference, expected):
    assert report.verdict(difference) == expected


def test_section_compares_by_method_and_seed():
    better = sections.kernel_learning(kernel_dataset(np.array([[0.9, 0.91, 0.89], [0.6, 0.62, 0.61]])))
    sentence = better.verdicts[0]
    assert sentence.startswith("ring3: learned particles against tuned random features: accuracy better (+29.0 points")
    assert "log loss WORSE (-0.290 nats gained" in sentence  # the tiny Dataset has equal numbers for both: a larger loss is worse
    table = better.tables[0]
    assert [row[1] for row in table.rows] == ["90.0 ± 1.0", "61.0 ± 1.0"]
    none = sections.kernel_learning(kernel_dataset(np.array([[0.6, 0.7, 0.5], [0.62, 0.61, 0.6]])))
    assert "no difference shown" in none.verdicts[0]
    single = sections.kernel_learning(kernel_dataset(np.array([[0.9], [0.6]])))
    assert "on one seed, no interval" in single.verdicts[0]


def test_no_number_is_minus_zero():
    assert sections.spread(xr.DataArray([-0.0004, -0.0002]), digits=3) == "0.000 ± 0.000"
    assert [report.signed(value) for value in (-0.04, 0.0, 0.04, -0.06, 2.0)] == ["0.0", "0.0", "0.0", "-0.1", "+2.0"]
    assert "0.0 points on one seed" in sections.kernel_learning(kernel_dataset(np.array([[0.6], [0.6001]]))).verdicts[0]


def test_table_is_aligned_and_escaped():
    table = report.Table("t", ["name", "x"], [["a<b", "1.0"], ["long name", "10.25"]], ["note & more"])
    lines = str(table).splitlines()
    assert lines[3:5] == ["a<b          1.0", "long name  10.25"]
    assert "a&lt;b" in table.html()
    assert "note &amp; more" in table.html()


# ---- folders and stores ------------------------------------------------------------------------------------------------------------------


def test_run_folders_are_never_reused(tmp_path):
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    folders = [report.new_folder("demo", tmp_path, now) for _ in range(3)]
    assert [folder.name for folder in folders] == ["2026-01-02T030405Z", "2026-01-02T030405Z-2", "2026-01-02T030405Z-3"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("read", [xr.open_zarr, report.load])
def test_a_store_is_read_with_its_names_by_xarray_alone_and_without_warnings(tmp_path, read):
    dataset = kernel_dataset(np.array([[0.9, 0.8], [0.6, 0.7]]))
    loaded = read(report.store(dataset, tmp_path / "a.zarr"))
    xr.testing.assert_equal(loaded, dataset)
    assert list(loaded["method"].values) == METHODS
    assert loaded["accuracy"].sel({"method": METHODS[0]}).mean("seed").sizes == {"task": dataset.sizes["task"]}
    assert json.loads(loaded.attrs["facts"]) == {"a": 1}


def test_a_store_of_numbers_for_names_is_read_with_its_names(tmp_path):
    old = xr.Dataset({"x": ("row", [1.0, 2.0])}, {"row": [0, 1]}, {"names": json.dumps({"row": ["softmax", "linear"]})})
    old.to_zarr(tmp_path / "old.zarr", consolidated=False)
    assert float(report.load(tmp_path / "old.zarr")["x"].sel(row="linear")) == 2.0


def test_store_never_overwrites_and_refuses_text(tmp_path):
    dataset = xr.Dataset({"x": ("row", [1.0])})
    report.store(dataset, tmp_path / "a.zarr")
    with pytest.raises(FileExistsError, match="never overwritten"):
        report.store(xr.Dataset({"x": ("row", [2.0])}), tmp_path / "a.zarr")
    assert float(report.load(tmp_path / "a.zarr")["x"][0]) == 1.0
    with pytest.raises(ValueError, match="hold text"):
        report.store(xr.Dataset({"word": ("row", ["a"])}), tmp_path / "b.zarr")


# ---- figures and page --------------------------------------------------------------------------------------------------------------------


def test_figures_come_from_the_stored_dataset_and_leave_globals_alone(tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    dataset = kernel_dataset(np.array([[0.9, 0.8], [0.6, 0.7]]))
    stored = report.load(report.store(dataset, tmp_path / "a.zarr"))
    drawn = sections.figures("kernel_learning", stored)
    assert set(drawn) == set(sections.kernel_learning(dataset).pictures)
    assert all(report.figure_bytes(figure)[:4] == b"\x89PNG" for figure in drawn.values())
    assert dict(mpl.rcParams) == before


def test_methods_plot_shows_every_seed_in_its_row():
    values = kernel_dataset(np.array([[0.9, 0.8], [0.6, 0.7]]))["accuracy"].sel(task="ring3")
    ax = plots.plot_methods(values)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([line.get_xdata() for line in dots], [[90, 80], [60, 70]])
    assert [label.get_text() for label in ax.get_yticklabels()] == METHODS


def test_page_embeds_its_pictures_and_escapes(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    section = report.Section("T<1>", "one\n\ntwo", [report.Table("t", ["x"], [["1"]])], {"a.png": "a 'quoted' caption"}, ["A & B."])
    page = report.page("title", "lead", [section], tmp_path, config={"path": Path("x")}, commands=["kernelgas demo"])
    assert "data:image/png;base64,iVBORw==" in page
    assert "T&lt;1&gt;" in page
    assert "A &amp; B." in page
    assert not re.search(r"""(src|href)=['"](?!data:)""", page)


# ---- the demo ----------------------------------------------------------------------------------------------------------------------------


def test_demo_finds_bad_data_before_it_computes(tmp_path, capsys):
    results = tmp_path / "results"
    (tmp_path / "empty").mkdir()
    assert cli.main(["demo", "--data", str(tmp_path / "empty"), "--results", str(results)]) == 2
    assert "no data files" in capsys.readouterr().err
    assert not results.exists()
    with pytest.raises(ValueError, match="needs a folder"):
        demo.Config(dataset="sst2")


def test_the_last_part_is_called_after_its_folder(tmp_path):
    assert demo.Config().name == "digits"
    assert demo.Config(data=tmp_path / "films").name == "films"
    assert demo.Config(data=tmp_path, dataset="films").name == "films"


def test_jobs_cover_every_part_task_and_seed():
    jobs = demo._jobs(demo.Config(n_seeds=2, seed=5))
    assert [name for name, _ in jobs].count("classify") == 2
    assert {options["tasks"] for name, options in jobs if name == "kernel_learning"} == {("ring3",), ("xor2",)}
    assert {options["seed"] for name, options in jobs if name == "classify"} == {5, 6}


def test_jobs_of_one_part_are_joined():
    first, second = (kernel_dataset(np.array([[0.9, 0.8], [0.6, 0.7]]) + shift) for shift in (0, 0.05))
    whole = demo.join([first, second.assign_coords(task=["xor2"])])
    assert list(whole["task"].values) == ["ring3", "xor2"]
    assert whole["accuracy"].sel({"task": "xor2", "method": "rff"}).values.tolist() == pytest.approx([0.65, 0.75])
    assert "task" not in whole["radius"].dims


def test_jobs_without_tasks_are_joined_along_the_seed():
    parts = [xr.Dataset({"x": ("seed", [float(k)]), "label": ("row", [0, 1])}, {"seed": [k]}, {"config": "{}"}) for k in (3, 4)]
    whole = demo.join(parts)
    assert whole["x"].sel(seed=4) == 4
    assert whole["label"].dims == ("row",)


@pytest.mark.slow
def test_fast_demo_writes_everything(tmp_path):
    command = [sys.executable, "-m", "experiments", "demo", "--fast", "--n-seeds", "2", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "demo").iterdir()
    assert all(f"({letter})" in done.stdout for letter in "abcd")
    stores = {"gas", "kernel_learning", "film", "matching", "classify"}
    assert {path.stem for path in folder.glob("*.zarr")} == stores
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == len(list(folder.glob("*.png")))
    assert page.count("data:image/gif;base64,") == 1
    assert (folder / "learning.gif").stat().st_size < 1e6
    for name in stores:
        stored = report.load(folder / f"{name}.zarr")
        assert json.loads(stored.attrs["config"])
        assert sections.section(name, stored).title in page.replace("&#x27;", "'")
