"""Efficiency: exponents and crossovers on planted times, units, one measured unit, tables and figures from planted Datasets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray as xr

from experiments import efficiency, efficiency_tables, resources
from experiments.efficiency import PRESETS, ROWS, Config
from experiments.efficiency_tables import crossover, exponent, section
from experiments.units import gather, record

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)


def _planted(power: dict[str, float], n_seeds: int = 3):
    """Times c N^power with 0.2 % noise in every mode, memory proportional to them."""
    rng, config = np.random.default_rng(0), Config(lengths=LENGTHS, n_seeds=n_seeds)
    records = []
    for unit in efficiency.units(config):
        base = np.array([1e-5 * unit["length"] ** power.get(name, 1.0) for name in ROWS])
        base[[name not in efficiency.rows(config, unit["mode"], unit["length"]) for name in ROWS]] = np.nan
        times = base[:, None] * np.exp(0.002 * rng.standard_normal((len(ROWS), 4)))
        records.append(record(unit, {"times": np.sort(times, 1), "memory": 1e3 * base}, 1.0))
    return gather(efficiency, records)


def test_exponent_finds_the_planted_power_and_its_interval_holds_it() -> None:
    rng, inside = np.random.default_rng(0), 0
    n = np.array(LENGTHS, float)
    for _ in range(200):
        values = n[:, None] ** 1.3 * np.exp(0.05 * rng.standard_normal((6, 3)))
        found = exponent(n, values)
        inside += found.low <= 1.3 <= found.high
    assert 180 <= inside <= 199  # 95 % of 200, within 3 standard errors
    assert abs(found.value - 1.3) < 0.1


def test_exponent_sees_the_upper_half_alone_and_says_when_it_cannot_know() -> None:
    n = np.array(LENGTHS, float)
    values = np.where(n < 2000, 1.0, n / 2000)[:, None]
    assert exponent(n, values).value == pytest.approx(1.0)
    assert np.isnan(exponent(n, np.full((6, 2), np.nan)).value)
    assert np.isinf(exponent(n[:3], values[3:]).high)  # two points
    with pytest.raises(ValueError, match="values must be"):
        exponent(n, values[:3])


def test_crossover_is_where_the_ratio_passes_one_for_good() -> None:
    n = np.array(LENGTHS, float)
    assert crossover(n, n, n**2 / 1000) == pytest.approx(1000)
    assert crossover(n, n / 1e9, n) == 0
    assert np.isinf(crossover(n, n**2, n))
    assert np.isnan(crossover(n, np.full(6, np.nan), n))


def test_a_row_that_was_measured_up_to_less_says_up_to_where() -> None:
    lengths = np.array([256, 1024, 4096, 16384])
    seconds = np.stack([lengths**2.0, np.where(lengths < 16384, lengths**2.5, np.nan)])[None, ..., None]
    values = (("mode", "row", "length", "seed"), seconds)
    coords = {"mode": ["training"], "row": ["softmax", "softmax, matrix"], "length": lengths, "seed": [0]}
    ds = xr.Dataset({"seconds": values, "memory": values}, coords, {"finished": 1, "planned": 1})
    mode = efficiency_tables._modes(ds)["training"]
    assert [row[-1] for row in efficiency_tables._mode_table(mode, "training").rows] == ["", "not up to 4096"]


def test_units_have_every_mode_and_length_once_a_seed() -> None:
    found = list(efficiency.units(PRESETS["cpu"]))
    assert len(found) == len({tuple(unit.values()) for unit in found}) == 5 * 7 * 3
    assert {unit["seed"] for unit in found[:35]} == {0}
    assert "soft" not in efficiency.rows(PRESETS["cpu"], "inference causal", 256)
    assert "softmax, matrix" not in efficiency.rows(PRESETS["cpu"], "training", 8192)


@pytest.mark.parametrize("mode", ["training", "inference causal", "decoding"])
def test_a_measured_unit_has_times_and_memory_of_its_rows_only(mode: str) -> None:
    config = dataclasses.replace(PRESETS["smoke"], n_rounds=1)
    found = efficiency.measure(config, {"mode": mode, "length": 64, "seed": 0})
    wanted = np.array([name in efficiency.rows(config, mode, 64) for name in ROWS])
    assert np.array_equal(np.isfinite(found["times"][:, 0]), wanted)
    assert np.array_equal(np.isfinite(found["memory"]), wanted)
    assert (np.diff(found["times"][wanted], axis=1) >= 0).all()


def test_what_decoding_keeps_grows_with_length_for_softmax_alone() -> None:
    config = dataclasses.replace(PRESETS["smoke"], n_rounds=1)
    short, long = (efficiency.measure(config, {"mode": "decoding", "length": n, "seed": 0})["memory"] for n in (32, 128))
    names = list(ROWS)
    assert long[names.index("softmax")] > 3 * short[names.index("softmax")]
    assert long[names.index("performer")] == short[names.index("performer")]


def test_section_tells_linear_from_quadratic_and_flags_planted_growth() -> None:
    found = section(_planted({"softmax": 2.0, "softmax, matrix": 2.0, "rfa": 1.6}))
    text = str(found)
    line = next(line for line in found.verdicts if line.startswith("training: "))
    assert "SDPA grows with exponent 2.0" in line
    assert "not shown for rfa 1.6" in line
    assert "linear" not in line.partition("not shown")[2].split(";")[0]
    assert "Flexformer's efficiency table" in text
    assert "21.2" in text


def test_section_and_figures_of_a_few_units_do_not_invent_the_rest() -> None:
    ds = _planted({"softmax": 2.0}, n_seeds=1).isel(length=slice(0, 2))
    ds["times"][0, 1] = ds["seconds"][0, 1] = np.nan
    assert "too few lengths or seeds for intervals of exponents" in section(ds).verdicts[0]
    figures = efficiency.figures(ds)
    assert set(figures) == {"seconds.png", "memory.png"}
    assert len(figures["seconds.png"].axes) == 6


def test_estimates_grow_with_length_and_bad_settings_are_named() -> None:
    config = PRESETS["cpu"]
    first, last = (efficiency.estimate(config, {"mode": "training", "length": n, "seed": 0}) for n in (256, 16384))
    assert last[0] > 10 * first[0]
    assert last[1] > first[1]
    for change, message in (
        ({"modes": ("sleeping",)}, "modes must be some of"),
        ({"lengths": ()}, "lengths must be"),
        ({"dim": 0}, "dim must be"),
    ):
        with pytest.raises(ValueError, match=message):
            Config(**change)
    with pytest.raises(ValueError, match="device must be one that is here, got 'cuda:7'"):
        efficiency.measure(dataclasses.replace(PRESETS["smoke"], device="cuda:7"), {"mode": "training", "length": 8, "seed": 0})


def test_added_memory_sees_an_allocation_and_processor_time_does_not_sleep() -> None:
    import time

    added = resources.added_memory(lambda: np.ones(2**22))
    assert added is None or 31 < added < 34
    assert resources.seconds(lambda: time.sleep(0.05)) < 0.04


@pytest.mark.slow
def test_the_smoke_preset_runs_whole_and_is_kept(tmp_path) -> None:
    ds = efficiency.run(PRESETS["smoke"], results=str(tmp_path), progress=False)
    assert ds.attrs["failed"] == "{}"
    assert len(section(ds).tables) == 6
    assert "batch 16" in efficiency.rehearse(PRESETS["paper"])
