"""A trajectory as ArviZ's InferenceData, for its diagnostics and plots."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from particles.arrays import count
from particles.trajectory import require_trajectory

if TYPE_CHECKING:
    import xarray as xr

_NAMES = {"step": "draw", "acceptance": "acceptance_rate"}


def to_arviz(dataset: xr.Dataset, *, warmup: int | None = None) -> Any:
    """`arviz.InferenceData` of a trajectory of `simulate`: groups posterior, sample_stats, warmup_posterior, warmup_sample_stats.

    posterior holds omega (chain, draw, particle, dim); sample_stats the other variables (chain, draw) under their names, except that
    acceptance is called acceptance_rate, and lp = -beta N H_N, the log density of the Gibbs law up to a constant, where the sampler's
    beta is a finite number. `draw` keeps the step numbers. energy is H_N of the positions: it is no Hamiltonian of positions and
    velocities, so `arviz.bfmi` does not apply. Particles are exchangeable: diagnose functions of all of them (lp, energy, moments),
    or labels as they are.

    Parameters
    ----------
    warmup
        Frames of step <= warmup go to the warmup groups. None: the sampler's `tune`, or 0, which leaves out the start alone.

    Raises
    ------
    ImportError
        If ArviZ is not installed.
    ValueError
        If dataset is no trajectory, warmup is no integer of at least 0, or no frame comes after it.
    """
    require_trajectory(dataset)
    sampler = json.loads(dataset.attrs.get("sampler", "{}"))
    warmup = sampler.get("tune", 0) if warmup is None else count(warmup, "warmup", least=0)
    last = int(dataset.step[-1])
    if last <= warmup:
        raise ValueError(f"warmup must leave frames after it, got {warmup} for a run of {last} steps")
    return _arviz().InferenceData(**_groups(_with_lp(dataset, sampler.get("beta")), warmup), attrs=dict(dataset.attrs))


def _arviz() -> Any:
    try:
        import arviz
    except ImportError:
        raise ImportError('to_arviz needs ArviZ: pip install "kernelgas[arviz]"') from None
    return arviz


def _with_lp(dataset: xr.Dataset, beta: Any) -> xr.Dataset:
    """The dataset in ArviZ's names, with lp = -beta N H_N where beta is a number."""
    if isinstance(beta, (int, float)) and "energy" in dataset:
        lp = (-beta * dataset.sizes["particle"] * dataset.energy).assign_attrs(long_name="-beta N H_N")
        dataset = dataset.assign(lp=lp)
    return dataset.rename({old: new for old, new in _NAMES.items() if old in dataset.variables})


def _groups(dataset: xr.Dataset, warmup: int) -> dict[str, xr.Dataset]:
    """The four groups, axes in ArviZ's order."""
    dataset = dataset.transpose("chain", "draw", "particle", "dim", missing_dims="ignore")
    n_warmup = int((dataset.draw <= warmup).sum())
    stats = [name for name, variable in dataset.data_vars.items() if variable.dims == ("chain", "draw")]
    parts = {"posterior": dataset[["omega"]], "sample_stats": dataset[stats].drop_vars(("particle", "dim"), errors="ignore")}
    kept = {name: part.isel(draw=slice(n_warmup, None)) for name, part in parts.items()}
    return kept | {f"warmup_{name}": part.isel(draw=slice(0, n_warmup)) for name, part in parts.items()}
