"""Learned spectral measures as scikit-learn transformers, with the two classical baselines behind the same interface.

All of them hold particles `omega_`, map x to N^-1/2 phi(x; omega_k) and choose what has to be chosen (steps, bandwidth, radius) by
the accuracy of a ridge head on a 25 % hold-out of the training data. Inputs are meant to be standardised: put a `StandardScaler` in front.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from particles.alignment import Alignment
from particles.arrays import count, flag, positive
from particles.domain import Ball
from particles.energy import Energy, Quadratic
from particles.features import CosineSquared, Feature, FourierPhase, as_feature
from particles.frequencies import sample_frequencies
from particles.langevin import Langevin
from particles.riesz import Riesz
from particles.simulate import simulate, uninterrupted

HOLDOUT = 0.25
PENALTIES = np.geomspace(1e-5, 1e-1, 8)  # ridge penalty per training row, for features with kernel(x, x) about 1
FULL_BATCH, BATCH = 5000, 512  # rows up to which every step sees all of them, and rows that it sees of more
SCALES = 2.0 ** np.arange(-2, 2.5, 0.5)  # spectral scales tried, in units of 1 / median distance of the inputs


class Split(NamedTuple):
    """Fit and hold-out parts: x (n, dim) and real targets (n, target), one-hot for classes; `classes` says how to score."""

    x: np.ndarray
    y: np.ndarray
    x_holdout: np.ndarray
    y_holdout: np.ndarray
    classes: bool

    def score(self, feature: Feature, omega: np.ndarray) -> float:
        """Best hold-out accuracy (classes) or R^2 (real targets) over the ridge penalties, for the features of `omega`."""
        phi, phi_holdout = flat_features(feature, self.x, omega), flat_features(feature, self.x_holdout, omega)
        predictions = ridge_path(phi, self.y, phi_holdout)
        if self.classes:
            return float((predictions.argmax(-1) == self.y_holdout.argmax(-1)).mean(-1).max())
        residual = ((predictions - self.y_holdout) ** 2).sum((-2, -1))
        return float(1 - residual.min() / max(((self.y_holdout - self.y.mean(0)) ** 2).sum(), np.finfo(float).tiny))


def flat_features(feature: Feature, x: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """N^-1/2 phi, shape (n, width * particle), ordered as [all cos | all sin]; its Gram matrix is the kernel."""
    phi = feature(x, omega)
    return phi.reshape(len(x), -1) / np.sqrt(omega.shape[-2]).astype(phi.dtype)


def ridge_path(phi: np.ndarray, y: np.ndarray, phi_new: np.ndarray) -> np.ndarray:
    """Ridge predictions with an intercept for every penalty in `PENALTIES`, shape (penalty, n_new, target), from one decomposition."""
    centre, level = phi.mean(0), y.mean(0)
    features, targets, new = phi - centre, y - level, phi_new - centre
    dual = len(features) < features.shape[1]  # decompose the smaller of the two Gram matrices
    size, axes = np.linalg.eigh(features @ features.T if dual else features.T @ features)
    left, right = (new @ (features.T @ axes), axes.T @ targets) if dual else (new @ axes, axes.T @ (features.T @ targets))
    return left @ (right / (size + len(phi) * PENALTIES[:, None])[..., None]) + level


def holdout_split(x: np.ndarray, y: np.ndarray, classes: bool, rng: np.random.Generator) -> Split:
    """A random 25 % of the rows, of each class when there are classes (a class with one member stays in the fit part).

    Raises
    ------
    ValueError
        If no row can be held out.
    """
    order = rng.permutation(len(x))
    group = y[order].argmax(-1) if classes else np.zeros(len(x), dtype=int)
    held = np.concatenate([members[: _holdout_count(len(members))] for members in (order[group == g] for g in np.unique(group))])
    if len(held) == 0:
        raise ValueError(f"y must have a class with at least 2 rows for a hold-out, got {len(x)} rows in {len(np.unique(group))} classes")
    kept = np.setdiff1d(order, held)
    return Split(x[kept], y[kept], x[held], y[held], classes)


def _holdout_count(n: int) -> int:
    return 0 if n < 2 else max(1, round(HOLDOUT * n))


def start_frequencies(feature: Feature, n_particles: int, dim: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Gaussian particles (particle, particle_dim) of standard deviation `scale`; a phase starts uniform on [-pi/2, pi/2].

    (That interval is enough: adding pi to a phase at most flips the feature's sign and leaves the kernel.)
    """
    omega = sample_frequencies("gaussian", n_particles, feature.particle_dim(dim), scale=scale, rng=rng)
    if isinstance(feature, FourierPhase | CosineSquared):
        omega[:, -1] = rng.uniform(-np.pi / 2, np.pi / 2, n_particles)
    return omega


def default_energy(x: np.ndarray, y: np.ndarray, feature: Feature, omega: np.ndarray) -> Energy:
    """Alignment, confinement of stiffness 0.02 and a weak repulsion, for standardised inputs and particles that start at `omega`.

    The repulsion is g_1 at softening 0.05 in units of the median start distance, mirrored where w and -w are one feature; its
    strength 0.02 (N-1)/N stands for (lambda/N^2) sum over pairs with lambda = 0.01. Above 5,000 rows each step sees 512 of them.
    """
    targets = y[:, 1:] if y.shape[1] == 2 and (y.sum(1) == 1).all() else y  # two classes: one column says it all
    energy = Alignment(x, targets, feature, batch_size=BATCH if len(x) > FULL_BATCH else None) + Quadratic(0.02)
    n_particles = len(omega)
    if n_particles == 1:
        return energy
    strength = 0.02 * (n_particles - 1) / n_particles
    return energy + Riesz(1.0, strength, softening=0.05, length=float(np.median(pdist(omega))), mirror=feature.signed)


class _SpectralFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the transformers share: input checks, transform and kernel from the fitted particles `omega_` (particle, particle_dim)."""

    omega_: np.ndarray
    feature_: Feature

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        """(x (n, dim) float64, targets (n, target) float64, whether they are classes); sets `classes_` and `feature_`."""
        count(self.n_particles, "n_particles")
        self.feature_ = as_feature(self.feature)
        if self.feature_.many_body:
            raise ValueError(f"feature must depend on one particle at a time, got {self.feature!r}")
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True)
        classes = y.ndim == 1 and type_of_target(y) in ("binary", "multiclass")
        if classes:
            self.classes_, codes = np.unique(y, return_inverse=True)
            y = np.eye(len(self.classes_))[codes]
        if y.dtype.kind not in "biufO":
            raise ValueError(f"y must hold labels (n,) or numbers (n, target), got dtype {y.dtype} and shape {y.shape}")
        y = y.reshape(len(X), -1).astype(np.float64)
        if not np.ptp(y, axis=0).any():
            raise ValueError(f"y must hold at least two classes or values, got 1 class in {len(y)} samples")
        return X.astype(np.float64), y, classes

    def transform(self, X: Any) -> np.ndarray:
        """N^-1/2 phi(x; omega_k), shape (n, width * n_particles), in X's floating-point type; the Gram matrix is `kernel`."""
        check_is_fitted(self, "omega_")
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return flat_features(self.feature_, X, self.omega_.astype(X.dtype))

    def kernel(self, X: Any, Y: Any = None) -> np.ndarray:
        """The learned kernel between the rows of X and of Y (of X when None), shape (n, n2): transform(X) @ transform(Y).T."""
        first = self.transform(X)
        return first @ (first if Y is None else self.transform(Y)).T

    @property
    def _n_features_out(self) -> int:
        return self.feature_.width * len(self.omega_)


class ParticleFeatures(_SpectralFeatures):
    """Random features whose frequencies are learned by projected Langevin dynamics on labelled data.

    The constants suit inputs of unit variance: put a `StandardScaler` before it. Particles start at N(0, 0.3/dim), climb the alignment
    of their kernel with the labels, repel each other weakly, stay confined and keep a little noise (Coulomb paper, Algorithm 1). With
    `early_stopping`, a run on 75 % of the data is scored by a ridge head on the rest after 0, 1/4, 1/2 and all of `n_steps`; the best
    number of steps is then run again on all data. Zero steps, plain random features, is among the candidates. Above 5,000 rows each step
    sees 512 of them. The features of a row have length about 1, so a head with a penalty wants a weak one: `LogisticRegression(C=100)`.

    Parameters
    ----------
    n_particles : number of frequency vectors N; a Fourier pair makes 2 N features of them.
    energy : callable (x, y) -> Energy with y (n, target) one-hot classes or real targets; None is `default_energy`.
    sampler : default Langevin(2.0, 1000.0). domain : default Ball(3, particle_dim).
    feature : short name of a feature or a `Feature` (one that is not normalised over particles).
    n_steps : Langevin steps, the largest number tried with `early_stopping`.
    random_state : int, RandomState or None, as everywhere in scikit-learn.

    Attributes
    ----------
    omega_ : (particle, particle_dim). trajectory_ : the Dataset of the final run.
    alignment_ : the kernel's alignment with the training labels (unit: 1 is perfect agreement).
    holdout_alignment_ : the same on the hold-out for the run that has not seen it (NaN without `early_stopping`);
    a training value far above it means that the particles fit noise.
    n_iter_ : steps taken, possibly 0. classes_ : the labels, when y holds classes.

    Notes
    -----
    A y of integers, booleans or strings, or of whole-numbered floats, holds classes; other floats and (n, target) arrays are real targets.
    """

    def __init__(
        self,
        n_particles: int = 64,
        *,
        energy: Callable[[np.ndarray, np.ndarray], Energy] | None = None,
        sampler: Langevin | None = None,
        domain: Any = None,
        feature: str | Feature = "fourier",
        n_steps: int = 100,
        early_stopping: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_particles = n_particles
        self.energy = energy
        self.sampler = sampler
        self.domain = domain
        self.feature = feature
        self.n_steps = n_steps
        self.early_stopping = early_stopping
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> ParticleFeatures:
        """Move the particles on X (n, dim) and y (n,) or (n, target).

        ValueError on bad shapes, NaN, a single class, and parameters out of range; KeyboardInterrupt if Ctrl-C ends a run.
        """
        x, target, classes = self._checked(X, y)
        n_steps, early_stopping = count(self.n_steps, "n_steps"), flag(self.early_stopping, "early_stopping")
        if self.energy is not None and not callable(self.energy):
            raise ValueError(f"energy must be a function of (x, y), got {self.energy!r}")
        if self.domain is not None and not hasattr(self.domain, "project"):
            raise ValueError(f"domain must be a domain of `particles`, got {self.domain!r}")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        start = start_frequencies(self.feature_, self.n_particles, x.shape[1], np.sqrt(0.3 / x.shape[1]), rng)
        key = int(rng.integers(2**31))
        self.holdout_alignment_ = float("nan")
        if early_stopping:
            split = holdout_split(x, target, classes, rng)
            n_steps, omega = self._best_checkpoint(start, split, n_steps, key)
            self.holdout_alignment_ = self._alignment(split.x_holdout, split.y_holdout, omega)
        self.n_iter_ = n_steps
        save_every = next(every for every in range(max(1, n_steps // 20), 0, -1) if n_steps % every == 0)
        self.trajectory_ = self._run(start, x, target, n_steps, save_every, key)
        self.omega_ = self.trajectory_["omega"].values[0, -1]
        self.alignment_ = self._alignment(x, target, self.omega_)
        return self

    def _run(self, start: np.ndarray, x: np.ndarray, y: np.ndarray, n_steps: int, save_every: int, key: int) -> Any:
        energy = default_energy(x, y, self.feature_, start) if self.energy is None else self.energy(x, y)
        domain = Ball(3.0, start.shape[1]) if self.domain is None else self.domain
        sampler = Langevin(2.0, 1000.0) if self.sampler is None else self.sampler
        run = simulate(domain.project(start), energy, domain, sampler, n_steps=n_steps, save_every=save_every, rng=key)
        return uninterrupted(run)

    def _best_checkpoint(self, start: np.ndarray, split: Split, n_steps: int, key: int) -> tuple[int, np.ndarray]:
        """(steps, particles) with the best hold-out score among 0, 1/4, 1/2 and all steps; the earliest on ties."""
        checkpoints = sorted({0, n_steps // 4, n_steps // 2, n_steps})
        frames = self._run(start, split.x, split.y, n_steps, math.gcd(*checkpoints), key)["omega"].isel(chain=0)
        candidates = [(step, frames.sel(step=step).values) for step in checkpoints]
        return max(candidates, key=lambda candidate: split.score(self.feature_, candidate[1]))

    def _alignment(self, x: np.ndarray, y: np.ndarray, omega: np.ndarray) -> float:
        if len(x) < 2 or not np.ptp(y, axis=0).any():
            return float("nan")
        return -float(Alignment(x, y, self.feature_).value(omega))


class GaussianFeatures(_SpectralFeatures):
    """Random Fourier features of the Gaussian kernel with its bandwidth tuned on the hold-out (Rahimi and Recht 2007): the baseline.

    Attributes
    ----------
    scale_ : chosen standard deviation of the frequencies, one of nine multiples, 1/4 to 4, of 1 / median distance of distinct inputs.
    omega_ : (particle, particle_dim).
    """

    def __init__(self, n_particles: int = 64, *, feature: str | Feature = "fourier", random_state: Any = None) -> None:
        self.n_particles = n_particles
        self.feature = feature
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> GaussianFeatures:
        """Choose the bandwidth on X (n, dim) and y; ValueError on bad shapes, NaN or a single class."""
        x, target, classes = self._checked(X, y)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        self.scale_, self.omega_ = self._tuned(holdout_split(x, target, classes, rng), rng)
        return self

    def _tuned(self, split: Split, rng: np.random.Generator) -> tuple[float, np.ndarray]:
        """(scale, particles) with the best hold-out score over `SCALES`; one set of directions serves all scales."""
        distances = pdist(split.x[:500])
        if not (distances.any() and np.isfinite(distances).all()):
            raise ValueError(f"X must hold distinct rows at finite distances, got distances up to {distances.max(initial=0.0)}")
        median = np.median(distances[distances > 0])
        dim = split.x.shape[1]
        seed = int(rng.integers(2**31))
        scales = [float(scale / median) for scale in SCALES]
        starts = [start_frequencies(self.feature_, self.n_particles, dim, scale, np.random.default_rng(seed)) for scale in scales]
        return max(zip(scales, starts), key=lambda candidate: split.score(self.feature_, candidate[1]))


class ImportanceFeatures(GaussianFeatures):
    """Frequencies resampled from a Gaussian pool with weights that maximise the alignment (Sinha and Duchi 2016): the other baseline.

    A pool of frequencies is drawn from the tuned Gaussian and weighted by `chi_square_weights` of their alignments; `n_particles`
    are drawn from the weights. The radius of the ball is chosen on the hold-out; weights then use all data.

    Attributes
    ----------
    scale_ : of the pool. radius_ : chosen chi-square radius. pool_ (pool, particle_dim), weights_ (pool,), omega_ (particle, particle_dim).
    """

    def __init__(
        self,
        n_particles: int = 64,
        *,
        feature: str | Feature = "fourier",
        pool_size: int = 2500,
        radii: tuple[float, ...] = (50.0, 250.0),
        random_state: Any = None,
    ) -> None:
        super().__init__(n_particles, feature=feature, random_state=random_state)
        self.pool_size = pool_size
        self.radii = radii

    def fit(self, X: Any, y: Any) -> ImportanceFeatures:
        """Weigh and resample the pool on X (n, dim) and y; ValueError on bad shapes, NaN, a single class or a radius not positive."""
        x, target, classes = self._checked(X, y)
        pool_size, radii = count(self.pool_size, "pool_size"), [positive(radius, "radii") for radius in self.radii]
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        split = holdout_split(x, target, classes, rng)
        self.scale_ = self._tuned(split, rng)[0]
        self.pool_ = start_frequencies(self.feature_, pool_size, x.shape[1], self.scale_, rng)
        values = self._alignments(split.x, split.y)
        scores = [split.score(self.feature_, self._resample(chi_square_weights(values, radius), rng)) for radius in radii]
        self.radius_ = radii[int(np.argmax(scores))]
        self.weights_ = chi_square_weights(self._alignments(x, target), self.radius_)
        self.omega_ = self._resample(self.weights_, rng)
        return self

    def _alignments(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The alignment of each pool frequency on its own, (pool,)."""
        return -np.asarray(Alignment(x, y, self.feature_).value(self.pool_[:, None, :]))

    def _resample(self, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.pool_[rng.choice(len(weights), self.n_particles, p=weights)]


def chi_square_weights(values: np.ndarray, radius: float) -> np.ndarray:
    """Weights q (pool,) that maximise sum q_k values_k over the simplex within the chi-square ball M sum q_k^2 - 1 <= radius.

    The maximiser is q proportional to (values - threshold)_+ (Sinha and Duchi 2016, problem 4). The divergence M sum q^2 - 1 grows
    with the threshold, so the threshold is found by bisection; 1 + radius is about the pool size over the number of frequencies
    kept. When the ball reaches past the best vertex (or the tied best ones), the weights are uniform on the best values.
    """
    values = np.asarray(values, dtype=np.float64)
    best = values == values.max()
    if len(values) / best.sum() - 1 <= radius:
        return best / best.sum()
    spread = values.max() - values.min()
    low, high = values.min() - spread * len(values) / np.sqrt(radius), values.max()
    for _ in range(200):
        middle = (low + high) / 2
        weights = np.maximum(values - middle, 0)
        weights /= weights.sum()
        low, high = (middle, high) if len(values) * (weights**2).sum() - 1 < radius else (low, middle)
        if not low < (low + high) / 2 < high:
            break
    return weights
