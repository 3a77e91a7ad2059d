"""Phase A: move the particles of each attention head by Langevin dynamics so that its kernel agrees with the labels.

The objective is the sequence-level one of the Coulomb paper (App. C.4) in pooled form: for each head the masked means of the (scaled)
queries and of the keys of a sequence are two points that carry the sequence's label, and the kernel between all such points is aligned
with the label kernel. Labels are centred, which the paper leaves open and which keeps the base rate out of the objective.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from attention.finetune import check_batches, check_model, checked_labels
from attention.model import Batch, Transformer, masked_mean, seed_from
from particles.alignment import Alignment, CentredAlignment
from particles.arrays import count
from particles.domain import Ball
from particles.energy import Energy, Quadratic
from particles.features import Feature, FourierPhase, PositiveExponential
from particles.langevin import Langevin
from particles.riesz import Riesz
from particles.simulate import simulate, uninterrupted

EnergyFactory = Callable[[np.ndarray, np.ndarray, Feature], Energy]
HOLD_OUT = 0.25  # share of the sequences on which alignment is only measured
SAVE_EVERY = 5  # steps between the recorded ones, where n_steps is a multiple of it
_RECORDED = ("energy", "grad_norm", "projected", "capped", "coincident", "min_gap")  # of each step, beside energy_<term>


class _Points(NamedTuple):
    """Pooled queries and keys of one head in standardised units, (row, dim), and their labels (row,)."""

    x: np.ndarray
    y: np.ndarray
    x_hold: np.ndarray
    y_hold: np.ndarray


def align(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    targets: str = "labels",
    energy: EnergyFactory | None = None,
    domain: Any = None,
    sampler: Any = None,
    store: str | os.PathLike | None = None,
    n_steps: int = 100,
    max_sequences: int = 1024,
    rng: int | np.random.Generator | torch.Generator,
) -> xr.Dataset:
    """Align every head of `model` as it stands (first run `finetune(n_epochs=1)`) and write the particles into its feature maps.

    Each head is simulated in *standardised units*: its points are divided by one scalar, the root mean variance of their coordinates, and
    its frequencies multiplied by it, so that omega.x is unchanged and the default constants fit any scale of queries. Maps that are no
    function of omega.x alone ("favor") keep unit 1. Layers are aligned in order, each seeing the new particles of the layers before it.
    A quarter of the sequences is held out of the simulation and used only to measure alignment. The paper's control, shuffled labels, is
    had by passing batches whose labels are shuffled.

    Parameters
    ----------
    batches : re-iterable of batches
        Read once per layer; see `attention.model` for a batch.
    targets : "labels"
        The only target so far.
    energy : callable (x (row, dim), y (row,), feature) -> Energy, optional
        Default: `default_energy`.
    domain, sampler : optional
        In standardised units; defaults: `default_domain`, `default_sampler`.
    store : folder, optional
        Each head's trajectory is streamed to `layer<i>_head<j>.zarr` in it; must be new or empty.
    n_steps : int
        Langevin steps per head.
    max_sequences : int
        The simulation, and the hold-out, use at most so many sequences each, chosen at random from `batches`.
    rng : int or generator
        Seed of the hold-out and of the noise.

    Returns
    -------
    xr.Dataset
        (layer, head): alignment_before, alignment_after, holdout_before, holdout_after (centred kernel alignment with the labels, at most
        1), unit (the scalar), start_outside (share of particles that had to be projected into the domain to start);
        (layer, head, particle, particle_dim): omega_before, omega_after, in the feature map's units;
        (layer, head, step): energy and its terms, grad_norm, projected, capped (fractions), coincident, min_gap.

    Raises
    ------
    ValueError
        For a softmax model, unknown targets, too few sequences or classes, points that are all equal.
    FileExistsError
        If `store` is a file or a folder that holds something; it is left untouched.
    """
    check_model(model)
    check_batches(batches, "batches")
    if targets != "labels":
        raise ValueError(f"targets must be 'labels', got {targets!r}")
    if not model.feature_maps:
        raise ValueError("model must have kernel attention to be aligned, got softmax attention")
    if energy is not None and not callable(energy):
        raise ValueError(f"energy must be a function of (x, y, feature), got {energy!r}")
    if domain is not None and not hasattr(domain, "project"):
        raise ValueError(f"domain must be a domain of `particles`, got {domain!r}")
    n_steps, max_sequences = count(n_steps, "n_steps"), count(max_sequences, "max_sequences")
    seed, start = seed_from(rng), time.perf_counter()
    folder = _new_folder(store)
    layers = []
    for layer, feature_map in enumerate(model.feature_maps):
        points, labels = pooled(model, batches, layer)
        parts = _split(labels, seed, max_sequences)
        heads = []
        for head in range(points.shape[1]):
            unit, sample = _standardise(points[:, head], labels, parts, feature_map.feature)
            omega = feature_map.omega[head].detach().cpu().double().numpy()
            laws = _laws(sample, feature_map.feature, omega, energy, domain, sampler)
            path = None if folder is None else folder / f"layer{layer}_head{head}.zarr"
            heads.append(_align_head(omega, unit, sample, feature_map.feature, laws, n_steps, _key(seed, layer, head), path))
        layers.append(xr.concat(heads, "head"))
        feature_map.load_omega(layers[-1].omega_after.values)
    result = xr.concat(layers, "layer").assign_coords(layer=np.arange(len(layers)), head=np.arange(len(heads)))
    return result.assign_attrs(
        schema=1, targets=targets, seed=str(seed), n_sequences=len(parts[0]), n_holdout=len(parts[1]), seconds=time.perf_counter() - start,
        **{name: json.dumps(part.describe(), default=str) for name, part in zip(("energy", "domain", "sampler"), laws, strict=True)},
    )  # fmt: skip


def linear_objective(feature: Feature) -> bool:
    """Whether the default objective is the linear alignment: features that belong to one particle each and do not grow exponentially."""
    return not feature.many_body and not isinstance(feature, PositiveExponential)


def default_energy(x: np.ndarray, y: np.ndarray, feature: Feature, n_particles: int) -> Energy:
    """The energy of one head: points x (row, dim) in standardised units, labels y (row,).

    Features of one particle each: linear alignment with centred labels, confinement .02 and log repulsion lam = .01. Features that depend
    on all particles, and the exponential: centred kernel alignment, which is scale free, and log repulsion lam = 1e-3.
    With lam the constant of (lam/N^2) sum g, the strength of `Riesz` is 2 lam (N - 1)/N.
    """
    linear = linear_objective(feature)
    strength = 2 * (0.01 if linear else 1e-3) * max(n_particles - 1, 1) / n_particles
    repulsion = Riesz(0.0, strength, softening=0.05, mirror=feature.signed)
    if not linear:
        return CentredAlignment(x, y, feature) + repulsion
    batch_size = None if len(x) <= 5000 else 512
    return Alignment(x, y, feature, batch_size=batch_size) + Quadratic(0.02) + repulsion


def default_domain(dim: int, feature: Feature) -> Ball:
    """A ball for particles of `dim` numbers in standardised units: radius 4, or 2 sqrt(dim) for centred kernel alignment.

    Where a phase is part of the particle the radius is that of the corner (4, 2 pi), so that no phase is cut off.
    """
    radius = math.hypot(4.0, 2 * math.pi) if isinstance(feature, FourierPhase) else 4.0
    return Ball(radius if linear_objective(feature) else 2 * math.sqrt(dim), dim)


def default_sampler(feature: Feature) -> Langevin:
    """Step 2 and beta 1000 for the linear objective; beta 1e5 and gradients of length .2 at most for centred kernel alignment."""
    return Langevin(2.0, 1000.0) if linear_objective(feature) else Langevin(2.0, 1e5, clip=0.2)


def pooled(model: Transformer, batches: Iterable[Batch], layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Masked means of one layer's queries and keys in evaluation mode.

    Returns
    -------
    points : (sequence, head, 2, head_dim) float64, queries then keys, as they enter the feature map
    labels : (sequence,) int64
    """
    was_training, device = model.training, model.positions.device
    model.eval()
    points, labels = [], []
    with torch.no_grad():
        for batch in batches:
            labels.append(checked_labels(batch, model.config.n_classes).cpu())
            batch = {name: value.to(device) for name, value in batch.items()}
            sides = [masked_mean(side.double(), batch["key_mask"][:, None]) for side in model.queries_keys(batch, layer)]
            points.append(torch.stack(sides, 2).cpu())
    model.train(was_training)
    if not labels:
        raise ValueError("batches must hold at least one batch, got none")
    return torch.cat(points).numpy(), torch.cat(labels).numpy()


def _split(labels: np.ndarray, seed: int, max_sequences: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the sequences to simulate with and of those held out, a quarter of each class; at most `max_sequences` of both."""
    held = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0)))
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held[rows[: round(HOLD_OUT * len(rows))]] = True
    train, hold = (np.sort(rng.permutation(np.flatnonzero(part))[:max_sequences]) for part in (~held, held))
    if min(len(np.unique(labels[train])), len(np.unique(labels[hold]))) < 2:
        raise ValueError(f"batches must hold a few sequences of at least two classes, got {np.bincount(labels).tolist()} per class")
    return train, hold


def _standardise(points: np.ndarray, labels: np.ndarray, parts: tuple[np.ndarray, np.ndarray], feature: Feature) -> tuple[float, _Points]:
    """The head's unit, and its points (sequence, 2, dim) as rows in that unit; a sequence's query and key are both held out or both not."""
    train, hold = (points[rows].reshape(-1, points.shape[-1]) for rows in parts)
    unit = 1.0 if isinstance(feature, PositiveExponential) else math.sqrt(float(train.var(0).mean()))
    if not (math.isfinite(unit) and train.var() > 0 and unit > 0):
        raise ValueError(f"the pooled queries and keys must be finite and not all equal, got a root mean variance of {unit}")
    return unit, _Points(train / unit, labels[parts[0]].repeat(2), hold / unit, labels[parts[1]].repeat(2))


def _laws(sample: _Points, feature: Feature, omega: np.ndarray, energy: Any, domain: Any, sampler: Any) -> tuple[Any, Any, Any]:
    """Energy, domain and sampler of one head, the user's where given."""
    built = default_energy(sample.x, sample.y, feature, len(omega)) if energy is None else energy(sample.x, sample.y, feature)
    domain = default_domain(omega.shape[1], feature) if domain is None else domain
    return built, domain, default_sampler(feature) if sampler is None else sampler


def _align_head(
    omega: np.ndarray, unit: float, sample: _Points, feature: Feature, laws: tuple[Any, Any, Any], n_steps: int, key: int, path: Path | None
) -> xr.Dataset:
    """Simulate one head and measure it; omega (particle, particle_dim) in the feature map's units before and after."""
    energy, domain, sampler = laws
    units = np.full(omega.shape[1], unit)
    if isinstance(feature, FourierPhase):
        units[-1] = 1.0
    start = domain.project(omega * units)
    every = SAVE_EVERY if n_steps % SAVE_EVERY == 0 else 1
    run = simulate(start, energy, domain, sampler, n_steps=n_steps, save_every=every, rng=key, store=path)
    end = uninterrupted(run).omega.isel(chain=0, step=-1).values
    kept = [name for name in run if name in _RECORDED or str(name).startswith("energy_")]
    measured = {
        "alignment_before": _alignment(sample.x, sample.y, feature, omega * units),
        "alignment_after": _alignment(sample.x, sample.y, feature, end),
        "holdout_before": _alignment(sample.x_hold, sample.y_hold, feature, omega * units),
        "holdout_after": _alignment(sample.x_hold, sample.y_hold, feature, end),
        "unit": unit,
        "start_outside": float(np.mean(np.any(start != omega * units, -1))),
        "omega_before": (("particle", "particle_dim"), omega),
        "omega_after": (("particle", "particle_dim"), end / units),
    }
    return run[kept].isel(chain=0, drop=True).assign(measured).drop_attrs()


def _alignment(x: np.ndarray, y: np.ndarray, feature: Feature, omega: np.ndarray) -> float:
    """Centred kernel alignment of the features with the labels, in [0, 1]."""
    return -float(CentredAlignment(x, y, feature).value(omega))


def _key(seed: int, layer: int, head: int) -> int:
    return int(np.random.SeedSequence((seed, 1 + layer, head)).generate_state(1, np.uint64)[0] >> np.uint64(2))


def _new_folder(store: str | os.PathLike | None) -> Path | None:
    if store is None:
        return None
    if not isinstance(store, str | os.PathLike):
        raise ValueError(f"store must be a path, got {store!r}")
    folder = Path(store)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"store must be a new or empty folder, got {str(store)!r}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
