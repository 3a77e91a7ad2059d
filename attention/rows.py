"""Rows of attention under a layer's kernel, by the full matrix, and how far they are from the softmax rows of the same layer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention.activations import Activations, changed, log_softmax_rows, visible
from attention.floored import FlooredKernel
from attention.layer_kernel import LayerKernel

SMALLEST = 1e-6  # weights below count as this in a Kullback-Leibler divergence: signed kernels have negative ones
BAD = 0.01  # a denominator below this share of sum |K| has lost its meaning


class Rows(NamedTuple):
    """Weights (batch, head, query, key) that a kernel and softmax give to values, and what the kernel's denominators are like."""

    weights: Float[Tensor, "batch head query key"]
    log_weights: Float[Tensor, "batch head query key"]  # of weights below `SMALLEST`, that of `SMALLEST`; -inf where not visible
    softmax: Float[Tensor, "batch head query key"]  # log
    values: Float[Tensor, "batch head key value"]
    visible: Bool[Tensor, "batch 1 query key"]
    share: Float[Tensor, "batch head query"]  # sum K / sum |K|, before a floor
    floored: Bool[Tensor, "batch head query"]


def kernel_rows(kernel: LayerKernel, seen: Activations) -> Rows:
    """The rows of one layer on one batch.

    Positive kernels are evaluated as logarithms of phi.phi', one entry at a time; entries that underflow the type count as its least
    number. Signed ones are taken relative to the largest key weight of the row, and those of a `FlooredKernel` raised to its floor.
    """
    q, k, v, log_weight = changed(seen, kernel.preprocess)
    allowed = visible(seen)
    exact = log_softmax_rows(q, k, log_weight, allowed)
    scores, log_query, log_key = _scores(kernel, q, k, log_weight)
    if not kernel.feature_map.signed:
        log_p, some = _log_rows(scores, log_key, allowed), (scores > 0) & allowed
        share = some.any(-1).to(scores.dtype)  # nothing is left of a row whose entries are all 0
        return Rows(log_p.exp().where(some, 0), log_p, exact, v, allowed, share, torch.zeros_like(some[..., 0]))
    log_key = log_key[:, :, None].masked_fill(~allowed, -math.inf)
    top = log_key.detach().amax(-1)
    top = top.where(top > -math.inf, 0)
    entries = scores * (log_key - top[..., None]).exp()
    total = entries.sum(-1)
    share = total / entries.abs().sum(-1).clamp(min=torch.finfo(total.dtype).tiny)
    floored = torch.zeros_like(total, dtype=torch.bool)
    if isinstance(kernel, FlooredKernel):
        weight = torch.zeros_like(k[..., 0]) if log_weight is None else log_weight
        floor = (kernel.log_floor(q, k, weight, seen.key_mask, seen.is_causal) - log_query - top).exp()
        floored, total = total < floor, torch.maximum(total, floor)
        total = total.where(total > 0, math.inf)
    weights = entries / total[..., None]
    log_p = weights.clamp(min=SMALLEST).log().masked_fill(~allowed, -math.inf)
    return Rows(weights, log_p, exact, v, allowed, share, floored)


def log_rows(kernel: LayerKernel, seen: Activations) -> tuple[Tensor, Tensor]:
    """(log weights of a positive kernel, log softmax), (batch, head, query, key): what a fit needs of `kernel_rows`."""
    q, k, _, log_weight = changed(seen, kernel.preprocess)
    allowed = visible(seen)
    scores, _, log_key = _scores(kernel, q, k, log_weight)
    return _log_rows(scores, log_key, allowed), log_softmax_rows(q, k, log_weight, allowed)


def divergence(log_p: Tensor, log_q: Tensor, allowed: Tensor) -> Float[Tensor, "batch head query"]:
    """KL(p || q) of rows given as logarithms; entries that are not visible do not count."""
    return (log_p.exp() * (log_p - log_q).where(allowed, 0)).sum(-1)


@torch.no_grad()
def attention_errors(kernel: LayerKernel, layer: Iterable[Activations]) -> dict[str, Float[Tensor, " head"]]:
    """Means over the visible queries of a layer's batches, for each head, float64.

    kl : KL(softmax || kernel), nats
    total_variation : sum_j |difference| / 2, in [0, 1] for positive kernels
    output_error : ||(P' - P) V|| / ||P V||, norms over all tokens of the layer
    bad_rows : share of rows with a denominator below `BAD` sum |K|
    floored_rows : share of rows whose denominator was raised to a floor
    """
    total: Tensor | float = 0.0
    for seen in layer:
        rows = kernel_rows(kernel, seen)
        difference, exact = rows.weights - rows.softmax.exp(), rows.softmax.exp() @ rows.values
        parts = (
            divergence(rows.softmax, rows.log_weights, rows.visible),
            difference.abs().sum(-1) / 2,
            (difference @ rows.values).square().sum(-1),
            exact.square().sum(-1),
            (rows.share < BAD).to(exact.dtype),
            rows.floored.to(exact.dtype),
            torch.ones_like(rows.share),
        )
        queries = seen.key_mask[:, None, -seen.q.shape[2] :]
        total = total + torch.stack([part.double().where(queries, 0).sum((0, 2)) for part in parts])
    if isinstance(total, float):
        raise ValueError(f"layer must hold at least one batch, got {layer!r}")
    kl, variation, error, norm, bad, floored, n = total
    return {
        "kl": kl / n,
        "total_variation": variation / n,
        "output_error": (error / norm).sqrt(),
        "bad_rows": bad / n,
        "floored_rows": floored / n,
    }


def _scores(kernel: LayerKernel, q: Tensor, k: Tensor, log_weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """phi(q).phi(k) of bounded features (batch, head, query, key), and the log scales of queries and keys (batch, head, time)."""
    position = {"position": torch.arange(q.shape[2], device=q.device)} if kernel.feature_map.positional else {}
    log_query, phi_query = kernel.feature_map(q, role="query", **position)
    log_key, phi_key = kernel.feature_map(k, role="key", **position)
    return phi_query @ phi_key.mT, log_query, log_key if log_weight is None else log_key + log_weight


def _log_rows(scores: Tensor, log_key: Tensor, allowed: Tensor) -> Tensor:
    """log of rows of positive entries scores exp(log_key); -inf where not visible."""
    logits = scores.clamp(min=torch.finfo(scores.dtype).tiny).log() + log_key[:, :, None]
    logits = logits.masked_fill(~allowed, -math.inf)
    total = logits.logsumexp(-1, keepdim=True)
    return logits - total.where(total > -math.inf, 0)
