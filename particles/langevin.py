"""Projected Langevin dynamics: one Euler-Maruyama step, and what keeps it inside the domain.

Algorithm 1 of the Coulomb paper: w <- P(w - eta grad_w(N H_N) + sqrt(2 eta / beta) xi). Mobility is 1, so the diffusion constant is
1/beta and, as eta -> 0, the stationary law is exp(-beta N H_N) on the domain.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from particles.arrays import Array, as_float, count, is_torch, namespace, positive
from particles.domain import Box, Domain, FullSpace, norms, safe_norms, scale_rows

SCHEMES = ("projected", "reflected")


class DivergenceError(ArithmeticError):
    """A particle left the numbers.

    Attributes
    ----------
    step, chain, particle
        Where it happened first; `step` counts the steps completed before.
    omega
        The last finite state, with omega's shape.
    """

    def __init__(self, step: int, chain: int, particle: int, omega: Array):
        super().__init__(step, chain, particle, omega)
        self.step, self.chain, self.particle, self.omega = step, chain, particle, omega

    def __str__(self) -> str:
        return (
            f"particle {self.particle} of chain {self.chain} became NaN or infinite in step {self.step}: reduce step_size, or give "
            "the sampler a drift_cap; the last finite state is this error's .omega"
        )


@dataclass(frozen=True)
class Schedule:
    """A value that moves from `start` (at step 0) to `end` (at `n_steps` and after); made by `linear` and `geometric`."""

    name: str
    start: float
    end: float
    n_steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", positive(self.start, "start"))
        object.__setattr__(self, "end", positive(self.end, "end"))
        object.__setattr__(self, "n_steps", count(self.n_steps, "n_steps"))

    def __call__(self, step: int) -> float:
        fraction = min(step / self.n_steps, 1.0)
        if self.name == "linear":
            return self.start + fraction * (self.end - self.start)
        return self.start * (self.end / self.start) ** fraction

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": self.name, "start": self.start, "end": self.end, "n_steps": self.n_steps}


def linear(start: float, end: float, n_steps: int) -> Schedule:
    """From `start` to `end` in equal differences over `n_steps`, constant after."""
    return Schedule("linear", start, end, n_steps)


def geometric(start: float, end: float, n_steps: int) -> Schedule:
    """From `start` to `end` in equal ratios over `n_steps`, constant after."""
    return Schedule("geometric", start, end, n_steps)


Value = float | Callable[[int], float]


def _at(value: Value, step: int, name: str) -> float:
    """The schedule's value at a step, checked."""
    if not callable(value):
        return value
    number = value(step)
    if not isinstance(number, numbers.Real) or not number > 0 or (number == math.inf and name != "beta"):
        raise ValueError(f"{name} must be positive, got {number!r} at step {step}")
    return float(number)


def _infinite(beta: Any) -> bool:
    """Whether beta is the number infinity."""
    return isinstance(beta, numbers.Real) and beta == math.inf


def _describe(value: Value) -> Any:
    """A number, "inf", or a schedule's description; a user's callable is known by its name only."""
    if callable(value):
        own = getattr(value, "describe", None)
        return own() if own else {"name": getattr(value, "__qualname__", type(value).__name__)}
    return "inf" if value == math.inf else value


@dataclass(frozen=True)
class Langevin:
    """The Euler-Maruyama step of Algorithm 1 (Coulomb paper) with a choice at the wall and two guards.

    Parameters
    ----------
    step_size, beta
        eta and inverse temperature: positive numbers, or callables of the step number such as `linear(...)` (beta may be inf).
    scheme
        "projected": nearest point, the paper's; leaves an atom on the wall of mass about rho_wall sqrt(eta / beta).
        "reflected": mirrored, no atom, error O(eta).
    drift_cap
        Largest length of a particle's drift in one step; None is off. Capped particles are counted.
    clip
        Largest length of a particle's gradient (the paper's gradient clipping); None is off.
    preconditioner
        Positive mobilities m (dim,): drift m eta grad and noise sqrt(2 m eta / beta), which leaves the stationary law unchanged.
        Only for `FullSpace` and `Box`: elsewhere the Euclidean projection belongs to another metric.

    Raises
    ------
    ValueError
        For a value outside these ranges, or (in `step`) a preconditioner that does not fit the domain.
    """

    step_size: Value
    beta: Value
    _: KW_ONLY
    scheme: str = "projected"
    drift_cap: float | None = None
    clip: float | None = None
    preconditioner: Any = None

    def __post_init__(self) -> None:
        if not callable(self.step_size):
            object.__setattr__(self, "step_size", positive(self.step_size, "step_size"))
        if not callable(self.beta) and not _infinite(self.beta):
            object.__setattr__(self, "beta", positive(self.beta, "beta"))
        if self.scheme not in SCHEMES:
            raise ValueError(f"scheme must be one of {SCHEMES}, got {self.scheme!r}")
        for name in ("drift_cap", "clip"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, positive(getattr(self, name), name))
        if self.preconditioner is not None:
            mobility = as_float(self.preconditioner, "preconditioner")
            if mobility.ndim != 1 or not bool((mobility > 0).all()):
                raise ValueError(f"preconditioner must be positive and of shape (dim,), got {self.preconditioner!r}")
            object.__setattr__(self, "preconditioner", tuple(float(m) for m in mobility))

    def check(self, domain: Domain) -> None:
        """ValueError if this sampler cannot run on `domain`."""
        if self.preconditioner is None:
            return
        if not isinstance(domain, (FullSpace, Box)):
            raise ValueError(f"preconditioner needs a FullSpace or Box domain, got {type(domain).__name__}")
        if len(self.preconditioner) != domain.dim:
            raise ValueError(f"preconditioner must have shape ({domain.dim},) for this domain, got ({len(self.preconditioner)},)")

    def step(
        self,
        omega: Float[Array, "*lead particle dim"],
        gradient: Float[Array, "*lead particle dim"],
        noise: Float[Array, "*lead particle dim"],
        domain: Domain,
        step: int,
    ) -> tuple[Float[Array, "*lead particle dim"], dict[str, Array]]:
        """One step from `omega`; nothing is written in place. NumPy's overflow warnings are off: divergence raises.

        Parameters
        ----------
        omega, gradient, noise
            Arrays (particle, dim) or (chain, particle, dim): the state, the gradient of N H_N there, standard normals.
        step
            The number of steps done before, for the schedules and the error.

        Returns
        -------
        omega, info
            The new state; `info` holds the fractions of particles moved back by the wall ("projected") and shortened by the cap
            ("capped"), of omega's shape without its last two axes.

        Raises
        ------
        DivergenceError
            If a particle becomes NaN or infinite.
        """
        self.check(domain)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._step(omega, gradient, noise, domain, step)

    def _step(self, omega: Array, gradient: Array, noise: Array, domain: Domain, step: int) -> tuple[Array, dict[str, Array]]:
        drift, capped = self._drift(gradient, step)
        moved = omega - drift + self._diffusion(noise, step)
        outside = ~domain.contains(moved)
        if not _any(outside):
            return moved, {"projected": _fraction(None, omega), "capped": _fraction(capped, omega)}
        _require_finite(moved, omega, step)
        moved = domain.project(moved) if self.scheme == "projected" else domain.reflect(moved)
        return moved, {"projected": _fraction(outside, omega), "capped": _fraction(capped, omega)}

    def _drift(self, gradient: Array, step: int) -> tuple[Array, Array | None]:
        """eta m grad after clip and cap, and which particles were capped (None: no particle)."""
        if self.clip is not None:
            gradient, _ = _shorten(gradient, self.clip)
        drift = gradient * _at(self.step_size, step, "step_size")
        if self.preconditioner is not None:
            drift = drift * _like(self.preconditioner, drift)
        return (drift, None) if self.drift_cap is None else _shorten(drift, self.drift_cap)

    def _diffusion(self, noise: Array, step: int) -> Array:
        """sqrt(2 eta m / beta) xi; the mobility enters by its square root."""
        noise = noise * math.sqrt(2 * _at(self.step_size, step, "step_size") / _at(self.beta, step, "beta"))
        return noise if self.preconditioner is None else noise * _like(self.preconditioner, noise) ** 0.5

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values; callables without a `describe` appear by name."""
        return {
            "name": "Langevin",
            "step_size": _describe(self.step_size),
            "beta": _describe(self.beta),
            "scheme": self.scheme,
            "drift_cap": self.drift_cap,
            "clip": self.clip,
            "preconditioner": None if self.preconditioner is None else list(self.preconditioner),
        }


def _like(values: Any, array: Array) -> Array:
    """`values` as an array of `array`'s type, dtype and device."""
    if namespace(array) is np:
        return np.asarray(values, array.dtype)
    return array.new_tensor(values)


def _any(mask: Array) -> bool:
    """Whether any entry is True."""
    return bool(mask.any() if is_torch(mask) else np.logical_or.reduce(mask, axis=None))


def _fraction(mask: Array | None, omega: Array) -> Array:
    """The mean over particles of a boolean (..., particle), float64 of omega's leading shape; None means nowhere True."""
    if not is_torch(omega):
        return np.zeros(omega.shape[:-2]) if mask is None else mask.mean(-1)
    return omega.new_zeros(omega.shape[:-2]).double() if mask is None else mask.double().mean(-1)


def _shorten(x: Array, limit: float) -> tuple[Array, Array | None]:
    """Rows of x (..., particle, dim) longer than `limit` scaled to that length, and which they were (None: no row)."""
    over = norms(x) > limit
    if not _any(over):
        return x, None
    return scale_rows(x, limit / namespace(x).where(over, safe_norms(x), limit)), over


def _require_finite(moved: Array, omega: Array, step: int) -> None:
    """DivergenceError naming the first particle that is not finite."""
    bad = ~namespace(moved).isfinite(moved).all(-1)
    if bool(bad.any()):
        where = bad.reshape(-1).tolist().index(True)
        raise DivergenceError(step, where // bad.shape[-1], where % bad.shape[-1], omega)
