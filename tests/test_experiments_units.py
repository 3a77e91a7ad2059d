"""Files of finished units: nothing is lost, mixed, or overwritten, and what is read back is what was written."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import units
from experiments.sweep import run
from tests import planted_experiment as planted


@pytest.fixture
def config():
    return planted.Config(rows=("a", "b"), n_seeds=2)


def test_numbers_arrays_and_flags_come_back_bit_for_bit(tmp_path, config):
    whole = run(planted, config, results=str(tmp_path))
    again = run(planted, config, results=str(tmp_path))
    assert again.identical(whole)
    assert whole["accuracy"].dims == ("row", "seed")
    assert whole["curve"].dims == ("row", "seed", "epoch")
    assert np.isnan(whole["curve"].sel(seed=0)[:, 3]).all()  # a shorter array
    direct = planted.measure(config, {"row": "b", "seed": 1})
    stored = whole.sel(row="b", seed=1)
    assert float(stored["accuracy"]) == direct["accuracy"]
    assert np.array_equal(stored["correct"], direct["correct"])
    assert np.array_equal(stored["curve"], direct["curve"])
    assert np.isnan(stored["empty"])


def test_a_line_cut_short_is_measured_again_and_no_other(tmp_path, config, monkeypatch):
    whole = run(planted, config, results=str(tmp_path))
    (path,) = tmp_path.iterdir()
    lines = path.read_text().splitlines()
    assert len(lines) == 5
    path.write_text("\n".join(lines[:3]) + "\n" + lines[3][:50])
    calls, measure = [], planted.measure
    monkeypatch.setattr(planted, "measure", lambda config, unit: calls.append(unit) or measure(config, unit))
    assert run(planted, config, results=str(tmp_path)).drop_attrs().identical(whole.drop_attrs())
    assert calls == [{"row": "b", "seed": 0}, {"row": "b", "seed": 1}]
    run(planted, config, results=str(tmp_path))
    assert len(calls) == 2


def test_other_settings_have_another_file_and_other_seeds_the_same(tmp_path, config):
    run(planted, config, results=str(tmp_path))
    more = run(planted, dataclasses.replace(config, n_seeds=3), results=str(tmp_path))
    assert more.attrs["finished"] == 6
    other = run(planted, dataclasses.replace(config, lam=0.2), results=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    assert (other["accuracy"] != more["accuracy"].sel(seed=[0, 1])).all()


def test_a_file_of_other_settings_is_refused(tmp_path, config):
    run(planted, config, results=str(tmp_path))
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"lam": 0.1', '"lam": 0.3', 1))
    with pytest.raises(ValueError, match="results must be a folder whose planted"):
        run(planted, config, results=str(tmp_path))
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="does not begin with the header"):
        run(planted, config, results=str(tmp_path))


def test_every_line_says_when_and_on_what_it_was_made(tmp_path, config):
    run(planted, config, results=str(tmp_path))
    (path,) = tmp_path.iterdir()
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header["settings"] == {"lam": 0.1}
    assert path.name == f"planted_experiment-{header['hash']}.jsonl"
    assert {"date", "seconds", "processor", "python", "torch", "commit"} <= set(lines[0]["made"])
    assert "NaN" not in path.read_text()  # strict JSON


def test_data_of_two_contents_are_not_mixed(config):
    records = [
        units.record({"row": "a", "seed": seed}, {"accuracy": 1.0, "data_sha256": digest}, 0.0) for seed, digest in enumerate(("x", "y"))
    ]
    with pytest.raises(ValueError, match="two contents of 'a': sha256 x and y"):
        units.gather(planted, records)
    units.gather(planted, records[:1])


def test_arrays_need_their_dimensions_and_units_the_same_coordinates():
    first = units.record({"row": "a", "seed": 0}, {"strange": np.zeros(2)}, 0.0)
    with pytest.raises(ValueError, match="strange must have the dimensions"):
        units.gather(planted, [first])
    with pytest.raises(ValueError, match="same coordinates"):
        units.gather(planted, [first, units.record({"row": "a"}, {}, 0.0)])


def test_missing_units_are_nan_and_counted(config):
    records = [units.record({"row": "a", "seed": 0}, {"accuracy": 1.0}, 0.0)]
    gathered = units.gather(planted, records, list(planted.units(config)), {"lam": 0.1})
    assert gathered.attrs["planned"] == 4
    assert gathered.attrs["finished"] == 1
    assert int(gathered["accuracy"].isnull().sum()) == 3
    assert json.loads(gathered.attrs["config"])["lam"] == 0.1


def test_two_writers_that_begin_a_file_at_once_lose_nothing(tmp_path, config):
    """Both find no file, so both write the header."""
    store = units.Store(tmp_path, "planted_experiment", units.settings(planted, config))
    records = [units.record(unit, planted.measure(config, unit), 1.0) for unit in list(planted.units(config))[:3]]
    store.append(records[0])
    first = store.path.read_bytes()
    store.path.unlink()
    store.append(records[1])
    store.path.write_bytes(first + store.path.read_bytes())
    store.append(records[2])
    assert list(store.finished()) == [units.key(record.unit) for record in records]


@pytest.mark.slow
def test_processes_that_write_one_file_tear_no_line(tmp_path, config):
    code = (
        "import sys; import numpy as np; from experiments import units; store = units.Store(sys.argv[1], 'x', {}); k = sys.argv[2]\n"
        "for n in range(200): store.append(units.record({'row': k, 'seed': n}, {'a': np.full(3000, n / 7)}, 1.0))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), k], cwd=Path(__file__).parent.parent) for k in "ab"]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert len(units.Store(tmp_path, "x", {}).finished()) == 400
