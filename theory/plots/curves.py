"""What figures show, as Datasets: computed once, saved, and drawn by `theory.plots.draw` before or after a reload.

Most figures are one picture, `compared`: measured points with intervals beside predicted curves. A name may end in its units, as in
"time [s]"; intervals are two standard errors unless a function says otherwise, and NaN is a gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from theory.arrays import FloatArray, count, finite, numeric
from theory.plots.inputs import held, instance, of_check
from theory.report import density_laws
from theory.report.run import NotApplicable, Potential, read
from theory.spectral.gram import LabelAlignment
from theory.spectral.random_matrices import MarchenkoPastur, PenningtonWorah

__all__ = [
    "Atom",
    "across",
    "alignment",
    "axis",
    "compared",
    "cumulative",
    "density_deciles",
    "gram_spectrum",
    "histogram",
    "mean_error",
    "named",
    "quantiles",
]

Scale = Literal["linear", "semilogx", "semilogy", "loglog"]
ZERO = 1e-9  # of the largest eigenvalue, below which one counts as zero


class Atom(NamedTuple):
    """A point mass at `place`: measured, its standard error (NaN for none), and predicted."""

    place: float
    measured: float
    error: float
    predicted: float


def named(text: str) -> dict[str, str]:
    """Attributes long_name and units ("1" for none) of "name [units]"."""
    name, _, units = text.partition(" [")
    return {"long_name": name, "units": units.removesuffix("]") or "1"}


def compared(
    x: ArrayLike,
    measured: ArrayLike,
    *,
    error: ArrayLike | None = None,
    interval: tuple[ArrayLike, ArrayLike] | None = None,
    series: Sequence[str] = ("measured",),
    grid: ArrayLike | None = None,
    law: ArrayLike | None = None,
    band: tuple[ArrayLike, ArrayLike] | None = None,
    curves: Sequence[str] = ("theory",),
    x_name: str = "x",
    y_name: str = "value",
    scale: Scale = "linear",
    style: Literal["points", "line"] = "points",
) -> xr.Dataset:
    """Measured values (series, n) or (n,) at x (n,), beside laws (curve, m) or (m,) on a grid (m,), which is x by default.

    `error` holds standard errors, or `interval` the ends of another interval, of measured's shape; `band` those around the laws. Curves
    called as a series are drawn in its colour. A rate of which only a lower bound is known has measured and upper end infinite.

    Raises
    ------
    ValueError
        If arrays are empty or of other shapes, x or grid are not finite, or a logarithmic x is not positive.
    """
    x = axis(x, "x", scale in ("semilogx", "loglog"))
    data = {"measured": _rows(measured, "measured", series, x)}
    if interval is None:
        half = 2 * (np.full(x.shape, np.nan) if error is None else numeric(error, "error"))
        interval = numeric(measured, "measured") - half, numeric(measured, "measured") + half
    data |= {name: _rows(end, name, series, x) for name, end in zip(("low", "high"), interval)}
    variables: dict[str, Any] = {name: (("series", "x"), values, named(y_name)) for name, values in data.items()}
    coords: dict[str, Any] = {"x": ("x", x, named(x_name)), "series": list(series)}
    if law is not None:
        grid = axis(x if grid is None else grid, "grid", scale in ("semilogx", "loglog"))
        nothing = np.full((len(curves), len(grid)), np.nan)
        low, high = (nothing, nothing) if band is None else band
        for name, values in (("law", law), ("law_low", low), ("law_high", high)):
            variables[name] = (("curve", "grid"), _rows(values, name, curves, grid), named(y_name))
        coords |= {"grid": ("grid", grid, named(x_name)), "curve": list(curves)}
    return xr.Dataset(variables, coords, {"figure": "compared", "scale": scale, "style": style})


def histogram(
    edges: ArrayLike,
    estimate: tuple[ArrayLike, ArrayLike],
    grid: ArrayLike,
    law: ArrayLike,
    *,
    atom: Atom | None = None,
    label: str = "theory",
    x_name: str = "position",
    y_name: str = "density",
    scale: Literal["linear", "semilogy"] = "linear",
) -> xr.Dataset:
    """Densities in the cells of edges (m + 1,) beside a law on a grid: on the line, along the radius, of eigenvalues.

    `estimate` holds the means over chains and their standard errors, each (m,), as `spectrum_estimate.marginal_profile`,
    `radial_profile` (densities per volume) and `Estimate` give them; a law may be infinite at the ends of the grid.
    """
    edges = axis(edges, "edges")
    value, error = (numeric(part, "estimate") for part in estimate)
    if value.shape != (len(edges) - 1,) or error.shape != value.shape or (np.diff(edges) <= 0).any():
        raise ValueError(
            f"estimate must hold two arrays of the {len(edges) - 1} cells of increasing edges, got {value.shape}, {error.shape}"
        )
    grid = axis(grid, "grid")
    variables: dict[str, Any] = {
        "measured": ("cell", value, named(y_name)),
        "error": ("cell", error, {"long_name": "standard error", "units": named(y_name)["units"]}),
        "law": ("grid", _rows(law, "law", ("law",), grid)[0], named(y_name)),
    }
    if atom is not None:
        variables |= {f"atom_{name}": ((), float(number), {"long_name": f"atom, {name}"}) for name, number in atom._asdict().items()}
    coords = {"edge": ("edge", edges, named(x_name)), "grid": ("grid", grid, named(x_name))}
    return xr.Dataset(variables, coords, {"figure": "histogram", "label": label, "scale": scale})


def cumulative(samples: ArrayLike, x: ArrayLike, cdf: ArrayLike, *, x_name: str = "position") -> xr.Dataset:
    """Empirical distribution functions of samples (chain, ...) less the law's `cdf` at x (m,): what a histogram's bins hide."""
    samples, x, law = finite(samples, "samples"), axis(x, "x"), finite(cdf, "cdf")
    if samples.ndim < 2 or not samples.size or law.shape != x.shape:
        raise ValueError(f"samples must be (chain, ...), x and cdf of one shape, got {samples.shape}, {x.shape}, {law.shape}")
    below = np.array([np.searchsorted(np.sort(chain, axis=None), x, side="right") / chain.size for chain in samples])
    mean, error = mean_error(below)
    names: dict[str, Any] = {"x_name": x_name, "y_name": "measured less predicted probability"}
    return compared(x, mean - law, error=error, law=np.zeros(x.shape), style="line", series=("particles",), **names)


def quantiles(x: ArrayLike, quantile: Callable[[FloatArray], ArrayLike]) -> xr.Dataset:
    """Sorted points x (n,) or (n, 1) on the line, as of a ground state, against the law's quantiles of (k - 1/2)/n: on the diagonal.

    ValueError if x are not on the line, or quantile is no callable that returns as many finite numbers as it gets, in order.
    """
    instance(quantile, Callable, "quantile")
    points = finite(x, "x")
    if points.ndim not in (1, 2) or points.size != len(points):
        raise ValueError(f"x must be points on the line, (n,) or (n, 1), got shape {points.shape}")
    places = axis(quantile((np.arange(points.size) + 0.5) / max(points.size, 1)), "quantile")
    return compared(places, np.sort(points.ravel()), law=places, series=("particles",), x_name="quantile of the law", y_name="position")


def density_deciles(
    dataset: xr.Dataset,
    *,
    external: Potential | None = None,
    interaction: Potential | None = None,
    burn_in: float = 0.25,
    rng: int | np.random.Generator = 0,
) -> xr.Dataset:
    """What the density law of `report.check` tests: the probability below each decile of the law, measured less predicted.

    The band is what the law allows for. Arguments as there; ValueError if the run has no density law, with the reason.
    """
    try:
        groups = density_laws.deciles(read(dataset, burn_in, external, interaction), rng)
    except NotApplicable as reason:
        raise ValueError(f"dataset must have a density law: {reason}") from None
    columns = {
        name: np.array([[getattr(law, name) for law in group] for group in groups]) for name in ("measured", "standard_error", "allowance")
    }
    allowance = columns["allowance"].max(0)
    series = (
        [f"coordinate {k + 1}" for k in range(len(groups))]
        if len(groups) > 1
        else [groups[0][0].note.removeprefix("worst decile").lstrip(", ").removeprefix("of the ")]
    )
    return compared(
        np.arange(1, 10) / 10,
        columns["measured"],
        error=columns["standard_error"],
        series=series,
        law=np.zeros(9),
        band=(-2 * allowance, 2 * allowance),
        x_name="probability under the law",
        y_name="measured less predicted probability",
    )


def across(parameter: ArrayLike, tables: Sequence[xr.Dataset], law: str, *, x_name: str, scale: Scale = "linear") -> xr.Dataset:
    """One law of `report.check` in several runs, measured beside predicted, as the wall atom against the step size.

    The band is twice what the law allows for. ValueError if a table lacks the law, one is not what check returns, or
    there are not as many as parameters.
    """
    x = axis(parameter, "parameter")
    instance(tables, Sequence, "tables")
    for k, table in enumerate(tables):
        of_check(table, f"tables[{k}]")
    if len(tables) != len(x) or any(law not in table["law"].values for table in tables):
        raise ValueError(
            f"tables must be {len(x)} results of check that hold {law!r}, got {[list(table['law'].values) for table in tables]}"
        )
    order = np.argsort(x)
    rows = [tables[k].sel(law=law) for k in order]
    predicted, measured, error, spare = (
        np.array([float(row[name]) for row in rows]) for name in ("predicted", "measured", "standard_error", "allowance")
    )
    ends = predicted - 2 * spare, predicted + 2 * spare
    return compared(x[order], measured, error=error, law=predicted, band=ends, x_name=x_name, y_name=law.replace("_", " "), scale=scale)


def gram_spectrum(
    eigenvalues: ArrayLike, law: MarchenkoPastur | PenningtonWorah, *, bins: int = 60, scale: Literal["linear", "semilogy"] = "linear"
) -> xr.Dataset:
    """Eigenvalues (matrix, n) or (n,) beside `MarchenkoPastur` or `PenningtonWorah`; those that are zero are the atom.

    Densities have mass 1 - atom; eigenvalues beyond 1.15 times the law's upper edge (a mean of the features adds one) are left out. The
    ends of the law are in `law_edge`.
    """
    values = np.atleast_2d(finite(eigenvalues, "eigenvalues"))
    if values.ndim != 2 or not values.size or values.max() <= 0:
        raise ValueError(f"eigenvalues must be (matrix, n), some positive, got shape {values.shape}")
    instance(law, (MarchenkoPastur, PenningtonWorah), "law")
    ends = law.edges if isinstance(law, MarchenkoPastur) else (law.edge,)
    edge = float(ends[-1])
    edges = np.linspace(0.0, 1.15 * edge, count(bins, "bins") + 1)
    zero = values <= ZERO * values.max()
    filled = [np.histogram(row[~none], edges)[0] / row.size / np.diff(edges) for row, none in zip(values, zero)]
    grid = edge * np.sin(np.linspace(0, np.pi / 2, 402)[1:-1]) ** 2
    share, error = mean_error(zero.mean(1))
    atom = Atom(0.0, float(share), float(error), law.atom)
    name = re.sub("(?<=[a-z])(?=[A-Z])", "-", type(law).__name__)
    names: dict[str, Any] = {"label": name, "scale": scale, "x_name": "eigenvalue", "y_name": "spectral density"}
    found = histogram(edges, mean_error(np.array(filled)), grid, law.density(grid), atom=atom, **names)
    return found.assign(law_edge=("end", np.array(ends, dtype=float), named("edge of the law")))


def alignment(found: Mapping[str, LabelAlignment]) -> xr.Dataset:
    """Share of the labels in the leading eigenvectors of each Gram matrix, all of one size; labels at random lie on the diagonal."""
    held(found, Mapping, LabelAlignment, "found")
    size = {int(one.rank[-1]) for one in found.values()}
    if len(size) > 1:
        raise ValueError(f"found must come from Gram matrices of one size, got {sorted(size)}")
    rank = np.arange(size.pop() + 1.0)
    shares = [np.interp(rank, [0, *one.rank], [0, *one.cumulative]) for one in found.values()]
    names: dict[str, Any] = {"x_name": "leading eigenvectors", "y_name": "share of the labels", "curves": ("labels at random",)}
    return compared(rank, shares, series=tuple(found), law=rank / rank[-1], style="line", **names)


def mean_error(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean over the rows and its standard error, NaN for one row."""
    rows = len(values)
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(rows) if rows > 1 else np.full(values.shape[1:], np.nan)


def axis(values: ArrayLike, name: str, positive: bool = False) -> FloatArray:
    """values as an array (n,), n at least 1; ValueError names it otherwise, or if it has to be positive and is not."""
    array = finite(values, name)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be of shape (n,) with n at least 1, got {array.shape}")
    if positive and array.min() <= 0:
        raise ValueError(f"{name} must be positive, got {array.min()}")
    return array


def _rows(values: ArrayLike, name: str, labels: Sequence[str], axis: FloatArray) -> FloatArray:
    """values as (label, n)."""
    rows = np.atleast_2d(numeric(values, name))
    if rows.shape != (len(labels), len(axis)):
        raise ValueError(f"{name} must be of shape {(len(labels), len(axis))} for {list(labels)}, got {np.shape(values)}")
    return rows
