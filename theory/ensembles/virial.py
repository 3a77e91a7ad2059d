"""What a quadratic trap fixes exactly at every number of particles and every temperature: the centre of mass and the second moment."""

from __future__ import annotations

from typing import Any

from theory.arrays import count, positive, real
from theory.ensembles.mappings import log_gas_index

__all__ = ["centre_variance", "euler_second_moment", "second_moment", "square_sum_law"]


def second_moment(dim: int, beta: float, kappa: float, strength: float, s: float = 0.0, *, pair_moment: float | None = None) -> float:
    """E (1/n) sum |x|^2 = dim/(beta kappa) + strength/(2 kappa) for the log gas: any dim, any n >= 2, no wall.

    For s != 0 the virial identity needs `pair_moment` = E of the mean over pairs of |x_k - x_l|^-s:
    dim/(beta kappa) + |s| strength pair_moment/(2 kappa). An interaction with a length has its distances measured in it; softening
    breaks the identity.

    Raises
    ------
    ValueError
        If s <= -2 or infinite, or s != 0 with a nonzero strength and no pair_moment.
    """
    dim, beta, kappa = count(dim, "dim"), positive(beta, "beta"), positive(kappa, "kappa")
    strength = positive(strength, "strength", zero=True)
    if not -2 < real(s, "s") < float("inf"):
        raise ValueError(f"s must be finite and above -2, got {s!r}")
    if s == 0 or strength == 0:
        return dim / (beta * kappa) + strength / (2 * kappa)
    if pair_moment is None:
        raise ValueError(f"pair_moment is needed for s = {s!r}: only the log gas has a closed form")
    return dim / (beta * kappa) + abs(s) * strength * positive(pair_moment, "pair_moment") / (2 * kappa)


def square_sum_law(n: int, dim: int, beta: float, kappa: float, strength: float) -> Any:
    """The law of sum_k |x_k|^2 of n >= 2 log-repelling particles in a trap, any dim: a Gamma law, as a frozen `scipy.stats.gamma`.

    beta kappa/2 times the sum is Gamma(n dim/2 + b n (n-1)/4): the pair product is homogeneous of degree b n (n-1)/2, hence the size of a
    configuration is independent of its shape (Bolley, Chafai & Fontbona 2018 in the plane; the argument is the same in any
    dimension). Its mean is n times `second_moment`.
    """
    from scipy.stats import gamma

    b, n, dim = log_gas_index(beta, strength, n), count(n, "n", least=2), count(dim, "dim")
    return gamma(n * dim / 2 + b * n * (n - 1) / 4, scale=2 / (beta * positive(kappa, "kappa")))


def centre_variance(n: int, beta: float, kappa: float) -> float:
    """Variance 1/(n beta kappa) of each coordinate of the centre of mass, a Gaussian, in a quadratic trap.

    Exact for every interaction of pairs, any dim: it does not see the centre, which is independent of the differences.
    """
    return 1 / (count(n, "n") * positive(beta, "beta") * positive(kappa, "kappa"))


def euler_second_moment(dim: int, beta: float, kappa: float, step_size: float) -> float:
    """Stationary E |x|^2 of free particles in the quadratic trap under the Euler step: dim / (beta kappa (1 - step_size kappa/2)).

    Raises
    ------
    ValueError
        If step_size * kappa >= 2, where the step has no stationary law.
    """
    dim, beta, kappa, step_size = count(dim, "dim"), positive(beta, "beta"), positive(kappa, "kappa"), positive(step_size, "step_size")
    if step_size * kappa >= 2:
        raise ValueError(f"step_size * kappa must be below 2, got {step_size * kappa!r}")
    return dim / (beta * kappa * (1 - step_size * kappa / 2))
