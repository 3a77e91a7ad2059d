"""Sweeps: the same bits however they are run, failures named, a worker's death survived; the commands run and sweep."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from experiments import cli, film, launch, outcomes, sentence_classification, sweep, units
from tests import planted_experiment as planted


@pytest.fixture
def importable(monkeypatch):
    """Workers find the planted experiment."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))


@pytest.fixture
def known(monkeypatch):
    """The commands find it too."""
    monkeypatch.setitem(cli.EXPERIMENTS, "planted", "planted")
    monkeypatch.setattr(cli, "experiment", lambda name: planted)
    monkeypatch.setattr(outcomes.sections, "section", lambda name, ds: f"table of {name}")
    monkeypatch.setattr(outcomes.sections, "draw", lambda *_: None)


def test_a_unit_that_fails_is_tried_again_named_and_left_out(capsys, monkeypatch):
    calls, measure = [], planted.measure
    monkeypatch.setattr(planted, "measure", lambda config, unit: calls.append(unit["row"]) or measure(config, unit))
    ds = sweep.run(planted, planted.Config(rows=("a", "bad"), n_seeds=1), retries=2)
    assert calls == ["a", "bad", "bad", "bad"]
    assert json.loads(ds.attrs["failed"]) == {'{"row": "bad", "seed": 0}': "ArithmeticError: planted"}
    assert ds["accuracy"].isnull().values.tolist() == [[False], [True]]
    assert "failed: ArithmeticError: planted (planted_experiment.py, line" in capsys.readouterr().err
    with pytest.raises(sweep.NothingMeasured, match="no unit of planted_experiment could be measured; the first error: ArithmeticError"):
        sweep.run(planted, planted.Config(rows=("bad",)), retries=0)


def test_a_unit_does_not_depend_on_how_many_threads_there_are():
    import torch

    before = torch.get_num_threads()
    seen = []
    planted_measure, planted.measure = planted.measure, lambda config, unit: seen.append(torch.get_num_threads()) or {"accuracy": 1.0}
    try:
        sweep.run(planted, planted.Config(rows=("a",), n_seeds=1))
    finally:
        planted.measure = planted_measure
    assert seen == [1]
    assert torch.get_num_threads() == before


def test_what_is_not_there_is_said_before_any_work(monkeypatch):
    def prepare(config):
        raise FileNotFoundError("place the file")

    monkeypatch.setattr(planted, "prepare", prepare, raising=False)
    monkeypatch.setattr(planted, "measure", lambda *_: pytest.fail("measured"))
    with pytest.raises(FileNotFoundError, match="place the file"):
        sweep.run(planted, planted.Config())


@pytest.mark.parametrize("wrong", [{"workers": -1}, {"retries": -1}])
def test_wrong_numbers_are_named(wrong):
    with pytest.raises(ValueError, match="workers and retries must be at least 0"):
        sweep.run(planted, planted.Config(), **wrong)


def test_tasks_on_a_scheduler_equal_the_serial_result():
    distributed = pytest.importorskip("distributed")
    config = planted.Config(rows=("a", "bad"), n_seeds=2)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as local:
        swept = sweep.run(planted, config, scheduler=local.scheduler_address, retries=1)
    serial = sweep.run(planted, config, retries=0)
    assert swept.drop_attrs().identical(serial.drop_attrs())
    assert len(json.loads(swept.attrs["failed"])) == 2


@pytest.mark.slow
def test_forty_tasks_survive_the_death_of_a_worker_bit_for_bit(tmp_path, importable):
    trap = tmp_path / "died"
    config = planted.Config(trap=str(trap))
    assert len(list(planted.units(config))) == 40
    swept = sweep.run(planted, config, results=str(tmp_path / "units"), workers=2)
    assert trap.exists()
    assert json.loads(swept.attrs["failed"]) == {}
    assert swept.drop_attrs().identical(sweep.run(planted, config).drop_attrs())
    assert sweep.run(planted, config, results=str(tmp_path / "units")).drop_attrs().identical(swept.drop_attrs())


@pytest.mark.slow
def test_a_unit_that_ends_every_worker_is_named_and_the_rest_completes(importable):
    swept = sweep.run(planted, planted.Config(rows=("a", "deadly"), n_seeds=1), workers=2)
    assert "KilledWorker" in json.loads(swept.attrs["failed"])['{"row": "deadly", "seed": 0}']
    assert swept["accuracy"].isnull().values.tolist() == [[False], [True]]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run"], ["sweep", "--workers", "2"]])
def test_ctrl_c_keeps_units_says_so_and_leaves_no_process(tmp_path, command):
    start = [sys.executable, "-m", "experiments", command[0], "recall", *command[1:], "--preset", "smoke", "--n-seeds", "500"]
    loud = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True, "preexec_fn": loud}
    with subprocess.Popen([*start, "--results", str(tmp_path)], cwd=Path(__file__).parent.parent, **pipes) as process:
        for _ in range(1200):
            if any(path.read_text().count("\n") > 3 for path in tmp_path.glob("*.jsonl")):
                break
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "finished units are kept" in said
    assert "Traceback" not in said
    ((_, kept),) = units.saved(tmp_path)["recall"]
    assert kept.attrs["finished"] >= 3
    assert _ends(process.pid, seconds=20)


def _ends(group, seconds):
    """Whether all processes of a group end in time."""
    for _ in range(10 * seconds):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_a_scheduler_that_does_not_answer_is_named():
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match="scheduler must be the address of a running Dask scheduler, as tcp://host:8786, got 'nonsense'"):
        sweep.run(planted, planted.Config(), scheduler="nonsense")


def test_a_scheduler_without_workers_is_said_once(capsys):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as local, distributed.Client(local) as client:
        sweep._say_if_idle(client, "tcp://host:1", patience=0.05)
        assert capsys.readouterr().err == "waiting for workers of tcp://host:1\n"
        local.scale(1)
        sweep._say_if_idle(client, "tcp://host:1")
        assert not capsys.readouterr().err


def test_workers_that_are_ended_unasked_are_no_news(caplog):
    log = sweep.logging.getLogger("distributed.nanny")
    with sweep._unasked_ends():
        log.warning("Worker process still alive after 4.0 seconds, killing")
        log.warning("another")
    log.warning("Worker process still alive later")
    assert [record.getMessage() for record in caplog.records] == ["another", "Worker process still alive later"]


@pytest.mark.slow
def test_a_scheduler_started_apart_serves_the_same_sweep(tmp_path, importable):
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--nworkers", "2", "--no-dashboard"]
    processes = [subprocess.Popen([*start, "--scheduler-file", str(file)], stderr=subprocess.DEVNULL) for start in (dask, worker)]
    try:
        for _ in range(300):
            if file.exists() and file.read_text().strip().endswith("}"):
                break
            time.sleep(0.1)
        config = planted.Config()
        swept = sweep.run(planted, config, scheduler=json.loads(file.read_text())["address"])
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)
    assert swept.drop_attrs().identical(sweep.run(planted, config).drop_attrs())


# ---- whole runs --------------------------------------------------------------------------------------------------------------------------


def test_a_whole_run_is_kept_by_all_of_its_settings(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(film, "run", lambda config: calls.append(config) or xr.Dataset({"value": config.n_steps}, attrs={"config": "{}"}))
    configs = {str(n): film.Config(n_steps=n) for n in (1, 2)}
    first = sweep.over("film", configs, results=str(tmp_path))
    assert {label: float(ds["value"]) for label, ds in first.items()} == {"1": 1.0, "2": 2.0}
    second = sweep.over("film", configs, results=str(tmp_path))
    assert len(calls) == 2
    assert float(second["2"]["value"]) == 2.0
    assert len(list(tmp_path.glob("film-*.zarr"))) == 2


def test_a_whole_run_that_another_process_kept_first_is_not_replaced(tmp_path):
    run = sweep.WholeRun(film, film.Config(), str(tmp_path))
    for value in (1.0, 2.0):
        run.keep(xr.Dataset({"value": value}, attrs={"config": "{}"}))
    assert float(sweep.WholeRun(film, film.Config(), str(tmp_path)).dataset()["value"]) == 1.0
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("module", [planted, film])
def test_results_must_be_a_folder(tmp_path, module, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="results must be a folder, got the file"):
        sweep.run(module, module.Config(), results=str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError, match=r"results must be a folder, got .*nothere', which does not exist"):
        units.saved(tmp_path / "nothere")
    monkeypatch.setattr(sweep.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="results must be a folder that can be written"):
        sweep.run(module, module.Config(), results=str(tmp_path))


# ---- commands ----------------------------------------------------------------------------------------------------------------------------


def test_run_keeps_units_and_goes_on_from_them(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "a", "b"]) == 0
    assert "table of planted" in capsys.readouterr().out
    monkeypatch.setattr(planted, "measure", lambda *_: pytest.fail("measured again"))
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "b"]) == 0
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "a", "--n-seeds", "3", "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "2 of 2 units finished before" in shown.err
    said = shown.out
    assert "Plan of planted_experiment" in said
    assert next(line for line in said.splitlines() if line.startswith("a ")).split()[:3] == ["a", "3", "2"]
    assert "to do: " in said


def test_a_failed_unit_makes_the_exit_code_1(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "a", "bad", "--retries", "0"]) == 1
    assert "2 of 4 units are finished" in capsys.readouterr().out


def test_a_run_of_failed_units_alone_is_told_in_a_line(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "bad", "--retries", "0"]) == 1
    assert "kernelgas: error: no unit of planted_experiment could be measured" in capsys.readouterr().err


def test_a_flag_takes_true_and_false():
    found = launch.combinations(["phrases=true,False", "lr=-1e-3"], sentence_classification.Config())
    assert list(found.values()) == [["--phrases", "--lr", "-1e-3"], ["--no-phrases", "--lr", "-1e-3"]]
    with pytest.raises(ValueError, match="--over phrases must be true or false, got '1'"):
        launch.combinations(["phrases=1"], sentence_classification.Config())


@pytest.mark.parametrize("name", ["sentence_classification", "long_range", "language_modelling", "vision", "transfer", "conversion"])
def test_data_that_are_missing_are_named_before_any_work(name, tmp_path, monkeypatch):
    module = cli.experiment(name)
    monkeypatch.delenv("KERNELGAS_DATA", raising=False)
    for loader in ("_teacher", "load_teacher"):
        monkeypatch.setattr(module, loader, lambda *_: None, raising=False)
    module.prepare(module.PRESETS["smoke"])
    for data in ("", str(tmp_path)):
        with pytest.raises(FileNotFoundError, match=r"\.gz|\.npz"):
            module.prepare(dataclasses.replace(module.PRESETS["cpu"], data=data))


def test_several_values_of_an_option_are_run_side_by_side(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", "planted", "--preset", "smoke", "--workers", "0", "--over", "lam=0,0.5", "--over", "rows=a,a b"]) == 0
    said = capsys.readouterr().out
    assert all(f"#### lam={lam} rows={rows}" in said for lam in ("0", "0.5") for rows in ("a", "a b"))
    assert len(list(Path("results/units").iterdir())) == 2  # rows are no setting
    lines = said.partition("All settings\n")[2].splitlines()
    assert lines[0].split() == ["setting", "row", "accuracy", "[%]"]
    assert [line.split()[:3] for line in lines[2:-1]] == [
        [f"lam={lam}", f"rows={rows[0]}", *rows[1:], row][:3] if len(rows) == 1 else [f"lam={lam}", "rows=a", "b"]
        for lam in ("0", "0.5")
        for rows in (["a"], ["a", "b"])
        for row in rows
    ]
    assert lines[2].split()[-3:] == ["0.0", "±", "0.0"]


def test_a_summary_has_the_units_of_the_tables_and_leaves_out_what_did_not_run():
    coords = {"task": ["x", "y"], "row": ["a", "b"], "seed": [0, 1]}
    accuracy, loss = np.full((2, 2, 2), 0.5), np.full((2, 2, 2), 1.23456)
    accuracy[0, 0], loss[0, 0], accuracy[1], loss[1] = [0.25, 0.75], [1.0, 2.0], np.nan, np.nan
    dims = tuple(coords)
    ds = xr.Dataset({"log_loss": (dims, loss), "accuracy": (dims, accuracy), "seconds": (dims, loss)}, coords)
    table = outcomes.summary({"lr=1": ds, "lr=2": ds.sel(row=["b"])})
    assert table.header == ["setting", "task", "row", "accuracy [%]", "log loss"]
    assert table.rows[0] == ["lr=1", "x", "a", "50.0 ± 35.4", "1.500 ± 0.707"]
    assert table.rows[1:] == [[label, "x", "b", "50.0 ± 0.0", "1.235 ± 0.000"] for label in ("lr=1", "lr=2")]


def test_a_setting_that_cannot_be_told_is_named_and_the_others_are_told(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)

    def section(name, ds):
        if json.loads(ds.attrs["config"])["lam"] == 0:
            raise ValueError("nothing to say")
        return "told"

    monkeypatch.setattr(outcomes.sections, "section", section)
    assert cli.main(["sweep", "planted", "--preset", "smoke", "--workers", "0", "--over", "lam=0,1", "--out", "told here"]) == 1
    shown = capsys.readouterr()
    assert "told\n" in shown.out
    assert "All settings" in shown.out
    assert "results of lam=0 are kept, but could not be told: ValueError: nothing to say" in shown.err
    assert len(list(Path("told here/planted").iterdir())) == 2


def test_an_empty_folder_writes_none(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "a", "--results", "kept", "--out", ""]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert "table of planted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "< 1 s"), (0.4, "< 1 s"), (90, "90 s"), (600, "10 min"), (9000, "2.5 h"), (400_000, "5 days"), (285_879_104, "9 years")],
)
def test_times_are_said_in_a_unit_that_fits(seconds, words):
    assert outcomes._duration(seconds) == words


@pytest.mark.parametrize(("n_bytes", "words"), [(3 * 2**20, "3 MiB"), (2.5 * 2**30, "2.5 GiB"), (1_912_881 * 2**20, "1.8 TiB")])
def test_sizes_are_said_in_a_unit_that_fits(n_bytes, words):
    assert outcomes._size(n_bytes) == words


def test_a_plan_warns_of_memory_that_is_not_here_and_says_when_nothing_is_to_do(monkeypatch):
    configs = {"": planted.Config(rows=("a",), n_seeds=1)}
    assert "WARNING" not in str(outcomes.plan(planted, configs, "", 1))
    monkeypatch.setattr(planted, "estimate", lambda *_: (0.1, 2.0**60))
    said = str(outcomes.plan(planted, configs, "", 2))
    assert "to do: < 1 s of processor time" in said
    assert "a unit needs 1,048,576.0 TiB of memory at most" in said
    assert "WARNING: this machine has " in said
    monkeypatch.setattr(planted, "units", lambda config: iter(()))
    assert outcomes.plan(planted, configs, "", 1).notes == ["to do: nothing"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "planted", "--over", "lam"], "--over must look like OPTION=A,B, got 'lam'"),
        (["sweep", "planted", "--over", "lam=1,"], "--over must look like OPTION=A,B"),
        (["sweep", "planted", "--over", "bogus=1,2"], "--over bogus: the experiment has no option --bogus"),
        (["sweep", "planted", "--over", "lam=1,2", "--over", "lam=3"], "--over lam must be given once"),
        (["sweep", "planted", "--lam", "1", "--over", "lam=2,3"], "--lam must be given either itself or as --over lam"),
        (["sweep", "planted", "--lam=1", "--over", "lam=2,3"], "--lam must be given either itself or as --over lam"),
        (["sweep"], "sweep needs the name of an experiment"),
    ],
)
def test_bad_options_stop_before_any_work(arguments, message, capsys, monkeypatch, known):
    monkeypatch.setattr(planted, "measure", lambda *_: pytest.fail("measured"))
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--preset", "huge"], "--preset of planted must be one of smoke, cpu, paper, got 'huge'"),
        (["--no-such-option", "1"], "unknown options: --no-such-option, 1"),
        (["--worker", "2"], "unknown options: --worker, 2"),
        (["--retries", "x"], "argument --retries: invalid int value: 'x'"),
        (["--n-seeds", "x"], "--n-seeds: invalid literal for int()"),
        (["--lam", "-1"], "error: lam must be at least 0, got -1"),
    ],
)
def test_wrong_options_are_refused_in_one_line(option, message, capsys, known):
    assert cli.main(["run", "planted", *option]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kernelgas: error: ")
    assert said.count("\n") == 1
    assert message in said


def test_the_papers_sizes_without_data_are_a_rehearsal_that_writes_nothing(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELGAS_DATA", raising=False)
    assert cli.main(["run", "planted", "--preset", "paper", "--lam", "0.7"]) == 0
    assert "stand-in data, no result is written (give --data for a real run): lam = 0.7" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_help_shows_the_options_of_the_run_and_of_the_experiment(capsys, known):
    with pytest.raises(SystemExit):
        cli.main(["sweep", "planted", "--help"])
    said = capsys.readouterr().out
    assert all(option in said for option in ("--preset", "--dry-run", "--scheduler", "--over", "--results", "--lam"))
    with pytest.raises(SystemExit):
        cli.main(["run", "planted", "--help"])
    said = capsys.readouterr().out
    assert "torchrun" in said
    assert "--scheduler" not in said


def test_an_interrupted_run_says_how_to_go_on(tmp_path, monkeypatch, capsys, known):
    monkeypatch.chdir(tmp_path)

    measure = planted.measure

    def interrupted(config, unit):
        if unit["row"] == "b":
            raise KeyboardInterrupt
        return measure(config, unit)

    monkeypatch.setattr(planted, "measure", interrupted)
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "b", "a"]) == 130
    assert capsys.readouterr().err.endswith("kernelgas: interrupted\n")  # nothing is kept yet
    assert cli.main(["run", "planted", "--preset", "smoke", "--rows", "a", "b"]) == 130
    assert "interrupted; 2 finished units are kept, the same command goes on from them" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_of_torchrun_train_the_same_classifier(tmp_path):
    """Each has half of the rows of a batch, so gradients are sums in another order; no dropout, whose masks are each process's own."""
    options = ["--preset", "smoke", "--rows", "softmax", "K-softplus", "--n-seeds", "1", "--dropout", "0", "--results"]
    starts = {"one": [], "two": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]}
    found = {}
    for name, start in starts.items():
        command = [sys.executable, *start, "-m", "experiments", "run", "sentence_classification", *options, str(tmp_path / name)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        ((_, found[name]),) = units.saved(tmp_path / name)["sentence_classification"]
    for score in ("train_loss", "validation_loss", "log_loss", "alignment_after"):
        assert np.allclose(found["two"][score], found["one"][score], rtol=1e-5, atol=1e-6, equal_nan=True), score
    assert np.array_equal(found["two"]["correct"], found["one"]["correct"])
