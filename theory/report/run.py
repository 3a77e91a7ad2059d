"""What `theory.report` needs to know of a run: its frames after the burn-in, and the descriptions that came with them.

A trajectory holds `omega` (chain, step, particle, dim), optionally the series (chain, step) `energy`, `grad_norm`, `projected`,
`capped`, `acceptance`, `extra_temperature`, `coincident`, and attrs `energy`, `domain`, `sampler`, descriptions as JSON. Nothing here
shares code with the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from theory.arrays import FloatArray, finite, numeric, real
from theory.report.descriptions import described_domain, described_sampler, described_terms
from theory.report.pairs import exponent, pair_force

__all__ = ["NotApplicable", "Potential", "Run", "read", "series"]

PAIR_BUDGET = 20_000_000  # pair differences that one sum over the frames may form
NEAR = 0.05  # of the half width of a domain: exact samplers that never come as near to its wall do not feel it
LARGE = 1e100  # beyond which the squares of positions overflow
CONTACT_LIMIT = 1e-5  # fraction of steps at the wall below which the laws of free space hold

Potential = Callable[[FloatArray], ArrayLike]


class NotApplicable(Exception):
    """Why a law cannot be tested on this run."""


@dataclass(frozen=True)
class Run:
    """What the laws need to know of a run, burn-in removed; `unknown` names energy terms without a closed form."""

    omega: FloatArray  # (chain, frame, particle, dim)
    whole: FloatArray  # the same from the start on
    terms: tuple[dict[str, Any], ...]
    unknown: tuple[str, ...]
    domain: dict[str, Any]
    sampler: dict[str, Any]
    contact: FloatArray | None  # fraction at the wall (chain, frame)
    capped: FloatArray | None
    acceptance: FloatArray | None
    extra_temperature: FloatArray | None
    coincident: FloatArray | None  # number of pairs at distance 0
    values: FloatArray | None  # of the energy, (chain, frame)
    course: FloatArray | None  # the same from the start on, burn-in included
    gradients: FloatArray | None  # root mean square over particles of the gradient of N H_N, from the start on
    epsilon: float  # rounding of the positions
    external: Potential | None
    interaction: Potential | None

    @property
    def dim(self) -> int:
        """The dimension of a particle."""
        return self.omega.shape[-1]

    @property
    def n_particles(self) -> int:
        """Particles of a chain."""
        return self.omega.shape[-2]

    @cached_property
    def frames(self) -> FloatArray:
        """Evenly spaced frames (chain, frame, particle, dim), few enough for sums over their pairs."""
        cost = self.omega.shape[0] * self.n_particles**2 * self.dim * max(1, len(self.named("Riesz")))
        return self.omega[:, :: max(1, -(-self.omega.shape[1] // max(8, PAIR_BUDGET // cost)))]

    @cached_property
    def repulsion(self) -> FloatArray:
        """Force of the Riesz terms on `frames`, of their shape."""
        return self.repulsion_at(self.frames)

    @cached_property
    def gradient(self) -> FloatArray:
        """Gradient of N H_N of the described terms on `frames`, of their shape."""
        return self.trap_gradient_at(self.frames) - self.repulsion

    def repulsion_at(self, x: FloatArray) -> FloatArray:
        """Force of the Riesz terms at x (..., particle, dim)."""
        return sum((pair_force(x, term, self.exponent(term)) for term in self.named("Riesz")), np.zeros_like(x))

    def trap_gradient_at(self, x: FloatArray) -> FloatArray:
        """Gradient of the quadratic terms at x (..., particle, dim)."""
        terms = (float(term["stiffness"]) * (x - np.asarray(term.get("centre", 0.0), float)) for term in self.named("Quadratic"))
        return sum(terms, np.zeros_like(x))

    def named(self, name: str) -> list[dict[str, Any]]:
        """The energy terms of one kind."""
        return [term for term in self.terms if term["name"] == name]

    def constant(self, name: str) -> float:
        """A sampler parameter that must be one finite number."""
        try:
            value = float(self.sampler[name])
        except (KeyError, TypeError, ValueError):
            raise NotApplicable(f"the sampler's {name} is not one number") from None
        if not np.isfinite(value):
            raise NotApplicable(f"the sampler's {name} is infinite")
        return value

    @property
    def frozen(self) -> bool:
        """Whether beta is infinite."""
        return self.sampler.get("beta") in ("inf", np.inf)

    def descent(self) -> str | None:
        """Why no law is stationary: an infinite or scheduled beta; None where beta is one number, or unknown."""
        if self.frozen:
            return "beta is infinite: a descent has no stationary law"
        if isinstance(self.sampler.get("beta", 0.0), (int, float)):
            return None
        return "beta follows a schedule: the law changes on the way"

    def trap(self) -> tuple[float, FloatArray]:
        """Total stiffness and centre (dim,) of the quadratic terms; NotApplicable without one."""
        stiffness = [float(term["stiffness"]) for term in self.named("Quadratic")]
        if not sum(stiffness) > 0:
            raise NotApplicable("the energy has no quadratic trap")
        centres = [np.broadcast_to(np.asarray(term.get("centre", 0.0), float), (self.dim,)) for term in self.named("Quadratic")]
        return sum(stiffness), np.sum([k * c for k, c in zip(stiffness, centres)], axis=0) / sum(stiffness)

    def plain_strength(self) -> float | None:
        """Total strength of the Riesz terms if all are the bare log of the domain's own distance, None otherwise."""
        terms, options = self.named("Riesz"), ("softening", "mirror", "truncation")
        free = np.inf  # the period of what has none
        period = np.ravel(self.domain.get("period", free))
        own = all(np.all(period == np.ravel(term.get("period") or free)) for term in terms)
        bare = own and all(self.exponent(term) == 0 and not any(term.get(name) for name in options) for term in terms)
        return sum(float(term["strength"]) for term in terms) if bare else None

    def exponent(self, term: dict[str, Any]) -> float:
        """The Riesz exponent as a number."""
        return exponent(term, self.dim)

    @property
    def tolerance(self) -> float:
        """Rounding that a position at the wall may have."""
        return 16 * self.epsilon * max(1.0, float(np.abs(self.omega).max()))

    def on_wall(self) -> NDArray[np.bool_]:
        """Which particles sit on the boundary, (chain, frame, particle)."""
        return np.any(self.wall_distances() <= self.tolerance, axis=-1)

    def wall_distances(self) -> FloatArray:
        """Distances to the walls, (chain, frame, particle, wall): one wall for a ball, two a coordinate for a box, none otherwise."""
        if self.domain.get("name") == "Ball":
            return float(self.domain["radius"]) - np.linalg.norm(self.omega, axis=-1)[..., None]
        if self.domain.get("name") == "Box":
            low, high = self.box()
            return np.concatenate([self.omega - low, high - self.omega], axis=-1)
        return np.empty((*self.omega.shape[:-1], 0))

    def box(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the box, (dim,) each."""
        low, high = (np.broadcast_to(np.asarray(self.domain[side], float), (self.dim,)) for side in ("low", "high"))
        return low, high

    def half_width(self) -> float:
        """Radius of the ball, or half the narrowest side of the box."""
        if self.domain["name"] == "Ball":
            return float(self.domain["radius"])
        return float(np.min(np.subtract(self.domain["high"], self.domain["low"]))) / 2

    def contact_fraction(self) -> float:
        """Fraction of particles at the wall, recorded or visible; where they leave no trace, of those NEAR it; 1 where nothing tells."""
        name, langevin = self.domain.get("name"), self.sampler.get("name") == "Langevin"
        if name in ("FullSpace", "Torus"):
            return 0.0
        recorded = None if self.contact is None or not langevin else float(self.contact.mean())
        if name not in ("Ball", "Box"):
            return 1.0 if recorded is None else recorded
        if recorded is None and not (langevin and self.sampler.get("scheme", "projected") == "projected"):  # they bounce
            return float(np.mean(self.wall_distances().min(-1) < NEAR * self.half_width()))
        return max(recorded or 0.0, float(self.on_wall().mean()))

    def require_free(self) -> None:
        """NotApplicable if the run touches a wall, or has gone round a torus."""
        if self.domain.get("name") == "Torus":
            raise NotApplicable("on a torus positions have no moments")
        fraction = self.contact_fraction()
        if fraction == 1:
            raise NotApplicable("nothing tells whether the particles touch a wall")
        if fraction > CONTACT_LIMIT:
            raise NotApplicable(f"the particles touch the wall ({fraction:.2g} of them)")


def read(dataset: xr.Dataset, burn_in: float, external: Potential | None, interaction: Potential | None) -> Run:
    """The run behind a trajectory; ValueError for what is none."""
    if not isinstance(dataset, xr.Dataset):
        raise ValueError(f"dataset must be an xarray.Dataset, got {type(dataset).__name__}")
    for name, potential in (("external", external), ("interaction", interaction)):
        if potential is not None and not callable(potential):
            raise ValueError(f"{name} must be a callable or None, got {potential!r}")
    if "omega" not in dataset or set(dataset["omega"].dims) != {"chain", "step", "particle", "dim"}:
        raise ValueError(f"dataset must hold omega (chain, step, particle, dim), got {dict(dataset.sizes)} and {list(dataset.data_vars)}")
    sampler = described_sampler(dataset)
    start = _start(dataset, burn_in, sampler.get("tune", 0))
    omega = dataset["omega"].transpose("chain", "step", "particle", "dim").values
    whole = finite(omega, "omega")
    if np.abs(whole).max() > LARGE:
        raise ValueError(f"omega must stay below {LARGE:g}, got {np.abs(whole).max():.3g}: the run has exploded")
    terms = [term for term in described_terms(dataset, omega.shape[-1]) if term.get("name") != "Riesz" or omega.shape[-2] > 1]
    known = tuple(term for term in terms if _closed(term))
    return Run(
        omega=whole[:, start:],
        whole=whole,
        terms=known,
        unknown=tuple(str(term.get("name")) for term in terms if term not in known) if dataset.attrs.get("energy") else ("no description",),
        domain=described_domain(dataset, omega.shape[-1]),
        sampler=sampler,
        contact=_finite_series(dataset, "projected", start),
        capped=_finite_series(dataset, "capped", start),
        acceptance=series(dataset, "acceptance", start),
        extra_temperature=_finite_series(dataset, "extra_temperature", start),
        coincident=_finite_series(dataset, "coincident", start),
        values=series(dataset, "energy", start),
        course=series(dataset, "energy", 0),
        gradients=series(dataset, "grad_norm", 0),
        epsilon=float(np.finfo(omega.dtype).eps) if omega.dtype.kind == "f" else 0.0,
        external=external,
        interaction=interaction,
    )


def _start(dataset: xr.Dataset, burn_in: float, tune: int) -> int:
    """First frame after the burn-in and the tuning; frame 0, the start, is left out whenever there is another."""
    if not 0 <= real(burn_in, "burn_in") < 1:
        raise ValueError(f"burn_in must lie in [0, 1), got {burn_in!r}")
    frames = dataset.sizes["step"]
    if 0 in dataset["omega"].shape:
        raise ValueError(f"dataset must hold at least one frame of one particle, got {dict(dataset.sizes)}")
    tuned = int(np.sum(numeric(dataset["step"].values, "step") <= tune)) if tune else 0
    if tuned == frames:
        raise ValueError(f"dataset must hold frames after the {tune} steps of tuning, got steps up to {int(dataset['step'][-1])}")
    return min(max(int(np.ceil(burn_in * frames)), 1, tuned), frames - 1)


def _closed(term: dict[str, Any]) -> bool:
    """Whether this module knows the term: a quadratic trap of one stiffness, or a Riesz interaction with s > -2."""
    needed = {"Quadratic": ("stiffness",), "Riesz": ("s", "strength")}.get(str(term.get("name")), ("",))
    values = [0.0 if (key, term.get(key)) == ("s", "coulomb") else term.get(key) for key in needed]
    return all(isinstance(value, (int, float)) and -2 < value < np.inf for value in values)


def series(dataset: xr.Dataset, name: str, start: int) -> FloatArray | None:
    """A recorded quantity (chain, frame) from frame `start` on; None where there is none."""
    if name not in dataset or set(dataset[name].dims) != {"chain", "step"}:
        return None
    return numeric(dataset[name].transpose("chain", "step").values[:, start:], name)


def _finite_series(dataset: xr.Dataset, name: str, start: int) -> FloatArray | None:
    """The same of what is always a number."""
    values = series(dataset, name, start)
    return None if values is None else finite(values, name)
