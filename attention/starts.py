"""First particles of a kernel from the queries and keys of one layer, in closed form: no gradient, no step size.

Everything lives on scaled queries and keys after their invariances (`attention.invariance`), s = q + k.

* Optimal Gaussian proposal. Positive random features estimate exp(q.k) by means over w ~ N(0, I) of exp(w.s - |q|^2/2 - |k|^2/2). For
  Gaussian s with second moment S (of independent pairs) the density whose importance weights have the least mean relative second moment
  is N(0, I + 2 S). Plain sampling has the second moment prod (1 - 2 s_i)^(-1/2) over the eigenvalues s_i of S, infinite from 1/2 on;
  under the optimal density it is prod (1 + 2 s_i)^(1/2). Weights are kept as logarithms.
* Data-matched start. exp(w.s - |w|^2/2) <= exp(|s|^2/2) touches at w = s: particles at the centres of the s that softmax attends to
  stand where the kernel is large.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from attention import draws
from attention.activations import Activations, changed, log_softmax_rows, visible
from attention.invariance import Invariance, Moments, moments

N_POINTS = 4096  # of each head, among which centres are sought
N_LLOYD = 20  # iterations of Lloyd's algorithm


def proposal(
    found: Moments, n_particles: int, generator: torch.Generator
) -> tuple[Float[Tensor, "head particle dim"], Float[Tensor, "head particle"]]:
    """Particles of N(0, I + 2 S), orthogonal within blocks before S stretches them, and their log importance weights."""
    mean = found.query_mean + found.key_mean
    second = found.query_covariance + found.key_covariance + mean[..., None] * mean[..., None, :]
    heads, dim = mean.shape
    root = torch.linalg.cholesky(torch.eye(dim, dtype=torch.float64, device=mean.device) + 2 * second)
    normal = draws.orthogonal(heads, n_particles, dim, generator).to(mean)
    omega = normal @ root.mT
    log_weight = 0.5 * (normal.square().sum(-1) - omega.square().sum(-1)) + root.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
    return omega, log_weight


def attended(
    layer: list[Activations], preprocess: Invariance | None, generator: torch.Generator, n_points: int = N_POINTS
) -> Float[Tensor, "head point dim"]:
    """q + k of about `n_points` pairs of each head, the key drawn from the query's softmax row."""
    sums = []
    for seen in layer:
        q, k, _, log_weight = changed(seen, preprocess)
        rows = log_softmax_rows(q, k, log_weight, visible(seen)).exp().transpose(0, 1)[:, seen.key_mask]  # (head, query, key)
        key = torch.multinomial(rows.flatten(0, 1), 1, generator=generator).view(*rows.shape[:2], 1)
        row = seen.key_mask.nonzero()[:, 0]
        keys = k.transpose(0, 1)[:, row].gather(2, key[..., None].expand(-1, -1, -1, k.shape[-1]))[:, :, 0]
        sums.append(q.transpose(0, 1)[:, seen.key_mask] + keys)
    return _some(torch.cat(sums, 1), n_points, generator)


def union(
    layer: list[Activations], preprocess: Invariance | None, generator: torch.Generator, n_points: int = N_POINTS
) -> Float[Tensor, "head point dim"]:
    """About `n_points` queries and keys of each head."""
    points = []
    for seen in layer:
        q, k, *_ = changed(seen, preprocess)
        points += [x.transpose(0, 1)[:, seen.key_mask] for x in (q, k)]
    return _some(torch.cat(points, 1), n_points, generator)


def centres(points: Float[Tensor, "head point dim"], n_centres: int, generator: torch.Generator) -> Float[Tensor, "head centre dim"]:
    """Centres of k-means (Lloyd's algorithm from random points, all heads at once); a centre without points stays where it is.

    Raises
    ------
    ValueError
        With fewer points than centres.
    """
    heads, n, dim = points.shape
    if n < n_centres:
        raise ValueError(f"batches must hold at least {n_centres} tokens for as many centres, got {n}")
    found = points[:, torch.randperm(n, generator=generator, device=generator.device)[:n_centres]].clone()
    for _ in range(N_LLOYD):
        nearest = torch.cdist(points, found).argmin(-1)
        total = torch.zeros_like(found).scatter_add_(1, nearest[..., None].expand(-1, -1, dim), points)
        size = points.new_zeros(heads, n_centres).scatter_add_(1, nearest, points.new_ones(heads, n))[..., None]
        found = torch.where(size > 0, total / size.clamp(min=1), found)
    return found


def changed_moments(layer: list[Activations], preprocess: Invariance | None) -> Moments:
    """Moments of the queries and keys that a layer's features see."""
    return moments((*changed(seen, preprocess)[:2], seen.key_mask) for seen in layer)


def _some(points: Tensor, n: int, generator: torch.Generator) -> Tensor:
    return points[:, torch.randperm(points.shape[1], generator=generator, device=generator.device)[:n]]
