from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist

from attention import parallel
from attention.batches import IGNORED
from attention.evaluate import summed_loss, targets
from attention.finetune import finetune
from attention.model import ModelConfig, Transformer

ROOT = Path(__file__).parents[1]
SCRIPT = """
import sys

import torch
from torch import distributed as dist

from attention.finetune import finetune
from attention.model import Transformer

torch.set_num_threads(1)
dist.init_process_group("gloo")
folder, rank = sys.argv[1], dist.get_rank()
given = torch.load(f"{folder}/given.pt", weights_only=False)
model = Transformer(given["config"], rng=rank)  # the first process's start counts
try:
    history = finetune(model, given["batches"], **given["options"]).to_dict()
except FloatingPointError as error:
    history = str(error)
torch.save({"model": model.state_dict(), "history": history}, f"{folder}/rank{rank}.pt")
dist.destroy_process_group()
"""


def config(**changes) -> ModelConfig:
    sizes = {"n_classes": 2, "max_length": 6, "vocab_size": 10, "dim": 16, "heads": 2, "ff": 16, "n_features": 8, "dropout": 0.0}
    return ModelConfig(**{**sizes, "attention": "softplus", **changes})


LANGUAGE = {"n_classes": None, "causal": True}


def batches(n: int = 45, size: int = 15) -> list[dict[str, torch.Tensor]]:
    """Rows of very different lengths, and an odd number of them."""
    generator = torch.Generator().manual_seed(0)
    data = {
        "tokens": torch.randint(10, (n, 6), generator=generator),
        "key_mask": torch.arange(6) < torch.randint(2, 7, (n, 1), generator=generator),
    }
    data["labels"] = (data["tokens"][:, 0] > 4).long()
    return [{name: value[i : i + size] for name, value in data.items()} for i in range(0, n, size)]


def unlabelled() -> list[dict[str, torch.Tensor]]:
    return [{name: value for name, value in batch.items() if name != "labels"} for batch in batches()]


def torchrun(folder: Path, **given: Any) -> list[dict[str, Any]]:
    """What each of two processes has at the end."""
    torch.save(given, folder / "given.pt")
    (folder / "train.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(folder / "train.py"),
        str(folder),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in (0, 1)]


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, LANGUAGE, {"attention": "flexformer", "normalise": "sum", "unit_norm": False}])
def test_two_processes_train_the_model_that_one_trains(tmp_path, changes):
    data = batches() if changes is not LANGUAGE else unlabelled()
    options = {"n_epochs": 3, "freeze_omega": False, "validation": data, "restore_best": True, "patience": 2, "rng": 0}
    first, second = torchrun(tmp_path, config=config(**changes), batches=data, options=options)
    assert same_bits(first["model"], second["model"])
    one = Transformer(config(**changes), rng=0)
    history = finetune(one, data, **options).to_dict()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(first["model"][name], value, rtol=1e-4, atol=1e-5)
    for name in ("train_loss", "validation_loss", "accuracy", "nonpositive"):
        parts = [part["data_vars"][name]["data"] for part in (first["history"], second["history"], history)]
        assert str(parts[0]) == str(parts[1])
        if name != "nonpositive":
            np.testing.assert_allclose(parts[0], parts[2], rtol=1e-5)


@pytest.mark.slow
def test_two_processes_go_on_from_a_checkpoint_bitwise_with_dropout(tmp_path):
    options = {"n_epochs": 2, "rng": 0}
    kept = options | {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 1}
    given = {"config": config(dropout=0.3), "batches": batches()}
    whole, _ = torchrun(tmp_path, **given, options=options)
    broken = {**given, "batches": [*batches()[:2], {"tokens": torch.zeros(1, 1)}]}  # the third batch ends the run
    with pytest.raises(AssertionError, match="tokens"):
        torchrun(tmp_path, **broken, options=kept)
    assert torch.load(tmp_path / "run.pt", weights_only=True)["step"] == 2
    first, second = torchrun(tmp_path, **given, options=kept)
    assert same_bits(first["model"], whole["model"])
    assert same_bits(second["model"], whole["model"])


@pytest.mark.slow
def test_a_loss_that_is_not_finite_in_one_process_stops_both(tmp_path):
    batch = {"tokens": torch.randn(8, 6, 1), "key_mask": torch.ones(8, 6, dtype=torch.bool), "labels": torch.arange(8) % 2}
    batch["tokens"][3] = torch.nan
    ends = torchrun(tmp_path, config=config(vocab_size=None, input_dim=1), batches=[batch], options={"rng": 0})
    assert [end["history"] for end in ends] == ["the training loss is nan in epoch 0, batch 0"] * 2


def trained() -> tuple[dict[str, torch.Tensor], Any]:
    model = Transformer(config(dropout=0.2), rng=0)
    history = finetune(model, batches(), n_epochs=2, freeze_omega=False, validation=batches(), rng=0)
    return model.state_dict(), history.drop_vars("seconds")


def test_a_group_of_one_trains_the_model_of_no_group_bitwise(tmp_path):
    assert (parallel.rank(), parallel.world(), parallel.grouped()) == (0, 1, False)
    weights, history = trained()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert parallel.grouped()
        grouped_weights, grouped_history = trained()
    finally:
        dist.destroy_process_group()
    assert same_bits(weights, grouped_weights)
    assert history.equals(grouped_history)


@pytest.mark.parametrize("language", [False, True])
def test_the_shares_of_a_batch_are_all_of_it_and_their_scaled_gradients_average_to_its_own(monkeypatch, language):
    """What `finetune` does in each process: its rows' summed loss over the whole batch's number of targets, times the processes."""
    changes = LANGUAGE if language else {}
    model, batch = Transformer(config(**changes), rng=0).double(), (unlabelled() if language else batches())[0]
    wanted = targets(batch, model)
    (summed_loss(model(batch), wanted) / (wanted != IGNORED).sum()).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    monkeypatch.setattr(parallel, "world", lambda: 4)
    average, rows = [torch.zeros_like(gradient) for gradient in expected], 0
    for rank in range(4):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        part = parallel.shard(batch)
        model.zero_grad()
        (4 * summed_loss(model(part), targets(part, model)) / (wanted != IGNORED).sum()).backward()
        average = [total + parameter.grad / 4 for total, parameter in zip(average, model.parameters(), strict=True)]
        rows += len(part["tokens"])
    assert rows == len(batch["tokens"])
    for got, gradient in zip(average, expected, strict=True):
        torch.testing.assert_close(got, gradient)


def test_a_batch_with_fewer_rows_than_processes_is_refused(monkeypatch):
    monkeypatch.setattr(parallel, "world", lambda: 16)
    with pytest.raises(ValueError, match="a row for each of 16 processes"):
        finetune(Transformer(config()), batches(), rng=0)
