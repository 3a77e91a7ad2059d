"""Phase A: move the particles of each attention head by Langevin dynamics so that its kernel agrees with a target.

Targets are labels of sequences (Coulomb paper, App. C.4, in pooled form: the masked means of a head's queries and keys carry their
sequence's label) or of tokens (C.5), a relation "should attend" between the tokens of a sequence, or a teacher's attention. Labels are
centred, which the paper leaves open and which keeps the base rate out of the objective; rows of a relation likewise.

What is known about it: Phase A and then training everything, the particles included, was never worse and on some hidden relations clearly
better than training alone; Phase A with frozen particles was worse. Where queries and keys can adapt, it hardly mattered. Always run the
control `shuffled=True` beside it: a part of what Phase A does (narrower particles, fewer dead features) needs no targets.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import xarray as xr

from attention.base import FeatureMap, described
from attention.batches import Batch, check_batches
from attention.inspection import feature_rank
from attention.model import Transformer
from attention.objectives import (
    CONSTANTS,
    OBJECTIVES,
    Laws,
    Sample,
    agreement,
    default_laws,
    default_objective,
    divided,
    in_units,
    unit_of,
    vectors,
)
from attention.relation import Pairs
from attention.samples import attend_relation, joined, pairs, points, split, teacher_relation, with_shuffled_keys, with_shuffled_labels
from attention.seeds import derived_seed, seed_from
from particles.arrays import count, flag, positive
from particles.energy import Energy
from particles.features import Feature
from particles.simulate import simulate, uninterrupted

TARGETS, POOLS = ("labels", "attend", "teacher"), ("sequence", "token")
SAVE_EVERY = 5  # steps between the recorded ones, where n_steps is a multiple of it
RANK_ROWS = 512  # vectors on which the effective rank is measured, at most
_RECORDED = ("grad_norm", "projected", "capped", "coincident", "min_gap")  # of each step, beside energy and energy_<term>
_UNITS = {"alignment": "1", "holdout": "1", "effective_rank": "features", "projected": "fraction", "capped": "fraction", "unit": "1"}


class _Plan(NamedTuple):
    """What all heads share."""

    targets: str
    pool: str
    teacher: Any
    objective: str | None
    energy: Callable[..., Energy] | None
    domain: Any
    sampler: Any
    constants: Mapping[str, float]
    n_steps: int
    save_every: int
    early_stopping: bool
    shuffled: bool
    seed: int
    folder: Path | None


def align(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    targets: str = "labels",
    pool: str = "sequence",
    teacher: Any = None,
    objective: str | None = None,
    energy: Callable[..., Energy] | None = None,
    domain: Any = None,
    sampler: Any = None,
    constants: Mapping[str, float] | None = None,
    store: str | os.PathLike | None = None,
    n_steps: int = 100,
    save_every: int | None = None,
    early_stopping: bool = True,
    shuffled: bool = False,
    max_sequences: int | None = None,
    rng: int | np.random.Generator | torch.Generator,
) -> xr.Dataset:
    """Align every head of `model` as it stands (first run `finetune(n_epochs=1)`) and write the particles into its feature maps.

    Each head is simulated in *standardised units*: its vectors are divided by one scalar, the root mean variance of their coordinates, and
    its frequencies multiplied by it, so that omega.x is unchanged and the default constants fit any scale of queries. Maps that are no
    function of omega.x alone ("favor") keep unit 1. Layers are aligned in order, each seeing the new particles of the layers before it;
    layers without particles (softmax, SOFT) are left out and said to be. Grouped query heads share the particles of their key head. A
    factor that a map has beside its particles' feature (Flexformer's exp |x|^2, a constant feature) plays no part. A quarter of the
    sequences is held out of the simulation.

    Parameters
    ----------
    batches : re-iterable of batches
        Read once; see `attention.batches` for a batch.
    targets : "labels", "attend" or "teacher"
        "labels": the batch's `labels`. "attend": its `attend` (batch, query, key) or (batch, head, query, key), boolean or nonnegative,
        "this query should attend to that key", or else its `token_labels` (batch, time), integers whose equality within a sequence says
        so (negative = no label). "teacher": the attention of `teacher`.
    pool : "sequence" or "token"
        For "labels": masked means of a sequence's vectors, or each token's (see `attention.samples.points`).
    teacher : Transformer, or callable (batch, layer) -> (batch, head, query, key) probabilities
        A Transformer's softmax of its own queries and keys, layer by layer; `model` itself is a teacher of its own softmax.
    objective : "alignment", "centred", "quadratic" or "divergence", optional
        See `attention.objectives`. Default: linear alignment, or centred alignment for features that are exponential or normalised
        over the particles; of a teacher the divergence of rows, if features are positive.
    energy : callable, optional
        energy(x (row, dim), y (row,), feature) for labels, energy(q (sequence, query, dim), k (sequence, key, dim), attend, allowed
        (both (sequence, query, key)), feature) otherwise -> Energy, in place of the objective's.
    domain, sampler : optional
        In standardised units; defaults: those of the objective.
    constants : dict, optional
        Numbers in the place of those of the objective, some of `attention.objectives.CONSTANTS`: lam and Riesz exponent s of the
        repulsion, step_size, beta, radius. What `energy`, `domain` or `sampler` replace has none.
    store : folder, optional
        Each head's trajectory is streamed to `layer<i>_head<j>.zarr` in it; must be new or empty.
    n_steps, save_every : int
        Langevin steps per head, and how often one is recorded; None: every 5, or every 1 if n_steps is no multiple of that.
    early_stopping : bool
        Keep the recorded step with the largest hold-out alignment, the start among them; otherwise the last one.
    shuffled : bool
        The negative control: targets are permuted in the simulation (labels over sequences or tokens; keys of a relation within each
        sequence), alignment is measured with the true ones. Early stopping then still sees true targets: turn it off in both runs to
        compare motions.
    max_sequences : int, optional
        The simulation, and the hold-out, use at most so many sequences each, chosen at random; None: 1024, or as many as hold 8192 tokens
        where tokens count one by one.
    rng : int or generator
        Seed of the hold-out and of the noise.

    Returns
    -------
    xr.Dataset
        A head is here a set of particles: a key head, where queries are grouped.
        (layer, head): alignment_before, alignment_after, holdout_before, holdout_after (centred kernel alignment, at most 1; with early
        stopping the last is a maximum over recorded steps), gap (alignment_after - holdout_after: over-fitting), effective_rank_before,
        effective_rank_after (of the features on held-out vectors), chosen_step, unit (the scalar), start_outside (share of particles that
        had to be projected into the domain to start);
        (layer, head, particle, particle_dim): omega_before, omega_after, in the feature map's units;
        (layer, head, step): alignment, holdout, effective_rank, energy and its terms, grad_norm, projected, capped (fractions),
        coincident, min_gap. Layers without particles hold NaN; coordinate `attention` names each layer's.
        Attributes energy, domain and sampler are JSON lists of what moved the particles, [layer][head].

    Raises
    ------
    ValueError
        For a model without particles, a map whose omega is no particle of a feature (it is named), unequal weights, targets that are
        unknown, missing or of a wrong shape, too few sequences or classes, vectors that are all equal.
    FileExistsError
        If `store` is a file or a folder that holds something; it is left untouched.
    """
    _check(model, batches, targets, pool, teacher, objective, energy, domain)
    _check_constants(constants, energy, domain, sampler)
    n_steps = count(n_steps, "n_steps")
    plan = _Plan(
        targets, pool, teacher, objective, energy, domain, sampler, constants or {}, n_steps, _every(save_every, n_steps),
        flag(early_stopping, "early_stopping"), flag(shuffled, "shuffled"), seed_from(rng), None if store is None else _new_folder(store),
    )  # fmt: skip
    start, limit = time.perf_counter(), None if max_sequences is None else count(max_sequences, "max_sequences")
    by_token = targets != "labels" or pool == "token"
    train, hold = split(batches, plan.seed, limit, by_label=targets == "labels", by_token=by_token)
    if plan.shuffled and targets == "labels":
        mixed = with_shuffled_labels(train, np.random.default_rng((plan.seed, 2)))
    else:
        mixed = train
    layers, laws = {}, {}
    for layer, feature_map in zip(model.kernel_layers, model.feature_maps, strict=True):
        layers[layer], laws[layer] = _align_layer(model, layer, feature_map, (train, mixed, hold), plan)
    result = _joined(layers, model)
    return result.assign_attrs(
        schema=2, targets=targets, pool=pool, shuffled=str(plan.shuffled), seed=str(plan.seed), n_sequences=_size(train),
        n_holdout=_size(hold), seconds=time.perf_counter() - start,
        **{name: json.dumps([[getattr(law, name).describe() for law in laws.get(i, [])] for i in range(len(model.blocks))], default=str)
           for name in Laws._fields},
    )  # fmt: skip


def _align_layer(
    model: Transformer, layer: int, feature_map: FeatureMap, parts: tuple[list, list, list], plan: _Plan
) -> tuple[xr.Dataset, list[Laws]]:
    """Align the heads of one layer and write their particles into its map."""
    feature = simulated_feature(feature_map)
    train, mixed, hold = (joined(_samples(model, part, layer, plan), feature_map.heads) for part in parts)
    if plan.shuffled and plan.targets != "labels":
        mixed = [with_shuffled_keys(cast(Pairs, sample), np.random.default_rng((plan.seed, 2))) for sample in train]
    heads, laws = [], []
    for head, samples in enumerate(zip(train, mixed, hold, strict=True)):
        omega = feature_map.omega[head].detach().cpu().double().numpy()
        unit = unit_of(samples[0], feature)
        seen, used, held = (divided(sample, unit) for sample in samples)
        laws.append(_laws(used, feature, len(omega), plan))
        path = None if plan.folder is None else plan.folder / f"layer{layer}_head{head}.zarr"
        heads.append(_align_head(omega, unit, (seen, held), feature, laws[-1], plan, derived_seed(plan.seed, 1 + layer, head), path))
    result = xr.concat(heads, "head")
    feature_map.load_omega(result.omega_after.values)
    return result, laws


def simulated_feature(feature_map: FeatureMap) -> Feature:
    """The `particles` feature whose particles are the map's omega; ValueError naming a map that has none, or unequal weights."""
    if feature_map.feature is None or feature_map.omega_k is not None or feature_map.positional:
        raise ValueError(
            f"the particles of attention {feature_map.name!r} cannot be simulated: its omega is no particle of a feature of `particles`; "
            "train them by gradient (finetune with freeze_omega=False)"
        )
    weights = feature_map.weights
    if weights is not None and float((weights - 1 / weights.shape[-1]).abs().max()) > 1e-6:
        raise ValueError(f"the particles of attention {feature_map.name!r} must have equal weights to be simulated, got {weights.tolist()}")
    return feature_map.feature


def _samples(model: Transformer, batches: list, layer: int, plan: _Plan) -> list[Sample]:
    """One sample a head."""
    if plan.targets == "labels":
        return list(points(model, batches, layer, plan.pool))
    return list(pairs(model, batches, layer, attend_relation if plan.targets == "attend" else teacher_relation(plan.teacher)))


def _laws(sample: Sample, feature: Feature, n_particles: int, plan: _Plan) -> Laws:
    """Energy, domain and sampler of one head, the user's where given."""
    objective = plan.objective or default_objective(feature, plan.targets)
    laws = default_laws(sample, feature, n_particles, objective, plan.constants)
    own = {"energy": plan.energy and plan.energy(*sample, feature), "domain": plan.domain, "sampler": plan.sampler}
    return laws._replace(**{name: law for name, law in own.items() if law is not None})


def _align_head(
    omega: np.ndarray, unit: float, samples: tuple[Sample, Sample], feature: Feature, laws: Laws, plan: _Plan, key: int, path: Path | None
) -> xr.Dataset:
    """Simulate one head and measure it; omega (particle, particle_dim) in the feature map's units before and after."""
    train, hold = samples
    units = in_units(feature, omega.shape[1], unit)
    start = laws.domain.project(omega * units)
    run = uninterrupted(simulate(start, *laws, n_steps=plan.n_steps, save_every=plan.save_every, rng=key, store=path))
    frames = run.omega.isel(chain=0).transpose("step", "particle", "dim").values.copy()
    frames[0] = omega * units  # the fallback is the model's own start, not its projection
    some = vectors(hold)[:RANK_ROWS]
    paths = {
        "alignment": list(map(agreement(train, feature), frames)),
        "holdout": list(map(agreement(hold, feature), frames)),
        "effective_rank": [feature_rank(feature(some, frame).reshape(len(some), -1)) for frame in frames],
    }
    best = int(np.argmax(paths["holdout"])) if plan.early_stopping else len(frames) - 1
    measured: dict[str, Any] = {name: ("step", np.array(values)) for name, values in paths.items()}
    for name, values in paths.items():
        measured |= {f"{name}_before": values[0], f"{name}_after": values[best]}
    measured |= {
        "gap": paths["alignment"][best] - paths["holdout"][best],
        "chosen_step": int(run.step[best]),
        "unit": unit,
        "start_outside": float(np.mean(np.any(start != omega * units, -1))),
        "omega_before": (("particle", "particle_dim"), omega),
        "omega_after": (("particle", "particle_dim"), frames[best] / units if best else omega),
    }
    kept = [name for name in run if name in _RECORDED or str(name).startswith("energy")]
    return run[kept].isel(chain=0, drop=True).assign(measured).drop_attrs()


def _joined(layers: dict[int, xr.Dataset], model: Transformer) -> xr.Dataset:
    """All layers, with NaN where a layer has no particles, or fewer than another."""
    numbered = [
        part.assign_coords({name: np.arange(part.sizes[name]) for name in ("head", "particle", "particle_dim")}) for part in layers.values()
    ]
    result = (
        xr.concat(numbered, "layer", join="outer", data_vars="all")
        .assign_coords(layer=list(layers))
        .reindex(layer=range(len(model.blocks)))
    )
    for name, unit in _UNITS.items():
        for found in result.data_vars:
            if str(found).removesuffix("_before").removesuffix("_after") == name:
                result[found].attrs["units"] = unit
    return result.assign_coords(attention=("layer", list(model.config.layer_attention)))


def _check(model: Any, batches: Any, targets: Any, pool: Any, teacher: Any, objective: Any, energy: Any, domain: Any) -> None:
    """ValueError for arguments that are wrong whatever the data."""
    if not isinstance(model, Transformer):
        raise ValueError(f"model must be a Transformer, got a {type(model).__name__}")
    check_batches(batches, "batches")
    if not model.kernel_layers:
        raise ValueError(f"model must have kernel attention to be aligned, got {model.config.attention!r}")
    for feature_map in model.feature_maps:
        simulated_feature(feature_map)
    for name, value, allowed in (("targets", targets, TARGETS), ("pool", pool, POOLS), ("objective", objective, (None, *OBJECTIVES))):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    if pool != "sequence" and targets != "labels":
        raise ValueError(f"pool is for targets='labels', got pool={pool!r} and targets={targets!r}")
    if (teacher is not None) != (targets == "teacher"):
        given = None if teacher is None else described(teacher)
        raise ValueError(f"teacher must be given with targets='teacher', and only then, got {given} and targets={targets!r}")
    if targets == "teacher":
        teacher_relation(teacher)
    if energy is not None and not callable(energy):
        raise ValueError(f"energy must be a function of the sample and the feature, got {energy!r}")
    if domain is not None and not hasattr(domain, "project"):
        raise ValueError(f"domain must be a domain of `particles`, got {domain!r}")


def _check_constants(constants: Any, energy: Any, domain: Any, sampler: Any) -> None:
    """ValueError for constants that are unknown, out of range, or belong to what the user replaced."""
    if not isinstance(constants, Mapping | None):
        raise ValueError(f"constants must be a dict, got {described(constants)}")
    owners = {"lam": energy, "s": energy, "step_size": sampler, "beta": sampler, "radius": domain}
    for name, value in (constants or {}).items():
        if name not in CONSTANTS:
            raise ValueError(f"constants must be some of {CONSTANTS}, got {name!r}")
        if owners[name] is not None:
            raise ValueError(f"constants must not say {name!r} where energy, domain or sampler do, got {value!r}")
        positive(value, name, zero=name in ("lam", "s"))


def _every(save_every: int | None, n_steps: int) -> int:
    if save_every is None:
        return SAVE_EVERY if n_steps % SAVE_EVERY == 0 else 1
    return count(save_every, "save_every")


def _size(batches: list) -> int:
    return sum(len(batch["key_mask"]) for batch in batches)


def _new_folder(store: str | os.PathLike) -> Path:
    if not isinstance(store, str | os.PathLike):
        raise ValueError(f"store must be a path, got {store!r}")
    folder = Path(store)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"store must be a new or empty folder, got {str(store)!r}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
