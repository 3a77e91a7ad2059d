"""The command line: fast help, clear errors, options from the frozen configs."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import cli, sections


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "experiments", *arguments], capture_output=True, text=True, timeout=120)


def test_help_and_list_answer_without_heavy_imports():
    code = (
        "import sys; from experiments.cli import main; "
        "assert main(['list']) == 0 and main(['--help']) == 0 and main([]) == 0 and main(['--version']) == 0; "
        "heavy = {'torch', 'sklearn', 'numba', 'xarray', 'matplotlib', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in cli.EXPERIMENTS)
    assert "kernelgas" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "unknown command 'fly'; known: demo, list, run"),
        (["list", "gas", "extra"], "list takes nothing else, got 'extra'"),
        (["list", "gsa"], "unknown experiment 'gsa'; known: gas"),
        (["--version", "extra"], "--version takes nothing else, got 'extra'"),
        (["run"], "run needs the name of an experiment; known: gas"),
        (["run", "gsa"], "unknown experiment 'gsa'; known: gas, kernel_learning, matching, "),
    ],
)
def test_unknown_names_exit_with_2_and_list_the_known_ones(capsys, arguments, message):
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["run", "--help"], ["run", "-h"], ["list", "--help"]])
def test_help_of_a_command_lists_what_there_is(capsys, arguments):
    assert cli.main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("usage: kernelgas")
    assert arguments[0] == "list" or all(f"{name} " in shown.out for name in cli.EXPERIMENTS)
    assert not shown.err


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (["run", "gas"], ["inverse temperature, except on the line", "share of the frames that is left out"]),
        (["run", "kernel_learning"], ["permute the training labels"]),
        (["run", "matching"], ["a quarter of them held out"]),
        (["run", "classify"], ["name (demo: --dataset), a folder inside --folder", "None: 8 on images, 3 on texts"]),
        (["demo"], ["name (classify: --data), a folder inside --data", "processes, one thread each"]),
    ],
)
def test_help_explains_every_option(capsys, arguments, sentences):
    with pytest.raises(SystemExit) as exit_:
        cli.main([*arguments, "--help"])
    assert exit_.value.code == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for sentence in sentences:
        assert sentence in shown
    config = importlib.import_module(f"experiments.{arguments[-1]}").Config
    for field in dataclasses.fields(config):
        assert re.search(rf"^    {field.name}: .*  # \w", inspect.getsource(config), re.MULTILINE), f"{field.name} has no comment, its help"


def test_traceback_option_raises():
    with pytest.raises(ValueError, match="unknown command"):
        cli.main(["fly", "--traceback"])


def test_python_m_experiments_returns_the_exit_code():
    done = run("fly")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_run_writes_a_store_and_its_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--n-particles", "4", "--n-steps", "500", "--n-chains", "4", "--n-line", "5"]
    assert cli.main(["run", "gas", *options]) == 0
    (folder,) = (tmp_path / "results" / "gas").iterdir()
    assert {path.name for path in folder.iterdir()} == {"gas.zarr", "gas.png"}
    assert "second moment, 2 dimensions" in capsys.readouterr().out


QUICK = "recall"  # the others take up to half a minute


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == QUICK else [pytest.mark.slow]) for name in cli.EXPERIMENTS])
def test_a_smoke_preset_needs_no_folder_and_is_told_and_drawn(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELGAS_DATA", raising=False)
    module = cli.experiment(name)
    ds = module.run(module.PRESETS["smoke"])
    assert ds.attrs.get("failed", "{}") == "{}"
    told = sections.section(name, ds)
    sections.draw(name, ds, tmp_path)
    assert told.tables or name == "film"
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn
    assert set(told.pictures) <= drawn


@pytest.mark.parametrize(("option", "message"), [("--n-particle", "--n-particle"), ("--n-particles", "n_particles must be an integer")])
def test_bad_options_exit_with_2(capsys, option, message):
    assert cli.main(["run", "gas", option, "0"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_presets_are_listed_as_they_are():
    for name in cli.EXPERIMENTS:  # read, as importing them all takes long
        tree = ast.parse((Path(cli.__file__).parent / f"{name}.py").read_text())
        (made,) = (node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PRESETS")
        assert cli.presets(name) == ", ".join(key.value for key in made.keys)


def test_an_experiment_is_listed_with_its_presets_tasks_rows_and_parts(capsys):
    assert cli.main(["list", "sentence_classification"]) == 0
    said = capsys.readouterr().out
    for words in ("preset: smoke, cpu, paper", "task: ", "; qqp", "row: ", "K-softplus; V-sigmoid2; K-sigmoid2", "part: main; ablations"):
        assert words in said
    assert cli.described("gas").splitlines()[1] == "preset: smoke, cpu"


@pytest.mark.parametrize("name", ["sentence_classification", "vision", "language_modelling", "long_range"])
def test_epochs_before_phase_a_are_named_where_they_are_too_many(name, capsys):
    assert cli.main(["run", name, "--preset", "smoke", "--n-epochs", "2", "--n-warm", "5"]) == 2
    assert "n_epochs must be more than n_warm, of which there are 5, got 2" in capsys.readouterr().err
