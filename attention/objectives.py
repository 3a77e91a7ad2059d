"""Phase A's choices for one head: energy, domain and sampler in standardised units, and how agreement is measured.

| objective    | energy of labels                 | energy of a relation     | repulsion, confinement, dynamics                |
|--------------|----------------------------------|--------------------------|-------------------------------------------------|
| "alignment"  | `Alignment`, `ManyBodyAlignment` | `AttendAlignment`        | lam .01, kappa .02; step 1/top, beta 1000, radius 4 |
| "centred"    | `CentredAlignment`               | `CentredAttendAlignment` | lam .001; step 2, beta 1e5, gradient at most .2 |
| "quadratic"  | `QuadraticTarget`                | `AttendQuadratic`        | kappa .01; as "alignment", or "centred" (*)     |
| "divergence" | -                                | `AttendDivergence`       | step 1, beta 1e4, gradient at most .5           |

top is the largest variance of the vectors in any direction, in standardised units: one particle's alignment is at most 1 for targets of
unit size, and no step of 1/top overshoots a peak of that height. With isotropic vectors top is 1; queries and keys are rarely isotropic.
(*) of a relation and positive features, where rows of attention count. Where no radius is said, particles stay in |omega| <= 2 sqrt(dim).
lam is the constant of (lam/N^2) sum g_0, so the strength of `Riesz` is 2 lam (N - 1)/N. The first row is for features that belong to one
particle each and do not grow exponentially; its constants were tuned on labels with binary and many-valued targets of unit size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from attention.relation import AttendAlignment, AttendDivergence, AttendQuadratic, CentredAttendAlignment, Pairs
from attention.samples import Points
from particles.alignment import Alignment, CentredAlignment, ManyBodyAlignment, QuadraticTarget
from particles.domain import Ball
from particles.energy import Energy, Quadratic
from particles.features import Feature, PositiveExponential
from particles.langevin import Langevin
from particles.riesz import Riesz

Sample = Points | Pairs
CONSTANTS = ("lam", "s", "step_size", "beta", "radius")  # numbers of the table that can be others
OBJECTIVES = ("alignment", "centred", "quadratic", "divergence")
FULL_BATCH, BATCH_ROWS = 5000, 512  # rows up to which every step uses all, and of a minibatch beyond
_REPULSION = {"alignment": 0.01, "centred": 1e-3, "quadratic": 0.0, "divergence": 0.0}
_CONFINEMENT = {"alignment": 0.02, "centred": 0.0, "quadratic": 0.01, "divergence": 0.0}


class Laws(NamedTuple):
    """What moves the particles of one head."""

    energy: Energy
    domain: Any
    sampler: Any


def linear_objective(feature: Feature) -> bool:
    """Whether the default objective is the linear alignment: features that belong to one particle each and do not grow exponentially."""
    return not feature.many_body and not isinstance(feature, PositiveExponential)


def default_objective(feature: Feature, targets: str) -> str:
    """Of a teacher the divergence, if features are positive; else linear alignment where it makes sense, or centred alignment.

    Measured on a pretrained sentence encoder (layers 1 and 4 of 6, three heads, 64 features, 100 steps, held-out sentences), KL of rows
    [nat] before and after "divergence" / "quadratic" / "centred": softplus 1.06 -> .06 / .11 / .23 and 1.18 -> .07 / .11 / .17;
    softmaxfeat .77 -> .68 / .78 / 1.20 and .75 -> .47 / .43 / .75; favor .85 -> .22 / .25 / .30 and .72 -> .19 / .18 / .19. Linear
    alignment lowers the distance of rows and raises their divergence. Of the signed cosines the agreement with the teacher rose from
    .16 and .19 to .80 and .77 linear, .80 and .77 quadratic, .76 and .78 centred.

    There top (see above) is 7 to 17, and a step of 2, right for isotropic vectors, ends at .40 and .42.
    """
    if targets == "teacher" and not feature.signed:
        return "divergence"
    return "alignment" if linear_objective(feature) else "centred"


def default_laws(sample: Sample, feature: Feature, n_particles: int, objective: str, constants: Mapping[str, float] = {}) -> Laws:
    """The table above for one head's sample in standardised units; `constants` stand in the place of its numbers, see `CONSTANTS`."""
    dim = sample[0].shape[-1]
    normalised = objective == "quadratic" and isinstance(sample, Pairs) and not feature.signed
    dynamics = "centred" if normalised else objective
    domain, sampler = default_domain(dim, feature, dynamics, constants.get("radius")), default_sampler(dynamics, vectors(sample))
    step_size, beta = constants.get("step_size", sampler.step_size), constants.get("beta", sampler.beta)
    lam = constants.get("lam", _REPULSION[objective])
    return Laws(
        default_energy(sample, feature, n_particles, objective, lam, constants.get("s", 0.0)),
        domain,
        dataclasses.replace(sampler, step_size=step_size, beta=beta),
    )


def default_energy(sample: Sample, feature: Feature, n_particles: int, objective: str, lam: float | None = None, s: float = 0.0) -> Energy:
    """Target term, repulsion and confinement of the table; ValueError for an objective that does not fit the sample or the feature.

    Another s has lam in the place of lam/s, so that forces at distance 1 are equal for every s >= 0.
    """
    energy, lam = _target_energy(sample, feature, objective), _REPULSION[objective] if lam is None else lam
    if lam and n_particles > 1:
        strength = 2 * lam * (n_particles - 1) / n_particles / (abs(s) or 1.0)
        energy = energy + Riesz(s, strength, softening=0.05, mirror=_even(feature, sample[0].shape[-1]))
    return energy + Quadratic(_CONFINEMENT[objective]) if _CONFINEMENT[objective] else energy


def _target_energy(sample: Sample, feature: Feature, objective: str) -> Energy:
    if isinstance(sample, Points):
        batch_size = None if len(sample.x) <= FULL_BATCH else BATCH_ROWS
        kind = ManyBodyAlignment if feature.many_body else Alignment
        if objective == "alignment":
            return kind(sample.x, sample.y, feature, batch_size=batch_size)
        if objective in ("centred", "quadratic"):
            return (CentredAlignment if objective == "centred" else QuadraticTarget)(sample.x, sample.y, feature)
        raise ValueError(f"objective must be 'alignment', 'centred' or 'quadratic' for labels, got {objective!r}")
    if objective == "alignment":
        n, time = sample.q.shape[:2]
        batch_size = None if n * time <= FULL_BATCH else max(1, min(n, 2 * BATCH_ROWS // time))
        return AttendAlignment(*sample[:3], feature, allowed=sample.allowed, batch_size=batch_size)
    kinds: dict[str, Any] = {"centred": CentredAttendAlignment, "quadratic": AttendQuadratic, "divergence": AttendDivergence}
    return kinds[objective](*sample[:3], feature, allowed=sample.allowed)


def default_domain(dim: int, feature: Feature, objective: str, radius: float | None = None) -> Ball:
    """A ball for the particles of data with `dim` columns, in standardised units.

    The radius of the table is for one frequency: a pair of them has sqrt(2) times it, and where a phase is part of the particle it is
    that of the corner (radius, 2 pi), so that no phase is cut off.
    """
    if radius is None:
        radius = 4.0 if objective in ("alignment", "quadratic") else 2 * math.sqrt(dim)
    radius *= math.sqrt((feature.particle_dim(dim) - feature.offset) / dim)
    return Ball(math.hypot(radius, 2 * math.pi) if feature.offset else radius, feature.particle_dim(dim))


def default_sampler(objective: str, x: np.ndarray) -> Langevin:
    """The table's dynamics for the vectors x (row, dim)."""
    if objective == "divergence":
        return Langevin(1.0, 1e4, clip=0.5)
    if objective == "centred":
        return Langevin(2.0, 1e5, clip=0.2)
    return Langevin(1 / float(np.linalg.eigvalsh(np.atleast_2d(np.cov(x.T, bias=True)))[-1]), 1000.0)


def agreement(sample: Sample, feature: Feature) -> Callable[[np.ndarray], float]:
    """omega -> centred kernel alignment with the labels (in [0, 1]) or of attention with the relation (in [-1, 1])."""
    if isinstance(sample, Points):
        energy: Energy = CentredAlignment(sample.x, sample.y, feature)
    else:
        energy = CentredAttendAlignment(*sample[:3], feature, allowed=sample.allowed)
    return lambda omega: -float(energy.value(omega))


def vectors(sample: Sample) -> np.ndarray:
    """All vectors of a sample that count, (row, dim)."""
    if isinstance(sample, Points):
        return sample.x
    return np.concatenate((sample.q[sample.allowed.any(-1)], sample.k[sample.allowed.any(-2)]))


def divided(sample: Sample, unit: float) -> Sample:
    """The sample with its vectors divided by `unit`."""
    if isinstance(sample, Points):
        return sample._replace(x=sample.x / unit)
    return sample._replace(q=sample.q / unit, k=sample.k / unit)


def unit_of(sample: Sample, feature: Feature) -> float:
    """The root mean variance of the coordinates; 1 for a feature that is no function of omega.x alone.

    Raises ValueError where the vectors are not finite or all equal.
    """
    x = vectors(sample)
    unit = math.sqrt(float(x.var(0).mean())) if len(x) else 0.0
    if not (math.isfinite(unit) and unit > 0):
        raise ValueError(f"the queries and keys must be finite and not all equal, got a root mean variance of {unit}")
    return unit if _through_products(feature, x.shape[1]) else 1.0


def _through_products(feature: Feature, dim: int) -> bool:
    """Whether phi(x/2; 2 omega) = phi(x; omega), offsets kept: whether a change of the inputs' unit is one of the particles'."""
    probe = np.random.default_rng(0)
    x, omega = probe.standard_normal((3, dim)), probe.standard_normal((3, feature.particle_dim(dim)))
    return bool(np.allclose(feature(x / 2, omega * in_units(feature, omega.shape[1], 2.0)), feature(x, omega), rtol=1e-9))


def _even(feature: Feature, dim: int) -> bool:
    """Whether omega and -omega are one feature: whether they make the same kernel."""
    probe = np.random.default_rng(0)
    x, omega = probe.standard_normal((3, dim)), probe.standard_normal((3, feature.particle_dim(dim)))
    return bool(np.allclose(feature.kernel(x, x, -omega), feature.kernel(x, x, omega), rtol=1e-9))


def in_units(feature: Feature, particle_dim: int, unit: float) -> np.ndarray:
    """What a particle's numbers are multiplied by when the data are divided by `unit`; an offset stays."""
    units = np.full(particle_dim, unit)
    if feature.offset:
        units[-1] = 1.0
    return units
