"""Starts and baselines: independent or orthogonal frequencies of the classical stationary kernels (Bochner's theorem)."""

from __future__ import annotations

import numpy as np

from particles.arrays import count, generator, positive

PRODUCT_LAWS = ("laplace", "cauchy")
ISOTROPIC_LAWS = ("gaussian", "matern")


def sample_frequencies(
    law: str,
    n_particles: int,
    dim: int,
    *,
    scale: float,
    orthogonal: bool = False,
    smoothness: float = 1.5,
    rng: int | np.random.Generator,
) -> np.ndarray:
    """Frequencies omega, shape (particle, dim), such that E cos(omega . delta) is the kernel called `law`.

    With ell = 1 / `scale` the length scale of the kernel in the units of the inputs, so that `scale` is the spectral scale in
    radians per unit of input:

    ========== =========================================== =============================================
    law        kernel k(delta)                             frequencies
    ========== =========================================== =============================================
    "gaussian" exp(-|delta|^2 / (2 ell^2))                 N(0, scale^2 I)
    "laplace"  `exp(-|delta|_1 / ell)`, a product          independent Cauchy of scale `scale`
    "cauchy"   prod_j 1 / (1 + delta_j^2 / ell^2)          independent Laplace of scale `scale`
    "matern"   Matern in |delta|, of the `smoothness` nu   multivariate Student t, 2 nu degrees of freedom
    ========== =========================================== =============================================

    (Rahimi and Recht 2007, figure 1, for the first three; the isotropic exponential exp(-|delta| / ell) is "matern" with
    smoothness 1/2.) `orthogonal` draws blocks of `dim` mutually orthogonal directions, uniform on the orthogonal group, with
    independent norms of the law itself (Yu et al. 2016), so that each frequency keeps its exact marginal law. That exists for
    isotropic laws only.

    Raises
    ------
    ValueError
        On an unknown law, a count below 1, a scale or smoothness that is not positive, or `orthogonal` with a product law.
    """
    if law not in ISOTROPIC_LAWS + PRODUCT_LAWS:
        raise ValueError(f"law must be one of {ISOTROPIC_LAWS + PRODUCT_LAWS}, got {law!r}")
    shape = (count(n_particles, "n_particles"), count(dim, "dim"))
    scale, smoothness = positive(scale, "scale"), positive(smoothness, "smoothness")
    if orthogonal and law in PRODUCT_LAWS:
        raise ValueError(f"orthogonal frequencies need an isotropic law, one of {ISOTROPIC_LAWS}, got {law!r}")
    rng = generator(rng)
    if law == "laplace":
        return scale * rng.standard_cauchy(shape)
    if law == "cauchy":
        return scale * rng.laplace(size=shape)
    omega = _orthogonal_normal(*shape, rng) if orthogonal else rng.standard_normal(shape)
    if law == "matern":
        freedom = 2 * smoothness
        omega /= np.sqrt(rng.chisquare(freedom, (shape[0], 1)) / freedom)
    return scale * omega


def _orthogonal_normal(n_particles: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Standard normal rows, shape (particle, dim), orthogonal within blocks of `dim`: Haar directions times independent chi norms."""
    n_blocks = -(-n_particles // dim)
    directions, triangle = np.linalg.qr(rng.standard_normal((n_blocks, dim, dim)))
    directions *= np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, None, :]  # the factor's sign is a convention: this makes it Haar
    norms = np.sqrt(rng.chisquare(dim, n_particles))
    return directions.swapaxes(1, 2).reshape(n_blocks * dim, dim)[:n_particles] * norms[:, None]
