"""Long-range tasks: units, sizes, one trained unit a task, tables and pictures from planted results."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

from experiments import long_range
from experiments import long_range_tasks as tasks
from experiments.linear_plan import best_rates, row_and_rate
from experiments.linear_rows import PAIRS, ROWS, pairs_of
from experiments.linear_tables import compared, main_rows
from experiments.long_range_tables import GAIN

SMOKE = long_range.PRESETS["smoke"]


def planted(gain: float = 0.0, *, n_seeds: int = 3, n: int = 400, rows: tuple[str, ...] = tuple(ROWS)) -> xr.Dataset:
    """Results in which every row has half of the examples right, and flexformer-nonstationary `gain` more."""
    rng, dims, shape = np.random.default_rng(0), ("task", "row", "seed"), (2, len(rows), n_seeds)
    share = np.full((1, len(rows), 1, 1), 0.5)
    share[0, rows.index("flexformer-nonstationary")] += gain
    correct = (rng.random((*shape, n)) < share).astype(np.float32)
    numbers = {
        "chance": 0.5,
        "log_loss": 0.7,
        "training_seconds": 9.0,
        "n_parameters": 100.0,
        "holdout_before": np.nan,
        "holdout_after": 0.1,
    }
    return xr.Dataset(
        {
            "correct": ((*dims, "example"), correct),
            "accuracy": (dims, correct.mean(-1).astype(float)),
            "validation_last": (dims, np.broadcast_to(share[..., 0], shape) + 0.001 * rng.random(shape)),
            "nonpositive": ((*dims, "epoch"), np.full((*shape, 2), np.nan)),
            **{name: (dims, np.full(shape, value)) for name, value in numbers.items()},
        },
        {"task": ["listops", "image"], "row": list(rows), "seed": range(n_seeds)},
        {"config": json.dumps({"size": "cpu"}), "planned": 126, "finished": 120},
    )


def test_every_row_of_every_task_and_seed_is_one_unit_and_settings_of_the_plan_are_no_settings_of_a_unit() -> None:
    config = dataclasses.replace(SMOKE, parts=("rates", "main"), rates=(0.01, 0.02))
    units = list(long_range.units(config))
    assert len({tuple(unit.values()) for unit in units}) == len(units) == 2 * 4 * 2 + 2 * 4 * 2
    assert {unit["seed"] for unit in units if ", lr " in unit["row"]} == {config.tuning_seed}
    assert {"tasks", "parts", "rows", "seed", "n_seeds", "data"} <= set(long_range.EXTENT)


def test_rows_of_a_seed_start_from_the_same_weights_and_a_narrow_start_is_half_as_wide() -> None:
    size = tasks.size("smoke", "listops")
    data = tasks.data(size, "")
    models = {name: tasks.model(size, ROWS[name], 3, data) for name in ("softmaxfeat, learned", "softmaxfeat, narrow start", "softmax")}
    wide, narrow = (models[f"softmaxfeat, {name}"].feature_maps[0].omega.detach() for name in ("learned", "narrow start"))
    assert np.allclose(narrow, wide / 2)
    assert np.array_equal(models["softmax"].embedding.weight.detach(), models["softmaxfeat, learned"].embedding.weight.detach())


def test_the_learning_rate_of_a_unit_is_the_one_in_its_name_or_its_familys() -> None:
    lrs = {"listops/softmaxfeat": 0.004}
    for row, expected in (("softmaxfeat, align", 0.004), ("softmax", 0.1), ("softmaxfeat, fixed, lr 0.02", 0.02)):
        found, lr = row_and_rate({"task": "listops", "row": row, "seed": 0}, lrs, 0.1)
        assert lr == expected
        assert found in ROWS.values()


def test_a_unit_is_trained_scored_and_the_same_twice() -> None:
    config, unit = SMOKE, {"task": "listops", "row": "softmaxfeat, align, unfreeze", "seed": 1}
    first, second = (long_range.measure(config, unit) for _ in range(2))
    assert first["correct"].dtype == bool
    assert first["correct"].mean() == pytest.approx(first["accuracy"])
    assert np.isfinite(first["holdout_after"])
    assert first["train_loss"].tolist() == second["train_loss"].tolist()
    assert "ListOps" in first["data"]


def test_wrong_settings_are_refused_before_any_work() -> None:
    for wrong, name in (
        ({"tasks": ("listops", "chess")}, "tasks"),
        ({"tasks": ("text",)}, "tasks"),
        ({"rows": ("softmax", "softmax")}, "rows"),
        ({"lrs": {"listops/none": 0.1}}, "lrs"),
        ({"rates": (0.1,)}, "rates"),
        ({"n_train": 0}, "n_train"),
        ({"lr": -1.0}, "lr"),
    ):
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(SMOKE, **wrong)


def test_our_best_row_and_the_best_baseline_are_chosen_on_validation_data() -> None:
    ds = planted(0.2).sel(task="listops")
    ours, softmax = pairs_of(ds, "validation_last")[0]
    assert (ours, softmax) == ("flexformer-nonstationary", "softmax")
    assert set(pairs_of(ds, "validation_last")[2:]) <= set(PAIRS)
    assert pairs_of(ds.sel(row=["linear"]), "validation_last") == []


@pytest.mark.parametrize(("gain", "shown"), [(0.3, True), (0.0, False)])
def test_a_planted_gain_is_shown_and_none_is_not(gain: float, shown: bool) -> None:
    ds = planted(gain, rows=("softmax", "linear", "flexformer-nonstationary"))  # named: more rows would draw other numbers
    found = compared(ds, GAIN)
    names = [f"{task}: flexformer-nonstationary - softmax" for task in ("listops", "image")]
    p = [float(found["p_corrected"].sel(pair=name)) for name in names]
    assert all(value < 0.05 for value in p) == shown
    assert ("better" in long_range.section(ds).verdicts[0]) == shown


def test_the_section_says_what_ran_and_shows_the_papers_figures() -> None:
    text = str(long_range.section(planted(0.1)))
    assert "37.2" in text
    assert "120 of 126" in long_range.section(planted(0.1)).text


def test_rows_that_compare_learning_rates_stay_out_of_the_table_and_give_the_rates() -> None:
    ds = planted(rows=("softmax", "linear", "flexformer-nonstationary"))
    rated = ds.isel(row=[0, 0]).assign_coords(row=["softmax, lr 0.001", "softmax, lr 0.01"])
    rated["validation_last"] = rated["validation_last"] * 0 + xr.DataArray([0.5, 0.6], dims="row")
    both = xr.concat([ds, rated], "row")
    assert main_rows(both)["row"].values.tolist() == ["softmax", "linear", "flexformer-nonstationary"]
    assert best_rates(both, "validation_last") == {"listops/softmax": 0.01, "image/softmax": 0.01}
    assert "--lrs 'listops/softmax' 0.01" in str(long_range.section(both))


def test_pictures_are_drawn_and_named_in_the_section() -> None:
    ds = planted(0.1)
    drawn = long_range.figures(ds)
    assert set(drawn) == set(long_range.section(ds).pictures)
    assert len(drawn["long_range_differences.png"].axes) == 2


SUBSETS = [
    (("softmax",), 1, {}),  # no pair at all
    (("softmax", "linear"), 2, {}),  # rows that no claim compares
    (("linear", "flexformer-nonstationary"), 1, {}),  # no softmax
    (("softmax", "flexformer-nonstationary"), 1, {"task": 0, "seed": 0}),  # one of everything
    (("softmax", "flexformer-nonstationary"), 2, {"row": 0, "task": 1}),  # a task without its softmax
    (("softmax", "flexformer-nonstationary"), 2, {"task": 1}),  # a task that did not run
]


@pytest.mark.parametrize(("rows", "n_seeds", "missing"), SUBSETS)
def test_any_part_of_the_table_is_told_and_drawn(rows: tuple[str, ...], n_seeds: int, missing: dict[str, int]) -> None:
    full = planted(0.1, n_seeds=n_seeds, rows=("softmax", "linear", "flexformer-nonstationary")).sel(row=list(rows))
    there = xr.ones_like(full["accuracy"], bool)
    there[missing] = not missing
    ds = full.where(there)
    if n_seeds == 1 and missing:
        ds = full.isel(task=[0])
    told, drawn = long_range.section(ds), long_range.figures(ds)
    assert set(drawn) == set(told.pictures)
    assert "nan" not in str(told)
    compares = set(rows) >= {"softmax", "flexformer-nonstationary"} or rows == ("linear", "flexformer-nonstationary")
    assert ("Differences [points]" in str(told)) == ("long_range_differences.png" in drawn) == bool(told.verdicts) == compares


def test_rows_without_a_common_seed_are_not_compared() -> None:
    ds = planted(0.1, n_seeds=2, rows=("softmax", "flexformer-nonstationary"))
    assert compared(ds.where(ds["seed"] == xr.DataArray([0, 1], dims="row")), GAIN) is None
