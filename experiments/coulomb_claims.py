"""The Coulomb paper's claims about its synthetic benchmark, each beside what was measured; everything from the Datasets of `run`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from experiments.coulomb_tables import METHODS, power_law
from experiments.metrics import Estimate, mean_interval, paired_difference
from experiments.report import percent, verdict

REFERENCES = ("bayes", "majority")  # no competitors
MODERATE, LOUD = (0.1, 10.0), (1e3, np.inf)  # ranges of sigma


def claims(noise: xr.Dataset, strength: xr.Dataset, budget: xr.Dataset, runtime: xr.Dataset, tasks: xr.Dataset) -> list[str]:
    """One paragraph a claim: the claim, then the measurement in words and numbers (accuracies on fresh rows, paired by seed)."""
    fresh = noise["fresh_accuracy"]
    rivals = [("paper", "rff"), ("paper", "importance"), ("particles", "rff tuned"), ("particles", "importance")]
    return [
        "**Claim: particles beat fixed random features and importance sampling at moderate noise.** "
        + _gaps(_between(fresh, *MODERATE), rivals),
        "**Claim: the repulsion matters most for sigma between 1 and 100, with lambda between 0.5 and 1.** " + _repulsion(strength, fresh),
        "**Claim: the methods come together for sigma of 1000 and more.** " + _loudest(_between(fresh, *LOUD)),
        "**Claim: the tuned RBF-SVM is the best method.** " + _ranking(_between(fresh, 0.0, 10.0)),
        "**Claim: 64 features keep 90 % of the accuracy of 256.** " + _kept(budget["fresh_accuracy"]),
        "**Claim: particles grow more slowly with n than multiple kernels.** " + _growth(runtime),
        "**Where the right kernel is hidden** (not in the paper): " + _hidden(tasks["accuracy"]),
    ]  # fmt: skip


def _between(values: xr.DataArray, low: float, high: float) -> xr.DataArray:
    """Means over the noises in a range (all of them if none is in it), (method, seed)."""
    inside = (values["sigma"] >= low) & (values["sigma"] <= high)
    return (values.isel(sigma=np.flatnonzero(inside)) if bool(inside.any()) else values).mean("sigma")


def _gap(values: xr.DataArray, first: str, second: str) -> Estimate:
    return paired_difference(values.sel({"method": first}).values, values.sel({"method": second}).values)


def _gaps(values: xr.DataArray, pairs: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{METHODS[a]} against {METHODS[b]}: {verdict(_gap(values, a, b))}" for a, b in pairs) + "."


def _repulsion(ds: xr.Dataset, fresh: xr.DataArray) -> str:
    """lambda = 0.5 and 1 against 0 where the paper sees a gain, and our own repulsion."""
    values = _between(ds["fresh_accuracy"], 1.0, 100.0).rename({"lambda": "method"})
    gains = [
        f"lambda {lam:g} against 0: {verdict(paired_difference(values.sel({'method': lam}).values, values.sel({'method': 0.0}).values))}"
        for lam in (0.5, 1.0)
    ]
    ours = _gaps(_between(fresh, *MODERATE), [("particles", "particles, no repulsion")])
    return f"The paper's settings, {'; '.join(gains)}. At our settings, {ours}"


def _loudest(values: xr.DataArray) -> str:
    """The spread of the methods' means."""
    means = {name: mean_interval(values.sel({"method": name}).values) for name in _competitors(values)}
    order = sorted(means, key=lambda name: means[name].value)
    ends = " and ".join(f"{percent(means[name])} % ({METHODS[name]})" for name in (order[0], order[-1]))
    return f"All mean accuracies lie between {ends}."


def _competitors(values: xr.DataArray) -> list[str]:
    return [str(name) for name in values["method"].values if name not in REFERENCES]


def _ranking(values: xr.DataArray) -> str:
    """Methods from best to worst, averaged over the lower noises."""
    means = {name: float(values.sel({"method": name}).mean()) for name in _competitors(values)}
    order = sorted(means, key=lambda name: -means[name])
    listed = ", ".join(f"{METHODS[name]} {100 * means[name]:.1f}" for name in order)
    best = next(name for name in order if name != "svm tuned")
    return f"Mean over sigma up to 10, in percent: {listed}. Against the best of the others, {_gaps(values, [('svm tuned', best)])}"


def _kept(values: xr.DataArray) -> str:
    """Ratios of accuracies, and of what they lie above chance."""
    at = values.mean("sigma")
    small, large = at.sel(n_features=64), at.sel(n_features=256)
    shares = {str(name): mean_interval((small.sel({"method": name}) / large.sel({"method": name})).values) for name in at["method"].values}
    listed = "; ".join(f"{METHODS[name]} {percent(share)} %" for name, share in shares.items())
    return f"Kept: {listed}. Chance keeps 100 %, so this ratio hardly tells methods apart."


def _growth(ds: xr.Dataset) -> str:
    """Exponents of seconds against n."""
    fits = {str(name): power_law(ds["n"].values, ds["seconds"].sel({"method": name}).values)[0] for name in ds["method"].values}
    longest = {name: ds["seconds"].sel({"method": name}).dropna("n") for name in fits}
    listed = "; ".join(f"{METHODS[name]} n^{fits[name]:.2f}, {float(t[-1]):.3g} s at n = {int(t['n'][-1])}" for name, t in longest.items())
    return f"Exponents fitted over all sizes, and the longest fit: {listed}."


def _hidden(values: xr.DataArray) -> str:
    """Our particles against the best baseline of each task."""
    lines = []
    for task in values["task"].values:
        at = values.sel(task=task)
        others = [name for name in _competitors(at) if not name.startswith("particles")]
        best = max(others, key=lambda name: float(at.sel({"method": name}).mean()))
        lines.append(f"{task}: {_gaps(at, [('particles', best)])}")
    return " ".join(lines)
