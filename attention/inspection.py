"""What a layer's kernel does, as labelled arrays: attention maps, error against softmax, effective rank, entropy, denominators.

Every function takes the `Heads` of one layer on one batch: `heads_of(model, batch, layer)` for a `Transformer`, `heads_from(q, k,
feature_map)` for raw queries and keys, Heads(kernel, activations) for a layer of a converted Hugging Face model
(`attention.activations.collect`). All is computed in float64 by the full matrix. Padded places are NaN. The pictures are in
`attention.plots`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from attention.activations import Activations, changed, log_softmax_rows, visible
from attention.base import FeatureMap, described
from attention.batches import Batch, on_device
from attention.config import BOTTLENECKS
from attention.layer_kernel import LayerKernel
from attention.mode import evaluating
from attention.model import Transformer
from particles.arrays import flag

PAIRS, ROWS = ("sequence", "head", "query", "key"), ("sequence", "head", "query")
SMALLEST = 1e-6  # weights below count as this in a divergence: kernels may have zero and negative ones


class Heads(NamedTuple):
    """One layer's kernel, None for softmax, and its queries and keys on one batch, as they enter the kernel (already scaled)."""

    kernel: LayerKernel | None
    seen: Activations


def heads_from(q: Tensor, k: Tensor, feature_map: FeatureMap | None, *, key_mask: Tensor | None = None, is_causal: bool = False) -> Heads:
    """`Heads` of raw queries (batch, head, query, dim) and keys (batch, key_head, key, dim), scaled so that softmax is over q.k: what
    `kernel_attention` takes, each multiplied by scale^(1/2), dim ** -0.25 by default.

    feature_map None is softmax itself; key_mask (batch, key) is boolean, True = a real token. As many queries as keys are the same tokens,
    fewer causal ones the last of them; queries of any other number are all real (cross attention).

    Raises
    ------
    ValueError
        On shapes that do not fit, or an object that is no feature map.
    """
    for name, side in (("q", q), ("k", k)):
        if not isinstance(side, Tensor) or side.ndim != 4 or not side.is_floating_point():
            raise ValueError(f"{name} must be float (batch, head, time, dim), got {described(side)}")
    if len(q) != len(k) or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        raise ValueError(f"q and k must have one batch and dim, and q a multiple of k's heads, got {tuple(q.shape)} and {tuple(k.shape)}")
    shape = (k.shape[0], k.shape[2])
    key_mask = torch.ones(shape, dtype=torch.bool, device=k.device) if key_mask is None else key_mask
    if key_mask.dtype != torch.bool or tuple(key_mask.shape) != shape:
        raise ValueError(f"key_mask must be boolean of shape {shape}, got {described(key_mask)}")
    if feature_map is not None and not isinstance(feature_map, torch.nn.Module):
        raise ValueError(f"feature_map must be a FeatureMap or None, got {feature_map!r}")
    k = k.detach().double().masked_fill(~key_mask[:, None, :, None], 0.0)
    seen = Activations(q.detach().double(), k, torch.zeros_like(k), key_mask, flag(is_causal, "is_causal"))
    return Heads(None if feature_map is None else LayerKernel(feature_map), seen)


@torch.no_grad()
def heads_of(model: Transformer, batch: Batch, layer: int) -> Heads:
    """`Heads` of one layer of a model in evaluation mode, of its tokens alone (a "cls" vector is left out).

    ValueError for a layer with a window or a bottleneck (SOFT, Nystromformer, Linformer), which have other pairs.
    """
    if not isinstance(model, Transformer):
        raise ValueError(f"model must be a Transformer, got a {type(model).__name__}")
    batch = on_device(batch, model.device)
    with evaluating(model):
        q, k = model.queries_keys(batch, layer)
    kind, window = model.config.layer_attention[layer], model.config.window
    if kind in BOTTLENECKS or (window is not None and kind != "softmax"):
        raise ValueError(f"layer {layer} must attend by softmax or a kernel of all pairs, got {kind!r} with window={window}")
    attention: Any = model.blocks[layer].attention
    return heads_from(q, k, attention.feature_map, key_mask=batch["key_mask"], is_causal=model.config.causal)


def inspect(model: Transformer, batch: Batch) -> xr.Dataset:
    """Every head of a model on one batch.

    Returns
    -------
    xr.Dataset over (layer, head), NaN where a layer has no such thing: divergence [nat], total_variation (in [0, 1] for positive maps)
    and negative (share of pairs) of the kernel against softmax of the same queries and keys; effective_rank of keys' features; entropy and
    entropy_softmax [nat]; nonpositive (share of rows) and smallest denominators. Coordinate `attention` names each layer's.
    """
    layers = [_summary(model, batch, layer) for layer in range(len(model.blocks))]
    result = xr.concat(layers, "layer", join="outer", data_vars="all").assign_coords(layer=range(len(layers)))
    return result.assign_coords(attention=("layer", list(model.config.layer_attention)))


def _summary(model: Transformer, batch: Batch, layer: int) -> xr.Dataset:
    names = ("divergence", "total_variation", "negative", "effective_rank", "entropy", "entropy_softmax", "nonpositive", "smallest")
    result = xr.Dataset({name: ("head", np.full(model.config.heads, np.nan)) for name in names}, {"head": range(model.config.heads)})
    if model.config.layer_attention[layer] in BOTTLENECKS:
        return result
    heads = heads_of(model, batch, layer)
    entropy = row_entropy(heads).mean(("sequence", "query"))
    result = result.assign(entropy_softmax=entropy.softmax)
    if heads.kernel is None:
        return result
    error, sums, rank = kernel_error(heads), denominators(heads), effective_rank(heads)
    return result.assign(
        divergence=error.divergence, total_variation=error.total_variation, negative=error.negative, effective_rank=rank.key,
        entropy=entropy.kernel, nonpositive=sums.nonpositive, smallest=sums.smallest,
    )  # fmt: skip


def attention_maps(heads: Heads) -> xr.Dataset:
    """softmax, kernel and error = kernel - softmax, each (sequence, head, query, key); `heads` of `heads_of` or `heads_from`.

    A kernel row is divided by the sum of its absolute values: attention itself for positive maps, its shape for signed ones, whose own
    sum may vanish.
    """
    rows = _rows(heads)
    kernel, softmax = (part.where(rows.seen, torch.nan) for part in (rows.shares, rows.log_softmax.exp()))
    return _dataset({"softmax": (PAIRS, softmax, "1"), "kernel": (PAIRS, kernel, "1"), "error": (PAIRS, kernel - softmax, "1")})


def kernel_error(heads: Heads) -> xr.Dataset:
    """The kernel's weights, divided by the sum of their row, against softmax's, pair by pair and for each head.

    `heads` of `heads_of` or `heads_from`.

    Returns
    -------
    xr.Dataset
        (sequence, head, query, key): log_softmax, log_kernel [nat] (the kernel's NaN where its weight is not positive); (head):
        divergence, the mean KL(softmax | kernel) of rows [nat], kernel weights below 1e-6 counting as that; total_variation, mean of
        sum |difference| / 2; negative, the share of pairs whose kernel is negative. Rows with sum 0 have weights 0.
    """
    rows = _rows(heads)
    total = rows.relative[..., None]
    weights = torch.where(total != 0, rows.shares / total, 0.0)
    softmax, used = rows.log_softmax.exp(), rows.seen.any(-1)
    divergence = (softmax * (rows.log_softmax - weights.clamp(min=SMALLEST).log())).where(rows.seen, 0).sum(-1)
    distance = (weights - softmax).abs().where(rows.seen, 0).sum(-1) / 2
    return _dataset(
        {
            "log_softmax": (PAIRS, rows.log_softmax.where(rows.seen, torch.nan), "nat"),
            "log_kernel": (PAIRS, weights.log().where(rows.seen & (weights > 0), torch.nan), "nat"),
            "divergence": (("head",), _mean(divergence, used), "nat"),
            "total_variation": (("head",), _mean(distance, used), "1"),
            "negative": (("head",), _mean((rows.shares < 0).double(), rows.seen), "1"),
        }
    )


def effective_rank(heads: Heads) -> xr.Dataset:
    """(head): query and key, `feature_rank` of the true features of all real tokens; attribute n_features is the most that is possible."""
    kernel, seen = _kernel(heads), heads.seen
    k = seen.k.repeat_interleave(seen.q.shape[1] // seen.k.shape[1], 1)
    ranks: dict[str, tuple[tuple[str, ...], Tensor, str]] = {}
    for role, side, mask in (("query", seen.q, _real_queries(seen)), ("key", k, seen.key_mask)):
        with torch.no_grad():
            log_scale, phi = _features(kernel, side, role)
        log_scale = log_scale.masked_fill(~mask[:, None], -torch.inf)
        features = (phi * (log_scale - log_scale.amax((0, 2), keepdim=True)).exp()[..., None]).transpose(0, 1)
        ranks[role] = (("head",), features.new_tensor([feature_rank(head[mask].cpu().numpy()) for head in features]), "features")
    return _dataset(ranks).assign_attrs(n_features=kernel.feature_map.feature_dim)


def feature_rank(features: np.ndarray) -> float:
    """exp of the entropy of the normalised eigenvalues of phi^T phi: the effective number of directions of features (token, feature)."""
    values = np.linalg.svd(np.asarray(features, float), compute_uv=False) ** 2
    if not values.sum() > 0:
        raise ValueError("features must be finite and not all zero")
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def row_entropy(heads: Heads) -> xr.Dataset:
    """(sequence, head, query), in nats: entropy of softmax's and of the kernel's rows, and `largest`, the logarithm of the visible keys.

    Of a signed kernel it is the entropy of the shares |K| / sum |K|. Without a kernel only softmax's.
    """
    if heads.kernel is None:
        seen, parts = _seen(heads), {"softmax": _softmax(heads).exp()}
    else:
        rows = _rows(heads)
        seen, parts = rows.seen, {"softmax": rows.log_softmax.exp(), "kernel": rows.shares.abs()}
    used = seen.any(-1)
    entropies = {name: -torch.special.xlogy(p, p).where(seen, 0).sum(-1).where(used, torch.nan) for name, p in parts.items()}
    entropies["largest"] = seen.sum(-1).double().log().where(used, torch.nan)
    return _dataset({name: (ROWS, value, "nat") for name, value in entropies.items()})


def denominators(heads: Heads) -> xr.Dataset:
    """What rows of a kernel are divided by under the sum normaliser, relative to what is added up.

    Returns
    -------
    xr.Dataset
        (sequence, head, query): relative = sum K / sum |K|, 1 for positive kernels, 0 where all weights are 0 (rectified maps);
        (head): nonpositive, the share of rows at or below 0, and smallest, the least |relative|: -log10 of it is the number of digits that
        the division loses.
    """
    rows = _rows(heads)
    used = rows.seen.any(-1)
    return _dataset(
        {
            "relative": (ROWS, rows.relative.where(used, torch.nan), "1"),
            "nonpositive": (("head",), _mean((rows.relative <= 0).double(), used), "1"),
            "smallest": (("head",), rows.relative.abs().where(used, torch.inf).amin((0, 2)), "1"),
        }
    )


class _Rows(NamedTuple):
    """K / sum |K| of each row and log softmax (batch, head, query, key), sum K / sum |K| (batch, head, query), the pairs that count."""

    shares: Tensor
    log_softmax: Tensor
    relative: Tensor
    seen: Tensor


def _kernel(heads: Heads) -> LayerKernel:
    if not isinstance(heads, Heads):
        raise ValueError(f"heads must be Heads (see heads_of and heads_from), got {described(heads)}")
    if heads.kernel is None:
        raise ValueError("heads must have a kernel, got a softmax layer")
    return heads.kernel


def _seen(heads: Heads) -> Tensor:
    """Visible pairs of real queries, (batch, head, query, key)."""
    allowed = visible(heads.seen) & _real_queries(heads.seen)[:, None, :, None]
    return allowed.expand(-1, heads.seen.q.shape[1], -1, -1)


def _real_queries(seen: Activations) -> Tensor:
    """(batch, query): the keys' mask where queries are the same tokens, or, causal, the last of them; else all."""
    queries, keys = seen.q.shape[2], seen.k.shape[2]
    if queries == keys or (seen.is_causal and queries < keys):
        return seen.key_mask[:, keys - queries :]
    return torch.ones(len(seen.q), queries, dtype=torch.bool, device=seen.q.device)


def _softmax(heads: Heads) -> Tensor:
    k = heads.seen.k.repeat_interleave(heads.seen.q.shape[1] // heads.seen.k.shape[1], 1)
    return log_softmax_rows(heads.seen.q, k, None, visible(heads.seen))


@torch.no_grad()
def _rows(heads: Heads) -> _Rows:
    """Rows relative to their largest entry, which neither overflows nor loses one; a preprocessed kernel's softmax is unchanged by it."""
    kernel, seen = _kernel(heads), _seen(heads)
    q, k, _, log_weight = changed(heads.seen, kernel.preprocess)
    (_, phi_q), (log_k, phi_k) = _features(kernel, q, "query"), _features(kernel, k, "key")
    entries = phi_q @ phi_k.mT
    logs = entries.abs().log() + (log_k if log_weight is None else log_k + log_weight)[:, :, None]
    logs = logs.masked_fill(~seen, -torch.inf)
    top = logs.amax(-1, keepdim=True)
    entries = entries.sign() * (logs - top.where(top > -torch.inf, 0)).exp()
    shares = entries / entries.abs().sum(-1, keepdim=True).clamp(min=1.0)  # the largest entry is 1, or all are 0
    return _Rows(shares, log_softmax_rows(q, k, log_weight, visible(heads.seen)), shares.sum(-1), seen)


def _features(kernel: LayerKernel, x: Tensor, role: str) -> tuple[Tensor, Tensor]:
    """(log_scale, features) of x (batch, head, time, dim); heads that share particles, as grouped keys do, stand for batch entries."""
    position = {"position": torch.arange(x.shape[2], device=x.device)} if kernel.feature_map.positional else {}
    sets = x.shape[1] if kernel.feature_map.heads == 1 else kernel.feature_map.heads
    folded = x.unflatten(1, (sets, -1)).transpose(1, 2).flatten(0, 1)
    log_scale, phi = kernel.feature_map(folded, role=role, **position)
    log_scale, phi = (part.unflatten(0, (len(x), -1)).transpose(1, 2).flatten(1, 2) for part in (log_scale, phi))
    return log_scale, phi


def _mean(values: Tensor, used: Tensor) -> Tensor:
    """Mean of each head over the rows or pairs that count."""
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    used = used.expand_as(values)
    return values.where(used, 0).sum(axes) / used.sum(axes)


def _dataset(variables: dict[str, tuple[tuple[str, ...], Tensor, str]]) -> xr.Dataset:
    made = {name: (dims, value.cpu().double().numpy(), {"units": unit}) for name, (dims, value, unit) in variables.items()}
    dataset = xr.Dataset(made)  # type: ignore[arg-type]
    return dataset.assign_coords({name: np.arange(size) for name, size in dataset.sizes.items()})
