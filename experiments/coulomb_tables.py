"""The tables of the Coulomb paper's synthetic benchmark, and what they say about its claims; everything from a Dataset of `run`."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from experiments.metrics import Estimate, mean_interval, paired_difference
from experiments.report import Section, Table, verdict

METHODS = {
    "bayes": "best possible (true logit)",
    "majority": "most frequent label",
    "logistic": "logistic regression",
    "svm": "RBF-SVM, gamma .5, C 1",
    "svm tuned": "RBF-SVM, tuned",
    "mkl": "multiple kernels",
    "rff": "random features, gamma .5",
    "rff tuned": "random features, tuned",
    "importance": "importance sampling",
    "paper": "paper's particles, lambda .5",
    "paper, no repulsion": "paper's particles, lambda 0",
    "paper, drift clipped": "paper's particles, drift clipped, not gradient",
    "paper, drift without N": "paper's particles, drift without the factor N",
    "paper, not resampled": "paper's particles, the first instead of resampled",
    "particles": "our particles",
    "particles, no repulsion": "our particles, no repulsion",
}
READINGS = ("paper, drift clipped", "paper, drift without N", "paper, not resampled")
NOTE = "mean over seeds ± half of Student's 95 % interval, in percent; * the interval of the paired difference to `our particles` is off 0"
PUBLISHED = {  # exponents of seconds ~ n^gamma in the paper's run-time figure
    "logistic": 0.021,
    "svm": 1.477,
    "mkl": 1.961,
    "rff": 0.799,
    "importance": 0.967,
    "paper": 0.730,
}


def section(ds: xr.Dataset) -> Section:
    """Tables and verdicts of one part."""
    part = json.loads(ds.attrs["config"])["part"]
    return {"noise": noise, "lambda": strength, "budget": budget, "tasks": tasks, "runtime": runtime}[part](ds)


# ---- parts -------------------------------------------------------------------------------------------------------------------------------


def noise(ds: xr.Dataset) -> Section:
    """Accuracy, F1 and accuracy on fresh rows against the noise on the logit."""
    titles = {"accuracy": "Accuracy on the test part", "f1": "F1 on the test part", "fresh_accuracy": "Accuracy on fresh rows"}
    tables = [_methods_table(ds[name], "sigma", title) for name, title in titles.items()]
    lines = [f"sigma = {sigma:g}: {line}" for sigma in ds["sigma"].values for line in _against(ds, {"sigma": sigma})]
    config = json.loads(ds.attrs["config"])
    what = "Other readings of the paper's settings" if set(config["methods"]) & set(READINGS) else "Noise on the logit"
    return Section(f"{what}, {config['dim']} dimensions", _describe(ds), tables, {}, lines)


def _against(ds: xr.Dataset, where: dict[str, object]) -> list[str]:
    """Our particles and the paper's against the baselines, on fresh rows where there are some."""
    values = ds["fresh_accuracy"].sel(where)
    pairs = [("particles", other) for other in ("rff tuned", "importance", "svm tuned", "particles, no repulsion")]
    pairs += [("paper", other) for other in ("rff", "importance", "paper, no repulsion")]
    return [
        f"{METHODS[first]} against {METHODS[second]}: {verdict(_difference(values, first, second))}"
        for first, second in pairs
        if _common(values, first, second)
    ]


def strength(ds: xr.Dataset) -> Section:
    """Accuracy on fresh rows against the strength of the repulsion in the paper's dynamics."""
    values, rows, lines = ds["fresh_accuracy"], [], []
    for lam in ds["lambda"].values:
        cells = [_cell(values.sel({"lambda": lam, "sigma": sigma})) for sigma in ds["sigma"].values]
        rows.append([f"{lam:g}", *cells])
    for sigma in ds["sigma"].values if 0.0 in ds["lambda"].values else ():
        at = values.sel(sigma=sigma)
        both = {lam: at.sel({"lambda": [lam, 0.0]}).transpose("lambda", "seed").dropna("seed").values for lam in ds["lambda"].values if lam}
        gains = {lam: paired_difference(*pair) for lam, pair in both.items() if pair.size}
        if not gains:
            continue
        best = max(gains, key=lambda lam: gains[lam].value)
        lines.append(f"sigma = {sigma:g}: lambda = {best:g} (the best of {len(gains)}) against 0: {verdict(gains[best])}")
    table = Table("Accuracy on fresh rows [%]", ["lambda", *(f"sigma {sigma:g}" for sigma in ds["sigma"].values)], rows)
    return Section("Strength of the repulsion, the paper's settings", _describe(ds), [table], {}, lines)


def budget(ds: xr.Dataset) -> Section:
    """Accuracy on fresh rows against the number of random features."""
    tables, sizes = [], ds["n_features"].values
    for sigma in ds["sigma"].values:
        part = ds["fresh_accuracy"].sel(sigma=sigma)
        by_method = {str(name): part.sel({"method": name}) for name in part["method"].values}
        rows = [[METHODS[name], *(_cell(at.sel(n_features=m)) for m in sizes), _ratio(at)] for name, at in by_method.items()]
        header = ["method", *(f"{m} features" for m in sizes), "64 / 256"]
        tables.append(Table(f"Accuracy on fresh rows [%], sigma = {sigma:g}", header, rows))
    note = "64 / 256 is the mean over seeds of the ratio of accuracies, with its 95 % interval; chance alone has ratio 1."
    return Section("Fewer features", f"{_describe(ds)} {note}", tables)


def _ratio(values: xr.DataArray) -> str:
    if not {64, 256} <= set(values["n_features"].values.tolist()):
        return "-"
    ratios = (values.sel(n_features=64) / values.sel(n_features=256)).dropna("seed").values
    if not ratios.size:
        return "-"
    mean, low, high = mean_interval(ratios)
    return f"{mean:.3f} ({low:.3f} to {high:.3f})" if np.isfinite(low) else f"{mean:.3f} (one seed)"


def tasks(ds: xr.Dataset) -> Section:
    """Clean accuracy on tasks whose relevant directions are hidden."""
    tables = [_methods_table(ds[name], "task", title) for name, title in (("accuracy", "Accuracy"), ("f1", "F1"))]
    lines = [f"{task}: {line}" for task in ds["task"].values for line in _against(ds, {"task": task})]
    return Section("Tasks where the right kernel is hidden", _describe(ds), tables, {}, lines)


def runtime(ds: xr.Dataset) -> Section:
    """CPU seconds of a fit against the number of rows, with power laws."""
    header = ["method", *(f"n = {n}" for n in ds["n"].values), "seconds ~ n^gamma: gamma", "c", "sigma_log", "the paper's gamma"]
    rows = []
    for name in ds["method"].values:
        values = ds["seconds"].sel({"method": name})
        cells = ["-" if np.isnan(t) else f"{t:.3g}" for t in values.values]
        fit = power_law(values["n"].values, values.values)
        rows.append([METHODS[str(name)], *cells, *(f"{number:.3g}" for number in fit), str(PUBLISHED.get(str(name), "-"))])
    limit = json.loads(ds.attrs["config"])["limit"]
    notes = [f"CPU seconds of one fit on 70 % of n rows, head included; - : by the square law from the size before, more than {limit:g} s."]
    return Section("Run time", _describe(ds), [Table("Seconds", header, rows, notes)])


def power_law(n: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """(gamma, c, standard deviation of log residuals) of seconds = c n^gamma, by least squares in logarithms; NaN below two points."""
    good = np.isfinite(seconds) & (seconds > 0)
    if good.sum() < 2:
        return np.nan, np.nan, np.nan
    x, y = np.log(n[good]), np.log(seconds[good])
    gamma, level = np.polyfit(x, y, 1)
    return float(gamma), float(np.exp(level)), float(np.std(y - gamma * x - level))


# ---- cells -------------------------------------------------------------------------------------------------------------------------------


def _methods_table(values: xr.DataArray, axis: str, title: str) -> Table:
    """One row a method, one column a value of `axis`."""
    rows = []
    for name in values["method"].values:
        cells = []
        for place in values[axis].values:
            at = values.sel({axis: place})
            star = "*" if _differs(at, str(name)) else ""
            cells.append(_cell(at.sel({"method": name})) + star)
        rows.append([METHODS[str(name)], *cells])
    columns = [f"{axis} {place:g}" if axis == "sigma" else str(place) for place in values[axis].values]
    return Table(f"{title} [%]", ["method", *columns], rows, [NOTE])


def _differs(values: xr.DataArray, name: str) -> bool:
    """Whether a method's paired difference to our particles excludes 0; values (method, seed)."""
    if name == "particles" or _common(values, name, "particles") < 2:
        return False
    _, low, high = _difference(values, name, "particles")
    return not low <= 0 <= high


def _difference(values: xr.DataArray, first: str, second: str) -> Estimate:
    """Over the seeds that ran for both."""
    both = values.sel({"method": [first, second]}).transpose("method", "seed").dropna("seed").values
    return paired_difference(*both)


def _common(values: xr.DataArray, first: str, second: str) -> int:
    """Seeds that ran for both."""
    if not {first, second} <= set(values["method"].values):
        return 0
    return values.sel({"method": [first, second]}).dropna("seed").sizes["seed"]


def _cell(values: xr.DataArray) -> str:
    values = values[np.isfinite(values.values)]
    if not values.size:
        return "-"
    mean, low, high = mean_interval(100 * values.values)
    return f"{mean:.1f}" if np.isinf(high) else f"{mean:.1f} ± {(high - low) / 2:.1f}"


def _describe(ds: xr.Dataset) -> str:
    config = json.loads(ds.attrs["config"])
    rows = "" if config["part"] == "runtime" else f"{config['n']} rows, "
    features = "" if config["part"] == "budget" else f"{config['n_features']} random features, "
    seeds = f" {ds.sizes['seed']} seeds from {int(ds['seed'][0])}." if "seed" in ds.dims else ""
    return f"{rows}{config['dim']} dimensions, {features}Gaussian kernels with gamma {config['gamma']:g} where not tuned.{seeds}"
