"""Energies made of a user's function: of a particle's position (`External`), or of the distance of a pair (`Pair`).

Where the user gives no derivative it is torch's, by automatic differentiation; where he does, it is compared with finite differences of
the value at the first particles it sees, because a wrong sign would run silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from particles.arrays import Array, as_omega, is_torch, namespace
from particles.domain import cast_like, from_host, norms, to_float64, to_host
from particles.energy import Energy
from particles.fingerprint import describe_callable
from particles.pairwise import gaps
from particles.random import Key
from particles.riesz import as_period
from particles.targets import sum64

_BLOCK = 2**18  # numbers in one block of pairs


class _Differentiable:
    """A user's function and its derivative; `role` is the derivative's name in messages."""

    def __init__(self, value: Callable, slope: Callable | None, role: str) -> None:
        for name, given in (("value", value), (role, slope)):
            if not callable(given) and (given is not None or name == "value"):
                raise ValueError(f"{name} must be callable, got {given!r}")
        self.value, self.slope, self.role = value, slope, role
        self._compared = False

    def __call__(self, at: Array, per_row: bool, want_value: bool) -> tuple[Array, Array]:
        """(values, slopes) at points `at`: (..., dim) -> (...) when `per_row`, else element by element; no values unless wanted."""
        shape = at.shape[:-1] if per_row else at.shape
        if self.slope is None:
            return self._differentiated(at, shape)
        slopes = _like(self.slope(at), at, at.shape, self.role)
        if not self._compared:
            self._compare(at, slopes, shape)
        return (self.values(at, shape) if want_value else 0.0), slopes

    def values(self, at: Array, shape: Any) -> Array:
        """The value alone."""
        if self.slope is None:
            return self._differentiated(at, shape)[0]
        return _like(self.value(at), at, shape, "value")

    def _differentiated(self, at: Array, shape: Any) -> tuple[Array, Array]:
        """By torch, in at's dtype; NumPy points go there in float64 and come back."""
        import torch

        points = (at.detach() if is_torch(at) else torch.from_numpy(np.array(at, np.float64))).clone().requires_grad_()
        try:
            with torch.enable_grad():
                values = self.value(points)
                (slopes,) = torch.autograd.grad(values.sum(), points)
        except Exception as error:
            reason = f"without {self.role} value must be made of torch operations on its argument; it raised {error!r}"
            raise ValueError(f"{reason}. Give {self.role}=... for a NumPy function") from error
        if tuple(values.shape) != tuple(shape):
            raise ValueError(f"value must return shape {tuple(shape)}, got {tuple(values.shape)}")
        values = values.detach()
        return (values, slopes) if is_torch(at) else (values.numpy(), slopes.numpy())

    def _compare(self, at: Array, slopes: Array, shape: Any) -> None:
        """ValueError unless central differences along one direction agree with the slopes in 95 % of the points where both are finite."""
        eps = float(namespace(at).finfo(at.dtype).eps)
        per_row, size = at.shape != shape, float(abs(at).mean()) or 1.0
        direction = _direction(at) if per_row else at / size
        h = size * eps ** (1 / 3)
        high, low = (to_host(self.values(at + sign * h * direction, shape)) for sign in (1, -1))
        expected = to_host(slopes * direction).sum(-1) if per_row else to_host(slopes * direction)
        with np.errstate(all="ignore"):
            numerical, noise = (high - low) / (2 * h), 10 * eps * (abs(high) + abs(low)) / h
            allowed = eps ** (1 / 6) * np.maximum(abs(numerical), abs(expected)) + noise + eps**0.5 * np.median(abs(expected))
            wrong = abs(numerical - expected) > allowed  # False where one is NaN or infinite: outside the function's domain
        if wrong.sum() > 0.05 * wrong.size:  # a kink may lie within the step
            k = np.flatnonzero(wrong)[0]
            found = f"{expected.flat[k]:.6g} where differences of value give {numerical.flat[k]:.6g}"
            raise ValueError(f"{self.role} must be the derivative of value, got {found}, and so at {wrong.mean():.0%} of the points")
        self._compared = True

    def describe(self) -> dict[str, Any]:
        """Names and fingerprints of both functions."""
        return {"value": describe_callable(self.value), self.role: self.slope and describe_callable(self.slope)}


def _direction(at: Array) -> Array:
    """One unit vector with no zero and no symmetry, like `at` (..., dim)."""
    along = 1 + np.modf(np.arange(1, at.shape[-1] + 1) * 0.6180339887498949)[0]
    return from_host(along / np.sqrt(along @ along), at)


def _like(result: Any, at: Array, shape: Any, name: str) -> Array:
    """A user function's result, of the kind of its argument; ValueError for another shape or kind."""
    result = result if is_torch(at) else np.asarray(result)
    if is_torch(result) != is_torch(at) or tuple(result.shape) != tuple(shape):
        kind = "a torch tensor" if is_torch(at) else "an array"
        raise ValueError(
            f"{name} must return {kind} of shape {tuple(shape)}, got {getattr(result, 'shape', result)} ({type(result).__name__})"
        )
    return result


class _UserEnergy(Energy):
    """A term with a name of its own, made of a `_Differentiable`."""

    def __init__(self, name: str, function: _Differentiable) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"name must be a word for the energy's term, got {name!r}")
        self.term = name  # type: ignore[misc]
        self._function = function

    def value(self, omega: Array) -> Array:
        omega = as_omega(omega)
        if not (is_torch(omega) and omega.requires_grad):
            return self._evaluate(omega, None, True)[0]
        value, gradient = self._evaluate(omega.detach(), None, True)
        return value + sum64((omega - omega.detach()) * gradient, (-2, -1)) / omega.shape[-2]  # the value, with its gradient's history

    def describe(self) -> dict[str, Any]:
        return {"name": type(self).__name__, "term": self.term, **self._function.describe()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._function.describe()['value']['name']}, name={self.term!r})"


class External(_UserEnergy):
    """H = (1/N) sum_k V(omega_k) for a user's potential V: the drift of a particle is minus V's gradient.

    Parameters
    ----------
    value
        V: (..., particle, dim) -> (..., particle), on NumPy or torch as the run does. Without a gradient, made of torch operations
        (NumPy particles reach it as float64 tensors).
    gradient
        (..., particle, dim) -> (..., particle, dim), V's gradient; None for torch's automatic differentiation.
    name
        The term's name: the run records "energy_<name>".

    Raises
    ------
    ValueError
        For arguments that are not callable or no word; in use, for results of a wrong shape or kind, a value that torch cannot
        differentiate where no gradient was given, and a gradient that disagrees with differences of the value.
    """

    bodies = 1

    def __init__(self, value: Callable, gradient: Callable | None = None, *, name: str) -> None:
        super().__init__(name, _Differentiable(value, gradient, "gradient"))

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        values, slopes = self._function(omega, True, want_value)
        return sum64(values, (-1,)) / omega.shape[-2] if want_value else 0.0, cast_like(slopes, omega)


class Pair(_UserEnergy):
    """W = 1/(2N(N-1)) sum_{k != l} g(|omega_k - omega_l|) for a user's g, its strength included; each pair is evaluated once.

    Coincident pairs exert no force; their energy is g(0) where that is finite, else infinite (positive when g(0) is NaN).
    Memory is bounded: g sees some of the pairs at a time, of one chain or of several.

    Parameters
    ----------
    value
        g: distances (pair,) -> (pair,), all positive except for one call with a single 0 when particles coincide; NumPy or torch in
        omega's dtype. Without a derivative, made of torch operations (NumPy distances reach it as float64 tensors).
    derivative
        g': (pair,) -> (pair,), negative for a repulsion; None for torch's automatic differentiation.
    name
        The term's name: the run records "energy_<name>".
    period
        The torus with this period, one number or one per coordinate: distances are those of the nearest images, delta - L round(delta/L)
        in each coordinate. Right for a g that has died out at half the period; otherwise the energy has kinks there, and the smooth
        choice is `Riesz(..., period=...)`.

    Raises
    ------
    ValueError
        As for `External`; for a period that is not positive or does not fit omega.
    """

    bodies = 2

    def __init__(self, value: Callable, derivative: Callable | None = None, *, name: str, period: Any = None) -> None:
        super().__init__(name, _Differentiable(value, derivative, "derivative"))
        self.period = as_period(period)

    def _evaluate(self, omega: Array, key: Key | None, want_value: bool) -> tuple[Array, Array]:
        n = omega.shape[-2]
        x = to_float64(omega).reshape(-1, *omega.shape[-2:])
        total, force = namespace(x).zeros_like(x[:, 0, 0]), namespace(x).zeros_like(x)
        for chains, rows in self._blocks(x):
            total[chains] += self._block(x[chains], rows, omega, force[chains], want_value)
        pairs = max(n - 1, 1)
        return total.reshape(omega.shape[:-2])[()] / (n * pairs), cast_like(force.reshape(omega.shape) / pairs, omega)

    def _blocks(self, x: Array) -> Iterator[tuple[slice, slice]]:
        """Some chains and some particles k: the pairs k < l that are in memory at once."""
        n, dim = x.shape[-2:]
        rows = min(n, max(1, _BLOCK // (n * (dim + 4))))
        chains = max(1, _BLOCK // (rows * n * (dim + 4)))
        for c in range(0, len(x), chains):
            for k in range(0, n - 1, rows):
                yield slice(c, c + chains), slice(k, min(k + rows, n - 1))

    def _pairs(self, x: Array, rows: slice, omega: Array) -> tuple[Array, Array, Array, Array]:
        """(differences, distances, which pairs have k < l and are apart, which have k < l and coincide) for k in `rows`, l from there."""
        gap = x[:, rows, None] - x[:, None, rows.start :]
        if self.period is not None:
            period = _per_coordinate(self.period, x)
            gap = gap - period * namespace(x).round(gap / period)
        r = norms(gap)
        upper = from_host(np.triu(np.ones(tuple(r.shape[1:])), 1), r) > 0
        apart = cast_like(r, omega) >= float(namespace(x).finfo(omega.dtype).tiny) ** 0.5
        return gap, r, upper & apart, upper & ~apart

    def _block(self, x: Array, rows: slice, omega: Array, force: Array, want_value: bool) -> Array:
        """Add the forces of each chain's pairs k < l with k in `rows` to `force`; their energies (chain,)."""
        xp = namespace(x)
        gap, r, apart, together = self._pairs(x, rows, omega)
        weight, energy = xp.zeros_like(r), xp.zeros_like(r)
        if bool(apart.any()):
            values, slopes = self._function(cast_like(r[apart], omega), False, want_value)
            weight[apart] = slopes / r[apart]
            energy[apart] = values + 0 * r[apart]
        if want_value and bool(together.any()):
            energy[together] = self._at_zero(omega)
        force[:, rows] += xp.einsum("ckl,ckld->ckd", weight, gap)
        force[:, rows.start :] -= xp.einsum("ckl,ckld->cld", weight, gap)
        return energy.reshape(len(x), -1).sum(-1)

    def _at_zero(self, omega: Array) -> float:
        """The energy of a coincident pair."""
        with np.errstate(all="ignore"):
            value = float(self._function.values(namespace(omega).zeros_like(omega[..., 0, 0].reshape(-1)[:1]), (1,))[0])
        return np.inf if np.isnan(value) else value

    def diagnostics(self, omega: Array) -> dict[str, Array]:
        """coincident: pairs at distance 0; min_gap: smallest distance of a pair (with a period, of nearest images)."""
        coincident, gap = gaps(as_omega(omega)) if self.period is None else self._gaps(as_omega(omega))
        return {"coincident": coincident, "min_gap": gap}

    def _gaps(self, omega: Array) -> tuple[Array, Array]:
        """`pairwise.gaps` of nearest images."""
        omega = omega.detach() if is_torch(omega) else omega
        x = to_float64(omega).reshape(-1, *omega.shape[-2:])
        xp = namespace(x)
        coincident, closest = xp.zeros_like(x[:, 0, 0], dtype=xp.int64), xp.full_like(x[:, 0, 0], np.inf)
        for chains, rows in self._blocks(x):
            _, r, apart, together = self._pairs(x[chains], rows, omega)
            coincident[chains] += together.sum((1, 2))
            closest[chains] = xp.minimum(closest[chains], xp.amin(xp.where(apart | together, r, np.inf), (1, 2)))
        return coincident.reshape(omega.shape[:-2])[()], closest.reshape(omega.shape[:-2])[()]

    def describe(self) -> dict[str, Any]:
        """Name, fingerprint of the function and settings as JSON values."""
        return super().describe() | {"period": list(self.period) if isinstance(self.period, tuple) else self.period}


def _per_coordinate(period: float | tuple[float, ...], x: Array) -> Array:
    """The period of every coordinate, (dim,) like x; ValueError where the numbers of coordinates differ."""
    if isinstance(period, tuple) and len(period) != x.shape[-1]:
        raise ValueError(f"period must have {x.shape[-1]} numbers for omega of dim {x.shape[-1]}, got {period!r}")
    return from_host(np.broadcast_to(np.asarray(period, float), x.shape[-1:]).copy(), x)
