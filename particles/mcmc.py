"""Exact samplers: Hamiltonian Monte Carlo and its shortest form, MALA. Their stationary law is exp(-beta N H_N) on the domain at any step.

Duane, Kennedy, Pendleton and Roweth, "Hybrid Monte Carlo" (1987); Roberts and Tweedie, "Exponential convergence of Langevin distributions"
(1996); for singular gases Chafai and Ferre, "Simulating Coulomb and log-gases with hybrid Monte Carlo" (2019).

Potential N H_N, unit mass, velocities of variance 1/beta. Kicks alternate with flights; at a wall a flight is the exact billiard
(`domain.bounce`), which keeps volume and can be reversed, so that the Metropolis test needs no correction there.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from particles.arrays import Array, count, is_torch, namespace, positive
from particles.domain import Domain, norms
from particles.random import ACCEPTANCE, VELOCITY, Key, chain_uniform, normal_like
from particles.sampler import QUIET, Memory, Sampler, Value, at, checked, described

STUCK, STUCK_STEPS = 0.05, 20  # acceptance below which a chain is stuck, and the steps it takes to say so
GAIN = 4.0  # of tuning: a step a thousand times too small doubles with each of its first steps
# Domain diameters in one flight; a chain thrown farther is rejected rather than followed from bounce to bounce. The law stays exact:
# bounces keep speeds, so the same trajectory backwards has flights of the same lengths and is cut off just as well.
FARTHEST = 20
_FAILURES = (OverflowError, FloatingPointError, ValueError)  # what energies raise at states that they cannot evaluate


class _State(NamedTuple):
    """A state (chain, particle, dim), its potential N H_N (chain,) on the host in float64, and the potential's gradient."""

    omega: Array
    potential: np.ndarray
    gradient: Array


@dataclass(frozen=True)
class _Hamiltonian(Sampler):
    """What HMC and MALA share: leapfrog trajectories, each chain's own Metropolis test, step sizes tuned by chain."""

    step_size: Value
    beta: Value
    _: KW_ONLY
    tune: int = 0
    target: float = 0.8

    fractions: ClassVar[dict[str, float]] = {"acceptance": math.nan}
    n_leapfrog: ClassVar[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_size", checked(self.step_size, "step_size"))
        object.__setattr__(self, "beta", checked(self.beta, "beta"))
        object.__setattr__(self, "tune", count(self.tune, "tune", least=0))
        object.__setattr__(self, "target", positive(self.target, "target"))
        if self.target >= 1:
            raise ValueError(f"target must lie between 0 and 1, got {self.target!r}")
        if self.tune and callable(self.step_size):
            raise ValueError(f"tune must be 0 for a step_size that follows a schedule, got {self.tune}")

    @staticmethod
    def _length(step_sizes: np.ndarray) -> np.ndarray:
        """The duration of a leapfrog step."""
        return step_sizes

    def check(self, domain: Domain, energy: Any) -> None:
        """ValueError for a minibatched energy (the test needs exact differences), or a domain without a billiard."""
        super().check(domain, energy)
        if getattr(energy, "minibatched", False):
            raise ValueError(f"energy must not be minibatched for {type(self).__name__}, got {energy.describe()!r}")
        inside = domain.project(np.zeros((1, domain.dim)))
        domain.bounce(inside, np.zeros_like(inside))

    def begin(self, omega: Array) -> Memory:
        """The step size of each chain."""
        return {"step_size": np.full(omega.shape[0], at(self.step_size, 0, "step_size"))}

    def advance(self, omega: Array, energy: Any, domain: Domain, key: Key, memory: Memory) -> tuple[Array, dict[str, Array], Memory]:
        """New velocities, one trajectory, one test for each chain; `info` holds 0 or 1 as "acceptance"."""
        step = key[2]
        beta, sizes = at(self.beta, step, "beta"), memory["step_size"]
        if callable(self.step_size):
            sizes = np.full_like(sizes, at(self.step_size, step, "step_size"))
        old = memory["_state"] if "_state" in memory else _start(omega, energy, key)
        velocity = normal_like(key, omega, stream=VELOCITY) / math.sqrt(beta)
        with np.errstate(**QUIET):
            new, last, alive = self._trajectory(old, velocity, self._length(sizes), energy, domain, key)
            log_ratio = beta * (old.potential + _kinetic(velocity) - new.potential - _kinetic(last))
        log_ratio[~(alive & (new.potential < math.inf)) | np.isnan(log_ratio)] = -math.inf
        probability = np.exp(np.minimum(log_ratio, 0))
        accepted = chain_uniform(key, len(sizes), 1, stream=ACCEPTANCE)[:, 0] < probability
        state = _chosen(accepted, new, old)
        return state.omega, {"acceptance": accepted * 1.0}, {"step_size": self._tuned(sizes, probability, step), "_state": state}

    def _trajectory(
        self, state: _State, velocity: Array, lengths: np.ndarray, energy: Any, domain: Domain, key: Key
    ) -> tuple[_State, Array, np.ndarray]:
        """The end of the leapfrog trajectories, the velocity there, and which chains (chain,) got there; the others stand still."""
        omega, gradient, alive = state.omega, state.gradient, np.ones(len(lengths), bool)
        length = _per_chain(lengths, omega)
        velocity = velocity - gradient * (0.5 * length)
        for i in range(self.n_leapfrog):
            way = velocity * length
            alive = alive & (_host(namespace(way).amax(norms(way), -1)) < min(FARTHEST * domain.diameter, math.inf))
            if not alive.all():
                way, velocity = (_kept(alive, array, namespace(array).zeros_like(array)) for array in (way, velocity))
                omega = _kept(alive, omega, state.omega)
            omega, velocity = domain.bounce(omega, way, velocity)
            last = i == self.n_leapfrog - 1
            potential, gradient, evaluated = _evaluate(omega, energy, key, last)
            alive = alive & evaluated
            velocity = velocity - gradient * ((0.5 if last else 1.0) * length)
        alive = alive & _host(domain.contains(omega).all(-1))
        return _State(omega, potential, gradient), velocity, alive

    def _tuned(self, sizes: np.ndarray, probability: np.ndarray, step: int) -> np.ndarray:
        """Robbins and Monro (1951) on the logarithm: up where acceptance exceeds the target, by less and less."""
        if step >= self.tune:
            return sizes
        return sizes * np.exp(np.clip(GAIN * (step + 1) ** -0.6 * (probability - self.target), -1, 1))

    def remarks(self, means: dict[str, np.ndarray], n_steps: int) -> list[str]:
        """One if a chain accepts less than 5 % of its proposals (after tuning, if there was any)."""
        stuck = np.flatnonzero(means["acceptance"] < STUCK).tolist()
        if not stuck or n_steps < STUCK_STEPS:
            return []
        return [
            f"{len(stuck)} of {len(means['acceptance'])} chains are stuck ({', '.join(map(str, stuck[:5]))}{', ...' * (len(stuck) > 5)}): "
            f"they accepted fewer than {STUCK:.0%} of their proposals{' after tuning' * (self.tune > 0)}. Reduce step_size or tune "
            "for longer; from a crowded start, first run Langevin with a drift_cap and start from its last frame"
        ]

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values; callables without a `describe` by name and fingerprint."""
        values = {"step_size": described(self.step_size), "beta": described(self.beta), "tune": self.tune, "target": self.target}
        return {"name": type(self).__name__, **values}


@dataclass(frozen=True)
class HMC(_Hamiltonian):
    """Hamiltonian Monte Carlo: `n_leapfrog` leapfrog steps of duration `step_size`, then one Metropolis test.

    Parameters
    ----------
    step_size, beta
        Duration of a leapfrog step and inverse temperature: positive numbers, or callables of the step number. While beta changes, the
        particles follow the law of the moment with a delay: annealing, not sampling.
    n_leapfrog
        Leapfrog steps in a trajectory; each costs one gradient, the last also the energy. A trajectory whose duration is half a period
        of an oscillation only mirrors it: prefer another.
    tune
        Number of first steps that adapt each chain's step size; they are part of the run and sample no law. Step sizes scatter between
        equal chains: after 1,500 steps acceptance ends within about 0.1 to 0.2 of the target; 100 are too few.
    target
        The acceptance that tuning aims for.

    A proposal with an infinite or unknown energy, or a trajectory that leaves the numbers, is rejected for its chain alone. "step_size"
    is saved with each frame, and so is "acceptance". With `Riesz(tolerance=...)` the law is that of the approximate energy.

    Raises
    ------
    ValueError
        For a value outside these ranges (beta = inf has no law to sample), a minibatched energy, a domain without a billiard, or a
        start whose energy is NaN or -inf.
    """

    _: KW_ONLY
    n_leapfrog: int  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n_leapfrog", count(self.n_leapfrog, "n_leapfrog"))

    def describe(self) -> dict[str, Any]:
        """Name and parameters as JSON values; callables without a `describe` by name and fingerprint."""
        return super().describe() | {"n_leapfrog": self.n_leapfrog}


@dataclass(frozen=True)
class MALA(_Hamiltonian):
    """The Metropolis-adjusted Langevin algorithm: the Euler-Maruyama step eta = `step_size` of `Langevin`, accepted or rejected.

    It is `HMC` with one leapfrog step of duration sqrt(2 step_size), whose parameters and errors it shares; walls reflect.
    """

    _: KW_ONLY
    target: float = 0.574

    n_leapfrog: ClassVar[int] = 1

    @staticmethod
    def _length(step_sizes: np.ndarray) -> np.ndarray:
        return np.sqrt(2 * step_sizes)


def _start(omega: Array, energy: Any, key: Key) -> _State:
    """The current state evaluated; what goes wrong here is the user's to know."""
    terms, gradient = energy.value_and_grad(omega, key=key)
    potential = _potential(terms, omega)
    if np.isnan(potential).any() or (potential == -math.inf).any():
        raise ValueError(f"energy must be a number or +inf at the start, got N H_N = {potential.tolist()}")
    return _State(omega, potential, gradient)


def _potential(terms: dict[str, Array], omega: Array) -> np.ndarray:
    """N H_N of each chain, on the host."""
    return omega.shape[-2] * sum(_host(value).astype(np.float64) for value in terms.values())


def _evaluate(omega: Array, energy: Any, key: Key, want_value: bool) -> tuple[np.ndarray, Array, np.ndarray]:
    """(potential where wanted, gradient, which chains could be evaluated): all at once, or one by one if a chain spoils it for all."""
    try:
        return *_potential_and_gradient(omega, energy, key, want_value), np.ones(omega.shape[0], bool)
    except _FAILURES:
        parts = [_alone(omega[c : c + 1], energy, (key[0], key[1] + c, key[2]), want_value) for c in range(omega.shape[0])]
    potential, gradient, evaluated = zip(*parts)
    return np.concatenate(potential), namespace(omega).concatenate(gradient), np.array(evaluated)


def _alone(omega: Array, energy: Any, key: Key, want_value: bool) -> tuple[np.ndarray, Array, bool]:
    """`_evaluate` for one chain."""
    try:
        return *_potential_and_gradient(omega, energy, key, want_value), True
    except _FAILURES:
        return np.full(1, math.inf), namespace(omega).zeros_like(omega), False


def _potential_and_gradient(omega: Array, energy: Any, key: Key, want_value: bool) -> tuple[np.ndarray, Array]:
    if not want_value:
        return np.zeros(omega.shape[0]), energy.gradient(omega, key=key)
    terms, gradient = energy.value_and_grad(omega, key=key)
    return _potential(terms, omega), gradient


def _kinetic(velocity: Array) -> np.ndarray:
    """|velocity|^2 / 2 of each chain, in float64."""
    wide = velocity.double() if is_torch(velocity) else velocity.astype(np.float64, copy=False)
    return _host((wide * wide).sum((-2, -1))) / 2


def _chosen(accepted: np.ndarray, new: _State, old: _State) -> _State:
    """Each chain's new state where accepted, else its old one."""
    if accepted.all() or not accepted.any():
        return new if accepted.all() else old
    return _State(
        _kept(accepted, new.omega, old.omega),
        np.where(accepted, new.potential, old.potential),
        _kept(accepted, new.gradient, old.gradient),
    )


def _kept(mask: np.ndarray, yes: Array, no: Array) -> Array:
    """yes (chain, particle, dim) for the chains of the mask, no for the others."""
    xp = namespace(yes)
    condition = xp.as_tensor(mask, device=yes.device) if is_torch(yes) else mask
    return xp.where(condition[:, None, None], yes, no)


def _per_chain(values: np.ndarray, omega: Array) -> Array:
    """Numbers (chain,) as omega's kind of array (chain, 1, 1)."""
    if is_torch(omega):
        return omega.new_tensor(values)[:, None, None]
    return values.astype(omega.dtype)[:, None, None]


def _host(values: Array) -> np.ndarray:
    """A NumPy array of a (chain,) array of either kind."""
    return values.detach().cpu().numpy() if is_torch(values) else np.asarray(values)
