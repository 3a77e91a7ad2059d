"""A pretrained softmax transformer with kernels in the place of softmax, in closed form: no gradient is taken.

A layer's queries and keys are collected, changed in ways that softmax cannot see (`attention.invariance`), and features are placed where
the changed ones are (`attention.starts`, `attention.nystrom`). `attention.distil` improves on it by gradient.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from attention.activations import Activations, collect
from attention.base import FeatureMap, Particles
from attention.batches import check_batches
from attention.feature_map import feature_map as build
from attention.floored import FlooredKernel
from attention.huggingface import attach, attention_modules, chosen_layers, layer_kernels
from attention.invariance import MODES, Invariance, fold, moments, optimal_invariance
from attention.layer_kernel import LayerKernel
from attention.nystrom import Nystrom
from attention.rows import attention_errors
from attention.seeds import derived_seed, seed_from
from attention.starts import attended, centres, changed_moments, proposal, union
from particles.arrays import count, positive

_SCORED = 4  # draws are compared on every fourth batch
FITS = ("proposal", "kmeans", "nystrom", None)
_PROJECTIONS = (("query", "key"), ("q_lin", "k_lin"), ("q_proj", "k_proj"))


def convert(
    model: nn.Module,
    batches: Iterable[Mapping[str, Tensor]],
    *,
    feature_map: str = "exponential",
    n_features: int = 64,
    fit: str | None = "proposal",
    n_draws: int = 1,
    invariance: str | None = "iso",
    layers: Iterable[int] | None = None,
    error_threshold: float | None = None,
    held_out: Iterable[Mapping[str, Tensor]] | None = None,
    folded: bool = True,
    rng: int | np.random.Generator | torch.Generator,
    **options: Any,
) -> tuple[nn.Module, xr.Dataset]:
    """Put kernels fitted in closed form into a model of Hugging Face transformers, in place.

    Parameters
    ----------
    model : what `attention.huggingface.attach` takes. Layers that have a kernel already count as the softmax they stand for.
    batches : unlabelled inputs, model(**batch), of the lengths that will be used: nothing fitted on sentences holds for long texts. About
        1,000 sentences are enough. Activations of all layers are held in memory (`attention.activations.collect`).
    feature_map, n_features, options : of `attention.feature_map`, one map for every layer with own particles for every head.
    fit : "proposal", the optimal Gaussian proposal, or "kmeans", centres of attended q + k, both for "exponential"; "nystrom", landmarks
        and Jensen's floor (feature_map is not used and must be left as it is); None, the map's own first draw.
    n_draws : of the proposal; each head keeps the one with the least divergence on a quarter of `batches`. Draws differ by a tenth.
    invariance : "iso", means of the corpus; "sent", the mean key of each sequence, not for causal models; None.
    layers : those that are converted, all by default.
    error_threshold : heads with a larger output error on `held_out` stay softmax.
    held_out : batches for the report; by default every fourth of `batches`, which then is not used for the fit.
    folded : write the invariances into the projections, where the model has biases and no rotary embedding; False keeps them in the
        kernels, where `attention.distil` can still find heads that had better stay softmax. `fold_into` does it later.
    rng : seed of all draws.

    Returns
    -------
    model, and a Dataset over (layer, head), on held-out data: kl [nat], total_variation, output_error, bad_rows, floored_rows of
    `attention.rows.attention_errors` before any head is left softmax; softmax (bool); query_second_moment and key_second_moment, of
    scaled queries and keys as the features see them, and the same with `_raw` before. Attribute `settings` is a JSON text.

    Raises
    ------
    ValueError
        On a model that `attach` refuses, "sent" for a causal one, a fit that the map does not know, too few batches.
    """
    modules = attention_modules(model)  # type: ignore[arg-type]
    chosen = chosen_layers(layers, range(len(modules)))
    check_batches(batches, "batches", again=False)
    every = list(batches)
    if held_out is None and len(every) < 4:
        raise ValueError(f"batches must hold at least 4 where held_out is None, got {len(every)}")
    fitted, tested = (every, list(held_out)) if held_out is not None else ([b for i, b in enumerate(every) if i % 4 != 3], every[3::4])
    seen, unseen, seed = collect(model, fitted), collect(model, tested), seed_from(rng)
    how: dict[str, Any] = {"feature_map": feature_map, "n_features": n_features, "fit": fit, "n_draws": n_draws, "invariance": invariance}
    kernels = {layer: layer_kernel(seen[layer], rng=derived_seed(seed, layer), **how, **options) for layer in chosen}
    report = conversion_report(kernels, unseen)
    if error_threshold is not None:
        report = keep_softmax(kernels, report, error_threshold)
    attach(model, kernels)  # type: ignore[arg-type]
    if folded:
        fold_into(model, chosen)
    settings = how | {"error_threshold": error_threshold, "folded": folded, "seed": seed} | options
    return model, report.assign_attrs(settings=json.dumps(settings, default=repr))


def layer_kernel(
    layer: list[Activations],
    *,
    feature_map: str = "exponential",
    n_features: int = 64,
    fit: str | None = "proposal",
    n_draws: int = 1,
    invariance: str | None = "iso",
    rng: int | np.random.Generator | torch.Generator,
    **options: Any,
) -> LayerKernel:
    """The kernel of one layer from its activations, the parameters being those of `convert`."""
    if fit not in FITS or (fit in ("proposal", "kmeans") and feature_map != "exponential"):
        raise ValueError(f"fit must be 'proposal' or 'kmeans' (for 'exponential'), 'nystrom' or None, got {fit!r} for {feature_map!r}")
    if fit == "nystrom" and (feature_map != "exponential" or options):
        raise ValueError(f"fit 'nystrom' is its own feature_map and takes no options, got {feature_map!r} and {options}")
    if count(n_draws, "n_draws") > 1 and fit != "proposal":
        raise ValueError(f"n_draws belongs to fit 'proposal', got {n_draws} for {fit!r}")
    generator = torch.Generator(layer[0].q.device).manual_seed(seed_from(rng))
    before, n_features = best_invariance(layer, invariance), count(n_features, "n_features")
    if fit == "nystrom":
        return _nystrom(layer, before, n_features, generator)
    made = _started(layer, before, feature_map, n_features, fit, n_draws, generator, options)
    return LayerKernel(made, normalise="sum", preprocess=before)


def _nystrom(layer: list[Activations], before: Invariance | None, n_features: int, generator: torch.Generator) -> LayerKernel:
    """Nystrom features with Jensen's floor; heads that are better off with the optimal proposal, on the same data, have that."""
    landmarks = centres(union(layer, before, generator), n_features, generator)
    omega, log_weight = proposal(changed_moments(layer, before), n_features, generator)
    every = torch.ones(len(landmarks), dtype=torch.bool, device=landmarks.device)
    maps = [Nystrom("nystrom", Particles(landmarks)), Nystrom("nystrom", Particles(landmarks)).with_positive(every, omega, log_weight)]
    first, second = (FlooredKernel(features, normalise="sum", preprocess=before) for features in maps)
    maps[0].with_positive(
        attention_errors(first, layer)["output_error"] > attention_errors(second, layer)["output_error"], omega, log_weight
    )
    return first


def _started(
    layer: list[Activations],
    before: Invariance | None,
    name: str,
    n_features: int,
    fit: str | None,
    n_draws: int,
    generator: torch.Generator,
    options: dict[str, Any],
) -> FeatureMap:
    """A feature map with its first particles."""
    q = layer[0].q
    how: dict[str, Any] = {
        "dim": q.shape[-1],
        "heads": q.shape[1],
        "n_features": n_features,
        "generator": generator,
        "dtype": q.dtype,
    } | options
    if fit is None:
        return build(name, **how).to(q.device)
    if fit == "proposal":
        omega, log_weight = _best_proposal(layer, before, n_features, generator, n_draws)
    else:
        omega = centres(attended(layer, before, generator), n_features, generator)
        log_weight = -0.5 * omega.square().sum(-1)
    return _weighted(build(name, **how).to(q.device), omega, log_weight)


def _weighted(made: FeatureMap, omega: Tensor, log_weight: Tensor) -> FeatureMap:
    """An exponential map with these particles and log importance weights, half of them on each side; a common factor cancels."""
    with torch.no_grad():
        made.get_parameter("bias").copy_(0.5 * (log_weight - log_weight.mean(-1, keepdim=True)))
    return made.load_omega(omega.to(made.omega))


def _best_proposal(
    layer: list[Activations], before: Invariance | None, n_features: int, generator: torch.Generator, n_draws: int
) -> tuple[Tensor, Tensor]:
    """Particles and log weights of the optimal proposal: for each head those of the draw with the least divergence on a few batches."""
    found = changed_moments(layer, before)
    omega, log_weight = (torch.stack(parts) for parts in zip(*(proposal(found, n_features, generator) for _ in range(n_draws))))
    if n_draws == 1:
        return omega[0], log_weight[0]
    heads, dim = found.query_mean.shape
    made = build("exponential", dim=dim, heads=heads, n_features=n_features, shared=True, dtype=layer[0].q.dtype).to(layer[0].q.device)
    kernel = LayerKernel(made, normalise="sum", preprocess=before)
    scores = []
    for draw in range(n_draws):
        _weighted(made, omega[draw], log_weight[draw])
        scores.append(attention_errors(kernel, layer[::_SCORED])["kl"])
    best, head = torch.stack(scores).argmin(0), torch.arange(heads, device=omega.device)
    return omega[best, head], log_weight[best, head]


def best_invariance(layer: list[Activations], mode: str | None) -> Invariance | None:
    """The invariance of a layer in a mode of `convert`."""
    if mode not in (*MODES, None):
        raise ValueError(f"invariance must be one of {MODES} or None, got {mode!r}")
    if mode is None:
        return None
    if mode == "sent" and layer[0].is_causal:
        raise ValueError("invariance must be 'iso' or None for a causal model, got 'sent': the mean key of a sequence holds its future")
    centre = mode == "sent"
    found = moments(((seen.q, seen.k, seen.key_mask) for seen in layer), centre_keys=centre)
    return optimal_invariance(found, centre_keys=centre, dtype=layer[0].q.dtype)


def conversion_report(kernels: Mapping[int, LayerKernel], layers: list[list[Activations]]) -> xr.Dataset:
    """The Dataset of `convert`, for kernels {layer: kernel} and activations [layer][batch]."""
    rows = []
    for number, kernel in kernels.items():
        layer = layers[number]
        heads = layer[0].q.shape[1]
        sizes = {}
        for suffix, preprocess in (("", kernel.preprocess), ("_raw", None)):
            found = changed_moments(layer, preprocess)  # type: ignore[arg-type]
            for side, mean, covariance in zip(("query", "key"), found[:2], found[2:]):
                sizes[f"{side}_second_moment{suffix}"] = covariance.diagonal(dim1=-2, dim2=-1).sum(-1) + mean.square().sum(-1)
        stays = torch.zeros(heads, dtype=torch.bool) if kernel.softmax_heads is None else kernel.softmax_heads
        values = attention_errors(kernel, layer) | sizes | {"softmax": stays}
        rows.append(xr.Dataset({name: ("head", value.cpu().numpy()) for name, value in values.items()}))
    report = xr.concat(rows, "layer").assign_coords(layer=list(kernels), head=np.arange(rows[0].sizes["head"]))
    return report.assign_attrs(schema=1)


def keep_softmax(kernels: Mapping[int, LayerKernel], report: xr.Dataset, threshold: float) -> xr.Dataset:
    """Mixed conversion: heads whose output error in `report` is above the threshold stay softmax. Returns the report that says so.

    Raises
    ------
    ValueError
        For a kernel whose invariances are folded: its softmax would lack the keys' log weights.
    """
    stays = report.output_error > positive(threshold, "threshold")
    for layer, kernel in kernels.items():
        if isinstance(kernel.preprocess, Invariance) and kernel.preprocess.describe()["folded"]:
            raise ValueError(f"kernels must not be folded before heads are left softmax, got layer {layer} (convert with folded=False)")
        heads = torch.from_numpy(stays.sel(layer=layer).values.copy())
        kernel.softmax_heads = heads.to(kernel.feature_map.omega.device) if bool(heads.any()) else None
    return report.assign(softmax=stays)


def fold_into(model: nn.Module, layers: Iterable[int] | None = None) -> list[int]:
    """Write the invariances of kernels into the projections of queries and keys where possible; returns the layers where it was.

    The model computes the same to rounding. Left in the kernels are the log weights of the keys and, in mode "sent", the mean key.
    Heads that stay softmax keep their projections. ValueError for layers without a kernel.
    """
    done = []
    modules, kernels = attention_modules(model), layer_kernels(model)  # type: ignore[arg-type]
    for layer in chosen_layers(layers, kernels):
        kernel, found = kernels[layer], _projections(modules[layer])
        if found is None or not isinstance(kernel.preprocess, Invariance) or kernel.preprocess.describe()["folded"]:
            continue
        query, key, columns = found
        kernel.preprocess = fold(query, key, kernel.preprocess.without(kernel.softmax_heads), modules[layer].scaling, columns=columns)
        done.append(layer)
    return done


def _projections(module: Any) -> tuple[nn.Module, nn.Module, tuple[slice, slice] | None] | None:
    """Projections of queries and keys that an invariance can be folded into: with biases, and no rotary embedding after them."""
    if hasattr(module, "num_key_value_groups"):
        return None  # of the models that share keys, which have rotary embeddings
    if hasattr(module, "c_attn"):
        width = module.split_size
        return module.c_attn, module.c_attn, (slice(width), slice(width, 2 * width))
    for names in _PROJECTIONS:
        query, key = (getattr(module, name, None) for name in names)
        if isinstance(query, nn.Linear) and isinstance(key, nn.Linear) and query.bias is not None and key.bias is not None:
            return query, key, None
    return None
