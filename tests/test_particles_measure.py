"""Saving and loading a learned measure."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from particles import Elu, FourierPair, NonstationaryPair, load_measure, measure, save_measure

OMEGA = np.random.default_rng(0).standard_normal((5, 3))
WEIGHTS = np.array([0.5, 0.25, 0.125, 0.125, 0.0])


@pytest.mark.parametrize("feature", ["fourier", Elu(temperature=0.5, floor=0.01), NonstationaryPair()], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_round_trip(tmp_path, feature, dtype):
    save_measure(tmp_path / "m.safetensors", OMEGA.astype(dtype), feature, weights=WEIGHTS, task="ring3", scores=[0.5, 1])
    saved = load_measure(tmp_path / "m.safetensors")
    assert saved.omega.dtype == dtype
    assert np.array_equal(saved.omega, OMEGA.astype(dtype))
    assert np.array_equal(saved.weights, WEIGHTS)
    assert saved.feature == (FourierPair() if feature == "fourier" else feature)
    assert saved.metadata == {"task": "ring3", "scores": [0.5, 1]}


def test_chains_torch_and_equal_weights(tmp_path):
    omega = torch.from_numpy(np.stack([OMEGA, -OMEGA])).transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    save_measure(str(tmp_path / "new folder" / "m"), omega, "fourier")
    saved = load_measure(str(tmp_path / "new folder" / "m"))
    assert isinstance(saved.omega, np.ndarray)
    assert np.array_equal(saved.omega, np.stack([OMEGA, -OMEGA]))
    assert np.array_equal(saved.weights, np.full((2, 5), 0.2))


def test_normalised_float32_weights_pass(tmp_path):
    weights = np.random.default_rng(1).random(100_000).astype(np.float32)
    weights /= weights.sum()
    save_measure(tmp_path / "m", np.zeros((100_000, 1)), "fourier", weights=weights)
    assert np.array_equal(load_measure(tmp_path / "m").weights, weights)


def test_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "m"
    save_measure(path, OMEGA, "fourier")
    with pytest.raises(FileExistsError, match="overwrite"):
        save_measure(path, -OMEGA, "fourier")
    assert np.array_equal(load_measure(path).omega, OMEGA)
    save_measure(path, -OMEGA, "fourier", overwrite=True)
    assert np.array_equal(load_measure(path).omega, -OMEGA)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"weights": WEIGHTS[:4]}, "weights must have shape"),
        ({"weights": -WEIGHTS}, "weights must be at least 0"),
        ({"weights": 1.001 * WEIGHTS}, "weights must sum to 1"),
        ({"weights": WEIGHTS * np.nan}, "weights must be finite"),
        ({"omega": OMEGA[0]}, "omega"),
        ({"omega": OMEGA * np.inf}, "omega"),
        ({"feature": "sine"}, "feature"),
        ({"model": object()}, "metadata"),
    ],
)
def test_bad_input_writes_nothing(tmp_path, change, name):
    arguments = {"omega": OMEGA, "feature": "fourier", "weights": WEIGHTS, **change}
    with pytest.raises(ValueError, match=name):
        save_measure(tmp_path / "m", arguments.pop("omega"), arguments.pop("feature"), **arguments)
    assert not list(tmp_path.iterdir())


def header(**change):
    return json.dumps({"schema": measure.SCHEMA, "feature": FourierPair().describe(), "metadata": {}, **change})


@pytest.mark.parametrize(
    ("tensors", "metadata", "name"),
    [
        ({"a": OMEGA}, None, "not a measure"),
        ({"omega": OMEGA, "weights": WEIGHTS}, {"format": "pt"}, "not a measure"),
        ({"omega": OMEGA}, {measure.KIND: header()}, "not a measure"),
        ({"omega": OMEGA, "weights": WEIGHTS}, {measure.KIND: header(schema=99)}, "schema 99"),
        ({"omega": OMEGA, "weights": 2 * WEIGHTS}, {measure.KIND: header()}, "weights must sum to 1"),
        ({"omega": OMEGA * np.nan, "weights": WEIGHTS}, {measure.KIND: header()}, "omega must be finite"),
        ({"omega": OMEGA, "weights": WEIGHTS}, {measure.KIND: header(feature={"name": "Sine"})}, "Sine"),
    ],
)
def test_files_of_another_kind(tmp_path, tensors, metadata, name):
    save_file(tensors, tmp_path / "m", metadata=metadata)
    with pytest.raises(ValueError, match=name):
        load_measure(tmp_path / "m")


def test_damaged_or_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_measure(tmp_path / "m")
    with pytest.raises(ValueError, match="directory"):
        load_measure(tmp_path)
    with pytest.raises(ValueError, match="path must be a file"):
        save_measure(tmp_path, OMEGA, "fourier", overwrite=True)
    with pytest.raises(ValueError, match="path must be a path, got 5"):
        save_measure(5, OMEGA, "fourier")
    save_measure(tmp_path / "m", OMEGA, "fourier")
    (tmp_path / "cut").write_bytes((tmp_path / "m").read_bytes()[:-8])
    (tmp_path / "text").write_text("not this")
    for name in ("cut", "text"):
        with pytest.raises(ValueError, match="not a safetensors file"):
            load_measure(tmp_path / name)
