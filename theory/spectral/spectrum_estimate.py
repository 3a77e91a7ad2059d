"""What learned particles say about their spectral measure: density near walls, profiles by shells and coordinates, and their kernel.

Particles omega have shape (particle, dim) or (chain, particle, dim). Particles of one chain repel each other and are not independent:
every error is the standard error over chains, NaN for a single one. Projection leaves an atom on the wall, which has no density:
`wall_atom` measures it, and the densities are of the other particles, with mass 1 - atom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln
from scipy.stats import ncx2

from theory.arrays import FloatArray, finite, numeric, positive

__all__ = [
    "Estimate",
    "ball_density",
    "bandwidth_rule",
    "characteristic_function",
    "line_density",
    "marginal_profile",
    "radial_profile",
    "wall_atom",
]

Bandwidth = float | Literal["scott", "silverman"]
_BLOCK = 1 << 22
_ON_WALL = 1e-9  # a projection leaves |omega| at the radius up to round-off


class Estimate(NamedTuple):
    """Mean over chains and its standard error (NaN for one chain), of the same shape."""

    value: FloatArray
    error: FloatArray


def bandwidth_rule(samples: ArrayLike, rule: Bandwidth = "silverman") -> float:
    """Standard deviation of a Gaussian kernel for samples (n, dim): a number as it is, or a rule times the mean deviation of a coordinate.

    "scott": n^(-1/(dim+4)); "silverman": (n (dim + 2)/4)^(-1/(dim+4)) (Scott 1992; Silverman 1986), the optimum for a normal law:
    they oversmooth several modes and sharp edges, for which give a number. Equal to those of scipy.stats.gaussian_kde in 1-D.
    """
    if not isinstance(rule, str):
        return positive(rule, "bandwidth")
    samples = finite(samples, "samples")
    if samples.ndim != 2 or len(samples) < 2:
        raise ValueError(f"samples must have shape (n, dim) with n of at least 2, got {samples.shape}")
    n, dim = samples.shape
    if rule not in ("scott", "silverman"):
        raise ValueError(f"bandwidth must be a number, 'scott' or 'silverman', got {rule!r}")
    effective = n if rule == "scott" else n * (dim + 2) / 4
    return positive(np.sqrt(np.mean(np.var(samples, axis=0, ddof=1))) * effective ** (-1 / (dim + 4)), "bandwidth of these samples")


def wall_atom(omega: ArrayLike, radius: float) -> Estimate:
    """Share of particles on the sphere |omega| = radius (both ends of the interval in 1-D); a scalar. ValueError if one is outside."""
    on_wall = _on_wall(_particles(omega), radius)
    return _over_chains(on_wall.mean(axis=1))


def line_density(
    omega: ArrayLike, x: ArrayLike, *, low: float = -np.inf, high: float = np.inf, bandwidth: Bandwidth = "silverman"
) -> Estimate:
    """Density at x (m,) of particles on the line or an interval [low, high], by a Gaussian kernel reflected at the walls.

    The reflected kernel is the heat kernel without flux: its mass stays inside exactly and a uniform law is reproduced, but the
    slope at a wall is estimated as 0. Particles exactly on a wall are left out (see `wall_atom`). omega (..., particle, 1).
    """
    omega, x = _particles(omega), finite(x, "x")
    low, high = _wall(low, "low"), _wall(high, "high")
    if omega.shape[2] != 1 or x.ndim != 1:
        raise ValueError(f"omega and x must have shapes (..., particle, 1), (m,), got {omega.shape} and {x.shape}")
    points = np.concatenate([x, omega.ravel()])
    if not low < high or points.min() < low or points.max() > high:
        raise ValueError(f"omega and x must lie in [low, high] = [{low}, {high}], got values from {points.min()} to {points.max()}")
    near = _ON_WALL * np.abs(omega).max()
    free = (omega[..., 0] > low + near) & (omega[..., 0] < high - near)
    width = bandwidth_rule(omega[free], bandwidth)
    images = _images(low, high, width)

    def density(chain: FloatArray) -> FloatArray:
        total = np.zeros(len(x))
        for sign, shift in images:
            total += _blocks(lambda w: _normal(x[:, None] - sign * w[:, 0] - shift, width), chain, len(x))  # noqa: B023
        return total

    return _over_chains(np.array([density(chain[inside]) / len(chain) for chain, inside in zip(omega, free, strict=True)]))


def ball_density(omega: ArrayLike, x: ArrayLike, *, radius: float, bandwidth: Bandwidth = "silverman") -> Estimate:
    """Density at x (m, dim) of particles in a ball, by a Gaussian kernel divided by its mass inside (a noncentral chi-squared law).

    So a uniform law is reproduced up to the wall; elsewhere near it the bias is of the first order in the bandwidth, and the mass
    is right to that order. Source of the edge correction: Diggle 1985. Particles on the wall are left out.
    """
    omega, x, radius = _particles(omega), finite(x, "x"), positive(radius, "radius")
    dim = omega.shape[2]
    if x.ndim != 2 or x.shape[1] != dim or np.linalg.norm(x, axis=1).max(initial=0) > radius * (1 + _ON_WALL):
        raise ValueError(f"x must have shape (m, {dim}) and lie in the ball of radius {radius}, got shape {x.shape}")
    free = ~_on_wall(omega, radius)
    width = bandwidth_rule(omega[free], bandwidth)
    inside = ncx2.cdf((radius / width) ** 2, dim, np.sum(x**2, 1) / width**2)

    def density(chain: FloatArray) -> FloatArray:
        def kernel(w: FloatArray) -> FloatArray:
            return np.exp(-0.5 * np.sum((x[:, None] - w) ** 2, -1) / width**2)

        return _blocks(kernel, chain, len(x) * dim) / (np.sqrt(2 * np.pi) * width) ** dim / inside

    return _over_chains(np.array([density(chain[mask]) / len(chain) for chain, mask in zip(omega, free, strict=True)]))


def radial_profile(omega: ArrayLike, edges: ArrayLike, *, radius: float | None = None) -> Estimate:
    """Density per volume, averaged over the shells between the increasing radii edges (m+1,); shape (m,).

    With `radius`, particles on that wall are left out; without, those that round-off leaves beyond the last edge are. Compare with
    a law by its masses of the same shells: no bandwidth, no bias.
    """
    omega, edges = _particles(omega), _edges(edges)
    if edges[0] < 0:
        raise ValueError(f"edges must be at least 0, got {edges[0]}")
    dim = omega.shape[2]
    with np.errstate(divide="ignore"):  # shells by logarithms: r^dim leaves the floats, and thin shells cancel
        outer, inner = dim * np.log(edges[1:]), dim * np.log(edges[:-1])
    volume = np.exp(dim / 2 * np.log(np.pi) - gammaln(dim / 2 + 1) + outer) * -np.expm1(inner - outer)
    free = np.ones(omega.shape[:2], dtype=bool) if radius is None else ~_on_wall(omega, radius)
    return _histogram(np.linalg.norm(omega, axis=2), free, edges, volume)


def marginal_profile(omega: ArrayLike, edges: ArrayLike, axis: int, *, radius: float | None = None) -> Estimate:
    """Density of coordinate number `axis` (from 0), averaged over the cells of edges (m+1,); shape (m,). `radius` as above."""
    omega, edges = _particles(omega), _edges(edges)
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not 0 <= axis < omega.shape[2]:
        raise ValueError(f"axis must be an integer from 0 to {omega.shape[2] - 1}, got {axis!r}")
    free = np.ones(omega.shape[:2], dtype=bool) if radius is None else ~_on_wall(omega, radius)
    return _histogram(omega[..., axis], free, edges, np.diff(edges))


def characteristic_function(
    omega: ArrayLike, delta: ArrayLike, *, method: Literal["auto", "exact", "finufft"] = "auto", tol: float = 1e-12
) -> Estimate:
    """Learned stationary kernel mean cos(omega . delta) at delta (..., dim), walls included; shape (...).

    "exact" sums in blocks; "finufft" (dim <= 3, needs the package finufft) is a nonuniform FFT of relative error about tol;
    "auto" takes it for 10^7 products or more where it is installed. Barnett, Magland & af Klinteberg 2019.
    """
    omega, delta = _particles(omega), finite(delta, "delta")
    if delta.ndim == 0 or delta.shape[-1] != omega.shape[2]:
        raise ValueError(f"delta must have a last axis of {omega.shape[2]}, got shape {delta.shape}")
    if method not in ("auto", "exact", "finufft"):
        raise ValueError(f"method must be 'auto', 'exact' or 'finufft', got {method!r}")
    points, tol = delta.reshape(-1, omega.shape[2]), positive(tol, "tol")
    if method == "finufft" or (method == "auto" and omega.shape[1] * len(points) >= 1e7 and _has_finufft(omega.shape[2])):
        sums = np.array([_nonuniform_fft(chain, points, tol) for chain in omega])
    else:
        sums = np.array([_blocks(lambda w: np.cos(points @ w.T), chain, len(points)) for chain in omega])
    return _over_chains((sums / omega.shape[1]).reshape(len(omega), *delta.shape[:-1]))


def _has_finufft(dim: int) -> bool:
    from importlib.util import find_spec

    return dim <= 3 and find_spec("finufft") is not None


def _nonuniform_fft(omega: FloatArray, delta: FloatArray, tol: float) -> FloatArray:
    """Sum over particles of cos(omega . delta), (m,), by FINUFFT's type 3."""
    dim = omega.shape[1]
    if dim > 3:
        raise ValueError(f"method 'finufft' needs dim of at most 3, got {dim}")
    import finufft

    transform = (finufft.nufft1d3, finufft.nufft2d3, finufft.nufft3d3)[dim - 1]
    columns = [np.ascontiguousarray(column) for column in omega.T], [np.ascontiguousarray(column) for column in delta.T]
    return transform(*columns[0], np.ones(len(omega), dtype=complex), *columns[1], eps=tol).real


def _particles(omega: ArrayLike) -> FloatArray:
    """omega as (chain, particle, dim)."""
    omega = finite(omega, "omega")
    omega = omega[None] if omega.ndim == 2 else omega
    if omega.ndim != 3 or not omega.size:
        raise ValueError(f"omega must have shape (particle, dim) or (chain, particle, dim), got {omega.shape}")
    return omega


def _on_wall(omega: FloatArray, radius: float) -> np.ndarray:
    norms = np.linalg.norm(omega, axis=2)
    if norms.max() > positive(radius, "radius") * (1 + _ON_WALL):
        raise ValueError(f"omega must lie in the ball of radius {radius}, got a norm of {norms.max()}")
    return norms >= radius * (1 - _ON_WALL)


def _over_chains(values: FloatArray) -> Estimate:
    """values (chain, ...) to their mean and standard error."""
    n = len(values)
    error = np.std(values, axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(values.shape[1:], np.nan)
    return Estimate(np.asarray(values.mean(axis=0)), np.asarray(error))


def _histogram(values: FloatArray, free: np.ndarray, edges: FloatArray, volume: FloatArray) -> Estimate:
    """Shares of all particles that are free and in each cell, over its volume."""
    counts = np.array([np.histogram(chain[mask], edges)[0] for chain, mask in zip(values, free, strict=True)])
    return _over_chains(counts / values.shape[1] / volume)


def _blocks(kernel: Callable[[FloatArray], FloatArray], omega: FloatArray, width: int) -> FloatArray:
    """Sum over particles of kernel(omega block) (m, block), in blocks of bounded memory."""
    size = max(1, _BLOCK // max(width, 1))
    total = kernel(omega[:size]).sum(axis=1)
    for start in range(size, len(omega), size):
        total += kernel(omega[start : start + size]).sum(axis=1)
    return total


def _images(low: float, high: float, width: float) -> list[tuple[float, float]]:
    """(sign, shift) of the particle itself and its mirror images sign * w + shift in the walls, as far as 9 bandwidths reach."""
    if np.isfinite(low) and np.isfinite(high):
        period = 2 * (high - low)
        n = int(np.ceil(9 * width / period)) + 1
        return [pair for k in range(-n, n + 1) for pair in ((1.0, k * period), (-1.0, 2 * low + k * period))]
    return [(1.0, 0.0)] + [(-1.0, 2 * wall) for wall in (low, high) if np.isfinite(wall)]


def _normal(x: FloatArray, width: float) -> FloatArray:
    return np.exp(-0.5 * (x / width) ** 2) / (np.sqrt(2 * np.pi) * width)


def _wall(value: float, name: str) -> float:
    number = numeric(value, name)
    if number.ndim or np.isnan(number):
        raise ValueError(f"{name} must be a number or infinite, got {value!r}")
    return float(number)


def _edges(edges: ArrayLike) -> FloatArray:
    edges = finite(edges, "edges")
    if edges.ndim != 1 or len(edges) < 2 or (np.diff(edges) <= 0).any():
        raise ValueError(f"edges must be increasing, shape (m+1,), got {edges!r}")
    return edges
