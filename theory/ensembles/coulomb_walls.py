"""Exact laws of the one-dimensional Coulomb gas between hard walls: n particles on [-half_width, half_width], g(x) = -|x|, nothing else.

The energy is linear in the gaps: the gap with j particles on its left has weight exp(rate_j gap), rate_j = beta strength j (n-j)/(n-1),
and the n + 1 gaps fill the room (Lenard 1961). From wall to wall the number of particles on the left is thus a chain that climbs from
0 to n, and weights of pieces of the room are entries of the exponential of a bidiagonal matrix (Opitz 1964): log Z, densities and samples
follow without any limit or cutoff. The matrix has no negative entry, hence no digit cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import gammaln

from theory.arrays import FloatArray, count, finite, generator, positive

__all__ = ["CoulombWalls"]


@dataclass(frozen=True)
class CoulombWalls:
    """n >= 2 particles with N H_N = -strength/(n-1) sum_{k<l} |x_k - x_l| between walls at inverse temperature beta: s = -1, a `Box`.

    O(n^3) time for a result. At zero temperature half of the particles sit at either wall (`theory.ground_states.end_ground_state`).
    """

    n: int
    beta: float
    strength: float
    half_width: float

    def __post_init__(self) -> None:
        count(self.n, "n", least=2)
        for name in ("beta", "strength", "half_width"):
            positive(getattr(self, name), name, zero=name == "strength")

    @property
    def width(self) -> float:
        """Distance of the walls."""
        return 2 * self.half_width

    @property
    def rates(self) -> FloatArray:
        """rate_j (n+1,): beta times the force that opens the gap between the j-th particle and the next."""
        j = np.arange(self.n + 1.0)
        return self.beta * self.strength * j * (self.n - j) / (self.n - 1)

    @property
    def _climb(self) -> FloatArray:
        """Weights (n,) given to the particles to keep the entries of `_flow` in range, where the middle rate is far above the others; they
        cancel."""
        return self.n / self.width + self.rates.max() - (self.rates[1:] + self.rates[:-1]) / 2

    @property
    def _generator(self) -> FloatArray:
        """The bidiagonal matrix (n+1, n+1) of which `_flow` is the exponential."""
        return np.diag(self.rates) + np.diag(self._climb, 1)

    def _flow(self, length: float) -> tuple[FloatArray, float]:
        """Weights (n+1, n+1) of a piece of that length from i to k particles on the left, relative to exp(the second value)."""
        return _exponential(length * self._generator)

    @property
    def log_partition(self) -> float:
        """log Z_N = log int exp(-beta N H_N) dx."""
        flow, scale = self._flow(self.width)
        return float(gammaln(self.n + 1) + np.log(flow[0, -1]) + scale - np.sum(np.log(self._climb)))

    @property
    def mean_gaps(self) -> FloatArray:
        """E of the gaps (n+1,) from wall to wall, the derivatives of log Z_N in the rates: int flow(t)[0, j] flow(width - t)[j, n] dt, all
        of them on the diagonal of a block of the exponential of twice the size (Van Loan 1978)."""
        m = self.n + 1
        both: FloatArray = np.kron(np.eye(2), self._generator).astype(np.float64)
        both[self.n, m] = 1.0
        flow = _exponential(self.width * both)[0]
        return np.diagonal(flow[:m, m:]) / flow[0, self.n]

    def _visits(self, place: float) -> FloatArray:
        """P(j particles lie below `place`, measured from the left wall), j = 0..n."""
        weight = self._flow(place)[0][0] * self._flow(self.width - place)[0][:, -1]
        return weight / weight.sum()

    @property
    def energy(self) -> float:
        """Exact E H_N (see `theory.ensembles`)."""
        return float(-self.rates @ self.mean_gaps / (self.beta * self.n))

    @property
    def mean_distance(self) -> float:
        """E of the mean |x_k - x_l| over pairs; at strength 0 a third of the width."""
        j = np.arange(self.n + 1)
        return float(2 * (j * (self.n - j)) @ self.mean_gaps / (self.n * (self.n - 1)))

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x) of one particle: the mean number below x over n, shape of x."""
        x = np.clip(finite(x, "x"), -self.half_width, self.half_width)
        counts = [self._visits(place) @ np.arange(self.n + 1) for place in x.ravel() + self.half_width]
        return np.array(counts).reshape(x.shape) / self.n

    def density(self, x: ArrayLike) -> FloatArray:
        """Mean density (mass 1) at x, shape of x; zero outside the walls."""
        x = finite(x, "x")
        total, log_total = self._flow(self.width)
        values = []
        for point in x.ravel():
            if abs(point) > self.half_width:
                values.append(0.0)
                continue
            (left, a), (right, b) = (self._flow(self.half_width + side * point) for side in (1, -1))
            passed = (left[0, :-1] * self._climb) @ right[1:, -1]
            values.append(passed / total[0, -1] * np.exp(a + b - log_total) / self.n)
        return np.array(values).reshape(x.shape)

    def sample(self, rng: int | np.random.Generator, size: int = 1) -> Float[np.ndarray, "size n 1"]:
        """Exact samples (size, n, 1), sorted: the room is halved, and how many particles lie below its middle is drawn, until no piece
        has two; the place of one particle in a piece is a truncated exponential."""
        rng, size = generator(rng), count(size, "size")
        places, start, length = np.zeros((size, self.n)), np.zeros(size), self.width
        pieces = np.stack([np.arange(size), np.zeros(size, np.int64), np.full(size, self.n)])  # sample, particles below start and below end
        while pieces.size:
            row, low, high = pieces
            one = high - low == 1
            places[row[one], low[one]] = start[one] + self._one(low[one], length, rng)
            row, low, high = pieces[:, ~one]
            length /= 2
            flow = self._flow(length)[0]
            share = np.cumsum(flow[low] * flow[:, high].T, axis=1)
            middle = (share < (rng.random(len(row)) * share[:, -1])[:, None]).sum(axis=1)
            start = np.concatenate([start[~one], start[~one] + length])
            pieces = np.concatenate([[row, low, middle], [row, middle, high]], axis=1)
            some = pieces[2] > pieces[1]
            pieces, start = pieces[:, some], start[some]
        return (places - self.half_width)[..., None]

    def _one(self, below: np.ndarray, length: float, rng: np.random.Generator) -> FloatArray:
        """Place in a piece of its one particle, of weight exp((rate_below - rate_below+1) place)."""
        slope = length * (self.rates[below] - self.rates[below + 1])
        u = rng.random(len(below))
        steep = np.where(abs(slope) < 1e-12, 1.0, abs(slope))
        fallen = -np.log1p(u * np.expm1(-steep)) / steep  # of a weight that falls by exp(-steep) over the piece
        rising = np.where(slope > 0, 1 - fallen, fallen)
        return length * np.where(abs(slope) < 1e-12, u, rising)


def _exponential(matrix: FloatArray) -> tuple[FloatArray, float]:
    """exp of a matrix without negative entries by scaling and squaring, divided by exp(the second value) to stay in range."""
    squarings = max(0, int(np.ceil(np.log2(matrix.max() + 1e-300))) + 2)
    term = flow = np.eye(len(matrix))
    for power in range(1, 22):
        term = term @ matrix / (power * 2.0**squarings)
        flow = flow + term
    scale = 0.0
    for _ in range(squarings):
        flow = flow @ flow
        scale = 2 * scale + float(np.log(flow.max()))
        flow = flow / flow.max()
    return flow, scale
