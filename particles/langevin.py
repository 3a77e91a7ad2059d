"""Projected Langevin dynamics: one Euler-Maruyama step, and what keeps it inside the domain.

Algorithm 1 of the Coulomb paper: w <- P(w - eta grad_w(N H_N) + sqrt(2 eta / beta) xi). Mobility is 1, so the diffusion constant is
1/beta and, as eta -> 0, the stationary law is exp(-beta N H_N) on the domain.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from particles.arrays import Array, as_float, is_torch, namespace, positive
from particles.domain import Box, Domain, FullSpace, norms, safe_norms, scale_rows
from particles.random import Key, normal_like, walk
from particles.sampler import QUIET, Memory, Sampler, Value, at, checked, described

SCHEMES = ("projected", "reflected", "shrunk")
SHRINK = 0.5826  # -zeta(1/2) / sqrt(2 pi), to the digits that matter: a Gaussian walk of unit step sees a wall this much nearer
CAPPED_WARNING = 1e-3


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
class Langevin(Sampler):
    """The Euler-Maruyama step of Algorithm 1 (Coulomb paper) with a choice at the wall and two guards.

    Parameters
    ----------
    step_size, beta
        eta and inverse temperature: positive numbers, or callables of the step number such as `linear(...)` (beta may be inf).
    scheme
        "projected": nearest point, the paper's; leaves an atom on the wall of mass about rho_wall sqrt(eta / beta).
        "reflected": mirrored, no atom, error O(eta).
        "shrunk": nearest point of the domain eroded by 0.5826 sqrt(2 eta / beta); the discrete walk then feels the wall where the
        continuous one does (Siegmund 1979), error O(eta) for smooth observables, but nothing lies in the layer that was taken away.
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

    fractions: ClassVar[dict[str, float]] = {"projected": 0.0, "capped": 0.0}

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_size", checked(self.step_size, "step_size"))
        object.__setattr__(self, "beta", checked(self.beta, "beta", infinite=True))
        if self.scheme not in SCHEMES:
            raise ValueError(f"scheme must be one of {SCHEMES}, got {self.scheme!r}")
        for name in ("drift_cap", "clip"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, positive(getattr(self, name), name))
        if self.preconditioner is not None:
            mobility = as_float(self.preconditioner, "preconditioner")
            if mobility.ndim != 1 or not bool((mobility > 0).all()):
                raise ValueError(f"preconditioner must be positive and of shape (dim,), got {self.preconditioner!r}")
            if self.scheme == "shrunk":
                raise ValueError("preconditioner must be None with scheme 'shrunk', whose layer has one width")
            object.__setattr__(self, "preconditioner", tuple(float(m) for m in mobility))

    def check(self, domain: Domain, energy: Any) -> None:
        """ValueError if this sampler cannot run on `domain` with `energy`."""
        super().check(domain, energy)
        self._check_mobility(domain)
        if self.scheme == "reflected":
            domain.reflect(np.zeros((1, domain.dim)))  # raises where no reflection is defined
        self._walls(domain, 0, {})

    def _check_mobility(self, domain: Domain) -> None:
        if self.preconditioner is None:
            return
        if not isinstance(domain, (FullSpace, Box)):
            raise ValueError(f"preconditioner needs a FullSpace or Box domain, got {type(domain).__name__}")
        if len(self.preconditioner) != domain.dim:
            raise ValueError(f"preconditioner must have shape ({domain.dim},) for this domain, got ({len(self.preconditioner)},)")

    def advance(self, omega: Array, energy: Any, domain: Domain, key: Key, memory: Memory) -> tuple[Array, dict[str, Array], Memory]:
        """One step of `simulate`: the gradient, the noise of key = (seed, first chain's number, step), and `step`."""
        gradient, step = energy.gradient(omega, key=key), key[2]
        walls, memory = self._walls(domain, step, memory)
        if self._guarded or is_torch(omega) or omega.dtype != np.float64:
            moved, info = self._move(omega, gradient, normal_like(key, omega), step)
        else:
            moved, info = walk(key, omega, gradient, *self._scales(step)), {}
        return *self._land(moved, info, omega, walls, step), memory

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
        self._check_mobility(domain)
        walls, _ = self._walls(domain, step, {})
        with np.errstate(**QUIET):
            moved, info = self._land(*self._move(omega, gradient, noise, step), omega, walls, step)
        return moved, {name: info.get(name, _fraction(None, omega)) for name in self.fractions}

    def _walls(self, domain: Domain, step: int, memory: Memory) -> tuple[Domain, Memory]:
        """The set to project on, and the memory that keeps it until the step size or the temperature changes."""
        if self.scheme != "shrunk":
            return domain, memory
        distance = SHRINK * math.sqrt(2 * self._at("step_size", step) / self._at("beta", step))
        if memory.get("_distance") != distance:
            memory = {"_distance": distance, "_walls": domain.erode(distance) if distance else domain}
        return memory["_walls"], memory

    @property
    def _guarded(self) -> bool:
        """Whether the step is more than -eta grad + sqrt(2 eta / beta) xi."""
        return not (self.clip is self.drift_cap is self.preconditioner is None)

    def _at(self, name: str, step: int) -> float:
        return at(getattr(self, name), step, name, infinite=name == "beta")

    def _scales(self, step: int) -> tuple[float, float]:
        """(eta, sqrt(2 eta / beta)): of the drift and of the noise."""
        eta = self._at("step_size", step)
        return eta, math.sqrt(2 * eta / self._at("beta", step))

    def _move(self, omega: Array, gradient: Array, noise: Array, step: int) -> tuple[Array, dict[str, Array]]:
        """The state before walls. Fractions that are zero are left out; NumPy's warnings are the caller's to silence."""
        eta, sigma = self._scales(step)
        if self.clip is not None:
            gradient, _ = _shorten(gradient, self.clip)
        drift, noise, capped = gradient * eta, noise * sigma, None
        if self.preconditioner is not None:
            mobility = _like(self.preconditioner, drift)
            drift, noise = drift * mobility, noise * mobility**0.5
        if self.drift_cap is not None:
            drift, capped = _shorten(drift, self.drift_cap)
        return omega - drift + noise, {} if capped is None else {"capped": _fraction(capped, omega)}

    def _land(self, moved: Array, info: dict[str, Array], omega: Array, walls: Domain, step: int) -> tuple[Array, dict[str, Array]]:
        """The state after walls; DivergenceError where there is none."""
        inside = walls.contains(moved)
        if _all(inside):
            return moved, info
        _require_finite(moved, omega, step)
        moved = walls.reflect(moved) if self.scheme == "reflected" else walls.project(moved)
        return moved, info | {"projected": _fraction(~inside, omega)}

    def extra_temperature(self, gradient: Array, other: Array, step: int) -> Array:
        """What the noise of minibatches adds to 1/beta, (chain,): eta/2 times the noise's mean square per coordinate.

        gradient, other : gradients (chain, particle, dim) of the same state from two independent minibatches, before clip and cap; half
        the mean square of their difference is an unbiased estimate of the noise's.
        """
        squares = (gradient - other) ** 2
        if self.preconditioner is not None:
            squares = squares * _like(self.preconditioner, squares)
        return self._at("step_size", step) / 4 * squares.mean((-2, -1))

    def remarks(self, means: dict[str, np.ndarray], n_steps: int) -> list[str]:
        """One if the cap was more than a guard: more than 1e-3 of the particle steps."""
        share = float(means["capped"].mean())
        return [f"drift_cap shortened {share:.2%} of the particle steps: reduce step_size"] if share > CAPPED_WARNING else []

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values; callables without a `describe` by name and fingerprint."""
        return {
            "name": "Langevin",
            "step_size": described(self.step_size),
            "beta": described(self.beta),
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


def _all(mask: Array) -> bool:
    """Whether every entry is True."""
    return bool(mask.all()) if is_torch(mask) else np.count_nonzero(mask) == mask.size


def _fraction(mask: Array | None, omega: Array) -> Array:
    """The mean over particles of a boolean (..., particle), float64 of omega's leading shape; None means nowhere True."""
    if not is_torch(omega):
        return np.zeros(omega.shape[:-2]) if mask is None else np.add.reduce(mask, -1) / mask.shape[-1]  # half the time of `mean`
    return omega.new_zeros(omega.shape[:-2]).double() if mask is None else mask.double().mean(-1)


def _shorten(x: Array, limit: float) -> tuple[Array, Array | None]:
    """Rows of x (..., particle, dim) longer than `limit` scaled to that length, and which they were (None: no row)."""
    over = norms(x) > limit
    if _all(~over):
        return x, None
    return scale_rows(x, limit / namespace(x).where(over, safe_norms(x), limit)), over


def _require_finite(moved: Array, omega: Array, step: int) -> None:
    """DivergenceError naming the first particle that is not finite."""
    finite = namespace(moved).isfinite(moved)
    if not bool(finite.all()):
        where = finite.all(-1).reshape(-1).tolist().index(False)
        raise DivergenceError(step, where // moved.shape[-2], where % moved.shape[-2], omega)
