"""A learned kernel as pictures: its Gram matrix, how fast the eigenvalues fall, slices through it, and whether it sees the labels.

Gram matrices are arrays (n, n), several of them a dict by name; curves of theory enter as arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from particles.arrays import Array, as_float, as_omega, flag, positive
from particles.features import Feature, as_feature
from particles.plots.density import theory_curve
from particles.plots.panels import COLOURS, axes_of, ink, style_of
from particles.targets import target_factor, to_numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 12  # labels at most that are parted by lines and named beside a Gram matrix
POINTS = 201  # of a slice


def plot_gram(gram: Array, labels: Any = None, *, limit: float | None = None, colorbar: bool = True, ax: Axes | None = None) -> Axes:
    """The Gram matrix of n points, ordered by their labels.

    Red is positive, blue negative, white zero. Lines part up to 12 labels, whose names stand beside their blocks; more are only ordered.

    Parameters
    ----------
    gram
        A symmetric matrix (n, n).
    labels
        One a point (n,), numbers or strings; the points keep the order they have within a label, and all of it for None.
    limit
        The value at which the colours end; the largest absolute one by default.

    Raises
    ------
    ValueError
        If gram is empty, not symmetric or not finite, or labels are not (n,).
    """
    gram = _matrix(gram, "gram")
    limit, colorbar = positive(np.abs(gram).max() or 1.0 if limit is None else limit, "limit"), flag(colorbar, "colorbar")
    if labels is not None:
        labels = _labels(labels, len(gram))
        order = np.argsort(labels, kind="stable")
        gram = gram[np.ix_(order, order)]
    ax = axes_of(ax)
    image = ax.imshow(gram, vmin=-limit, vmax=limit, cmap="RdBu_r", interpolation="nearest")
    ax.tick_params(length=0)
    _name_blocks(ax, labels)
    if colorbar:
        ax.figure.colorbar(image, ax=ax, label="k(x, x')", shrink=0.85)
    return ax


def figure_grams(grams: Mapping[str, Array], labels: Any = None) -> Figure:
    """Gram matrices of the same n points side by side, such as before and after learning, with one scale of colours.

    ValueError as `plot_gram`, or if the matrices are of different sizes.
    """
    import matplotlib.pyplot as plt

    matrices = _matrices(grams)
    limit = max(np.abs(matrix).max() for matrix in matrices.values()) or 1.0
    if labels is not None:
        labels = _labels(labels, len(next(iter(matrices.values()))))
    figure, axes = plt.subplots(1, len(matrices), figsize=(0.8 + 3.2 * len(matrices), 3.2), layout="constrained", squeeze=False)
    for ax, (name, matrix) in zip(axes[0], matrices.items()):
        plot_gram(matrix, labels, limit=limit, colorbar=False, ax=ax)
        ax.set_title(name, fontsize=11, loc="left")
    figure.colorbar(axes[0, -1].images[0], ax=axes, label="k(x, x')", shrink=0.85)
    return figure


def eigenvalues(gram: Array) -> np.ndarray:
    """Eigenvalues (n,) of a positive semi-definite matrix (n, n), the largest first; those that are zero up to rounding are 0."""
    return _cleaned(np.linalg.eigvalsh(_matrix(gram, "gram"))[::-1], "gram")


def plot_eigenvalues(
    grams: Mapping[str, Array], *, edge: float | None = None, curve: tuple[Any, Any] | None = None, ax: Axes | None = None
) -> Axes:
    """Eigenvalues of Gram matrices against their number from 1, both axes logarithmic; zeros are left out.

    Parameters
    ----------
    grams
        Matrices (n, n) by name, scaled as the edge and the curve are (k / n has the eigenvalues of the kernel's operator).
    edge
        A level above which an eigenvalue is more than noise, such as the upper end of a Marchenko-Pastur law; a dotted line.
    curve
        (number (m,), eigenvalue (m,)), such as a law's quantiles at 1 - (number - 1/2) / n.

    Raises
    ------
    ValueError
        If a matrix is empty, not symmetric, not finite, zero or clearly not positive semi-definite, or curve is none.
    """
    matrices = _matrices(grams, one_size=False)
    found = {name: _cleaned(np.linalg.eigvalsh(matrix)[::-1], f"grams[{name!r}]") for name, matrix in matrices.items()}
    edge = None if edge is None else positive(edge, "edge")
    curve = None if curve is None else theory_curve(curve, "curve", "(number, eigenvalue)")
    ax = axes_of(ax)
    for k, (name, values) in enumerate(found.items()):
        values = values[values > 0]
        ax.loglog(np.arange(1, len(values) + 1), values, **style_of(k), linewidth=1.6, marker="o", markersize=3, label=name)
    if curve is not None:
        ax.plot(*curve, color=ink(), linewidth=1.2, label="theory")
    if edge is not None:
        ax.axhline(edge, color=ink(), linestyle=":", linewidth=1.2, label="edge of the noise")
    ax.set(xlabel="number of the eigenvalue", ylabel="eigenvalue")
    ax.legend(frameon=False, fontsize=9)
    return ax


def plot_kernel_slices(
    omega: Array,
    feature: str | Feature,
    directions: Mapping[str, Array],
    *,
    reach: float = 3.0,
    exact: tuple[Any, Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The kernel k(x, 0) of particles along lines through 0; of several chains the mean, and their range as a band.

    Parameters
    ----------
    omega
        Particles (particle, particle_dim) or (chain, particle, particle_dim).
    directions
        Vectors (dim,) of the input space by name; their lengths do not matter.
    reach
        The lines go from -reach to reach.
    exact
        (distance (m,), kernel (m,)), a curve to compare with.

    Raises
    ------
    ValueError
        If omega does not fit the feature and the directions, a direction is zero or not finite, or exact is no curve.
    """
    omega = to_numpy(as_omega(omega), "omega")
    feature, distance = as_feature(feature), np.linspace(-1, 1, POINTS) * positive(reach, "reach")
    slices = {name: _slice(omega, feature, vector, distance, name) for name, vector in _named(directions, "directions").items()}
    exact = None if exact is None else theory_curve(exact, "exact", "(distance, kernel)")
    ax = axes_of(ax)
    for k, (name, values) in enumerate(slices.items()):
        ax.plot(distance, values.mean(0), **style_of(k), linewidth=1.6, label=name)
        if len(values) > 1:
            ax.fill_between(distance, values.min(0), values.max(0), color=COLOURS[k % len(COLOURS)], alpha=0.2, linewidth=0)
    if exact is not None:
        ax.plot(*exact, color=ink(), linewidth=1.2, linestyle=(0, (4, 2)), label="exact")
    ax.set(xlabel="x along the direction [input unit]", ylabel="k(x, 0)")
    ax.legend(frameon=False, fontsize=9)
    return ax


def plot_label_power(grams: Mapping[str, Array], labels: Any, *, ax: Axes | None = None) -> Axes:
    """Share of the labels' power in the leading eigenvectors of each Gram matrix; labels that it does not see lie on the diagonal.

    Labels and kernels are centred first (Cortes, Mohri and Rostamizadeh 2012), several classes are one-hot columns. Eigenvectors whose
    eigenvalue is zero have no order: they share what is left evenly.

    Parameters
    ----------
    grams
        Matrices (n, n) by name, of the same points.
    labels
        Labels (n,), or real targets (n, n_targets).

    Raises
    ------
    ValueError
        As `plot_eigenvalues`, or if the labels do not fit or are all equal.
    """
    matrices = _matrices(grams)
    size = len(next(iter(matrices.values())))
    target = target_factor(labels, name="labels")
    if len(target) != size:
        raise ValueError(f"labels must be {size}, one a row of grams, got {len(target)}")
    shares = {name: _label_power(matrix, target, name) for name, matrix in matrices.items()}
    ax = axes_of(ax)
    for k, (name, (number, share)) in enumerate(shares.items()):
        ax.plot(number, share, **style_of(k), linewidth=1.6, label=name)
    ax.plot([0, size], [0, 1], color="0.5", linewidth=1, linestyle=":", label="labels at random")
    ax.set(xlabel="leading eigenvectors", ylabel="share of the labels' power", xlim=(0, size), ylim=(0, 1.02))
    ax.legend(frameon=False, fontsize=9)
    return ax


# ---- numbers -----------------------------------------------------------------------------------------------------------------------------


def _label_power(gram: np.ndarray, target: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(number of eigenvectors, share of the target in them), from (0, 0) to (n, 1)."""
    mean = gram.mean(0)
    eigen, vectors = np.linalg.eigh(gram - mean - mean[:, None] + mean.mean())
    values, vectors = _cleaned(eigen[::-1], f"grams[{name!r}], centred,", scale=abs(gram).max()), vectors[:, ::-1]
    seen = values > 0
    share = ((vectors[:, seen].T @ target) ** 2).sum(1) / (target**2).sum()
    return np.array([*range(int(seen.sum()) + 1), len(gram)]), np.array([0.0, *share.cumsum(), 1.0])


def _slice(omega: np.ndarray, feature: Feature, direction: Any, distance: np.ndarray, name: str) -> np.ndarray:
    """k(distance * direction, 0), (chain, distance)."""
    vector = np.asarray(to_numpy(direction, "directions"), float)
    length = np.linalg.norm(vector)
    if vector.ndim != 1 or not (0 < length < np.inf):
        raise ValueError(f"directions must be finite vectors (dim,), not zero, got {direction!r} for {name!r}")
    x = distance[:, None] * vector / length
    return np.atleast_2d(feature.kernel(x, np.zeros((1, len(vector))), omega)[..., 0])


def _cleaned(values: np.ndarray, name: str, *, scale: float = 0.0) -> np.ndarray:
    """Falling eigenvalues, with 0 for what rounding leaves of a zero; ValueError for those of a matrix that is no kernel's.

    `scale` is that of numbers whose differences made the matrix.
    """
    rounding = 10 * len(values) * np.finfo(values.dtype).eps * max(abs(values).max(), scale)
    if values[0] <= rounding or values[-1] < -rounding:
        raise ValueError(f"{name} must be positive semi-definite and not zero, got eigenvalues from {values[-1]:.3g} to {values[0]:.3g}")
    return np.where(values > rounding, values, 0.0)


# ---- checks ------------------------------------------------------------------------------------------------------------------------------


def _matrix(gram: Any, name: str) -> np.ndarray:
    """A finite symmetric matrix (n, n), n at least 1."""
    matrix = as_float(to_numpy(gram, name), name)
    if matrix.ndim != 2 or not matrix.size or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must have shape (n, n) with n at least 1, got {matrix.shape}")
    gap = abs(matrix - matrix.T).max()
    if gap > 1e-5 * abs(matrix).max():
        raise ValueError(f"{name} must be symmetric, got entries that differ by {gap:.3g} from their mirror images")
    return (matrix + matrix.T) / 2


def _named(values: Any, name: str) -> dict[str, Any]:
    """A dict with at least one entry, its keys as text."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"{name} must be a dict of arrays by name, not empty, got {type(values).__name__}")
    return {str(key): value for key, value in values.items()}


def _matrices(grams: Any, *, one_size: bool = True) -> dict[str, np.ndarray]:
    """Checked matrices by name, of one size if that is asked for."""
    matrices = {name: _matrix(gram, f"grams[{name!r}]") for name, gram in _named(grams, "grams").items()}
    sizes = sorted({len(matrix) for matrix in matrices.values()})
    if one_size and len(sizes) > 1:
        raise ValueError(f"grams must be of one size, the same points in each, got {sizes}")
    return matrices


def _labels(labels: Any, n: int) -> np.ndarray:
    """(n,) labels that can be sorted."""
    labels = to_numpy(labels, "labels")
    if labels.shape != (n,) or labels.dtype.kind not in "biufUS":
        raise ValueError(f"labels must be {n} numbers or strings, got shape {labels.shape} and dtype {labels.dtype}")
    return labels


# ---- drawing -----------------------------------------------------------------------------------------------------------------------------


def _name_blocks(ax: Any, labels: np.ndarray | None) -> None:
    """Lines between the blocks of equal labels and their names beside them, if there are few."""
    names, sizes = np.unique([] if labels is None else labels, return_counts=True)
    if not 0 < len(names) <= NAMED:
        ax.set(xlabel="point", ylabel="point")
        return
    ends = np.cumsum(sizes) - 0.5
    for end in ends[:-1]:
        ax.axhline(end, color="black", linewidth=0.8)
        ax.axvline(end, color="black", linewidth=0.8)
    ax.set_xticks(ends - sizes / 2, names, rotation=90 if len(names) * max(len(str(name)) for name in names) > 24 else 0)
    ax.set_yticks(ends - sizes / 2, names)
    ax.set(xlabel="label of x'", ylabel="label of x")
