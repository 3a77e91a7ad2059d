"""Does a run obey the laws it should? `check` reads a trajectory and compares it with every prediction that applies.

The Dataset is one that a simulation wrote, see `theory.run`. Nothing here shares code with the simulation.

Statistical laws are tested together at a false-alarm rate of `alpha` (Bonferroni); the standard errors come from the effective
sample size, and errors that theory knows of (finite step, finite N) enter as an `allowance`, one more standard deviation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from theory.arrays import FloatArray, generator, real
from theory.convergence import effective_sample_size, mean_and_error, split_r_hat
from theory.density_laws import density
from theory.laws import Law
from theory.moment_laws import energy, second_moment
from theory.run import NotApplicable, Potential, Run, read
from theory.step_rules import acceptance, capped, coincident, extra_temperature, settled, steps
from theory.wall_laws import wall_atom

__all__ = ["check", "summary"]

R_HAT_LIMIT, ESS_LIMIT, DRIFT_LIMIT = 1.05, 100, 3  # the last in standard errors between the halves of a run


def check(
    dataset: xr.Dataset,
    *,
    external: Potential | None = None,
    interaction: Potential | None = None,
    burn_in: float = 0.25,
    alpha: float = 1e-3,
    rng: int | np.random.Generator = 0,
) -> xr.Dataset:
    """Compare a run with the laws that apply to it.

    Laws: "second_moment" (virial identity of the Euler step itself, exact at any step size; needs a trap and no wall contact),
    "energy" (its exact mean: MALA and HMC, log gas in one dimension in a trap, between walls or on a circle), "wall_atom" (fraction of
    particles on the boundary against the artefact of the projected scheme, never read as physics) and "density" (one dimension:
    cumulative distribution at the nine deciles of the exact or mean-field law). Rules without statistics: "steps" (drifts far longer
    than the noise, by which a gas explodes), "capped" (drifts that the cap shortened), "acceptance" (MALA and HMC: no chain is stuck),
    "extra_temperature" (heat of minibatches against 1/beta), "coincident" (no bare pair at distance 0, no infinite energy) and "settled"
    (infinite or scheduled beta, in place of the mixing: the energy has come to rest). Frames up to the sampler's `tune` steps are left
    out. A law that fails while the frames still drift says so in its note.

    Parameters
    ----------
    dataset
        A trajectory with `omega` (chain, step, particle, dim) and the descriptions in its attrs.
    external, interaction
        Callables of x and of the distance r, for energy terms that the description does not give in closed form (alignment, user
        energies); they are added to the described terms and used by the density law. V(x) is per particle, g(r) includes its strength.
    burn_in
        Fraction of the saved frames left out at the start, or more where the sampler tuned for longer.
    alpha
        Rate at which a correct run is rejected, all statistical laws together.
    rng
        Seed or generator of the exact sampler that the density law may draw from.

    Returns
    -------
    xr.Dataset
        `predicted`, `measured`, `standard_error` (effective sample size), `standard_error_chains` (spread of the chains),
        `allowance`, `z`, `p_value`, `passed`, `note` on the axis `law`, which is empty if nothing applies; `r_hat`, `ess` and `mean`
        on the axis `quantity`, without the second moment on a torus. attrs["skipped"] says, as JSON, why each other law, or the
        "mixing", was left out.

    Raises
    ------
    ValueError
        If `omega` is missing or misshapen, a description is no JSON, burn_in or alpha lies outside [0, 1) and (0, 1), or no frame is
        left after the tuning.
    """
    if not 0 < real(alpha, "alpha") < 1:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha!r}")
    run = read(dataset, burn_in, external, interaction)
    found, skipped = _tested(run, generator(rng))
    reason = run.descent()
    skipped |= {} if reason is None else {"mixing": reason}
    quantities = _quantities(run) if reason is None else {}
    mixing = _mixing(quantities)
    table = _table(found, alpha, _drifting(quantities, mixing)).merge(mixing)
    table.attrs = {
        "schema": "kernelgas.check/1",
        "alpha": alpha,
        "burn_in": burn_in,
        "n_frames": run.omega.shape[1],
        "skipped": json.dumps(skipped),
    }
    return table


def _tested(run: Run, rng: np.random.Generator) -> tuple[list[Law], dict[str, str]]:
    """The laws that apply, and why the others do not."""
    tests: dict[str, Callable[[Run], Law]] = {
        "second_moment": second_moment,
        "energy": energy,
        "wall_atom": wall_atom,
        "density": partial(density, rng=rng),
        "steps": steps,
        "capped": capped,
        "acceptance": acceptance,
        "extra_temperature": extra_temperature,
        "coincident": coincident,
        "settled": settled,
    }
    found: list[Law] = []
    skipped: dict[str, str] = {}
    for name, test in tests.items():
        try:
            found.append(test(run))
        except NotApplicable as reason:
            skipped[name] = str(reason)
    return found, skipped


def summary(table: xr.Dataset) -> str:
    """The result of `check` as a few lines of text."""
    if not isinstance(table, xr.Dataset) or "law" not in table.dims or "skipped" not in table.attrs:
        raise ValueError(f"table must be what check returns, got {type(table).__name__}")
    lines = [f"{'law':<17} {'predicted':>11} {'measured':>11} {'+-':>9} {'z':>7}  verdict"]
    for name in table["law"].values:
        row = table.sel(law=name)
        error = float(np.hypot(row["standard_error"], row["allowance"]))
        numbers = f"{float(row['predicted']):11.5g} {float(row['measured']):11.5g} {error:9.2g} {_z(row):>7}"
        lines.append(f"{name:<17} {numbers}  {'ok' if bool(row['passed']) else 'FAILED'}  {row['note'].values!s}")
    if not table.sizes["law"]:
        lines.append("no law applies to this run")
    for name in table["quantity"].values:
        lines.append(f"{name:<17} {_mixed(table.sel(quantity=name))}")
    lines += [f"not tested: {name} ({reason})" for name, reason in json.loads(table.attrs["skipped"]).items()]
    return "\n".join(lines)


def _z(row: xr.Dataset) -> str:
    """Deviation in standard errors; rules without statistics have none."""
    return "-" if np.isnan(row["p_value"]) else f"{float(row['z']):.2f}"


def _mixed(row: xr.Dataset) -> str:
    """Mean, R-hat and effective samples of a quantity, with a remark where they are bad."""
    r_hat, ess = float(row["r_hat"]), float(row["ess"])
    if not np.isfinite(row["mean"]):
        return "infinite in some frames"
    text = f"mean {float(row['mean']):.5g}, split R-hat {r_hat:.3f}, effective samples {ess:.0f}"
    text += f"; R-hat over {R_HAT_LIMIT:g}: not mixed" if r_hat > R_HAT_LIMIT else ""
    return text + (f"; under {ESS_LIMIT} samples: rough errors" if ess < ESS_LIMIT else "")


def _table(laws: list[Law], alpha: float, drifting: bool) -> xr.Dataset:
    """The laws as a Dataset on the axis `law`, verdicts corrected for the number of statistical laws."""
    tested = sum(np.isfinite(law.p_value) for law in laws)
    laws = [_judged(law, alpha / tested, drifting) if np.isfinite(law.p_value) else law for law in laws]
    columns = {field: ("law", np.array([getattr(law, field) for law in laws], float)) for field in Law._fields[1:7]}
    total = np.hypot(columns["standard_error"][1], columns["allowance"][1])
    gap = columns["measured"][1] - columns["predicted"][1]
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["z"] = ("law", np.where(gap == 0, 0.0, gap / total))
    passed, note = np.array([law.passed for law in laws], bool), np.array([law.note for law in laws], str)
    return xr.Dataset(
        columns | {"passed": ("law", passed), "note": ("law", note)}, coords={"law": np.array([law.name for law in laws], str)}
    )


def _judged(law: Law, alpha: float, drifting: bool) -> Law:
    """A statistical law with its verdict."""
    passed = bool(law.p_value > alpha)
    hint = "; the frames still drift: longer burn_in or run" if drifting and not passed else ""
    return law._replace(passed=passed, note=law.note + hint)


def _quantities(run: Run) -> dict[str, FloatArray]:
    """What the mixing is judged by, (chain, frame): the second moment where positions have one, and the energy."""
    quantities = {} if run.domain.get("name") == "Torus" else {"second_moment": np.sum(run.omega**2, axis=-1).mean(-1)}
    return quantities if run.values is None else quantities | {"energy": run.values}


def _mixing(quantities: dict[str, FloatArray]) -> xr.Dataset:
    """Split R-hat, effective sample size and mean of each quantity."""
    rows = [(split_r_hat(draws), effective_sample_size(draws), float(draws.mean())) for draws in quantities.values()]
    columns = {name: ("quantity", column) for name, column in zip(("r_hat", "ess", "mean"), np.reshape(rows, (-1, 3)).T)}
    return xr.Dataset(columns, coords={"quantity": np.array(list(quantities), str)})


def _drifting(quantities: dict[str, FloatArray], mixing: xr.Dataset) -> bool:
    """Whether a quantity has not mixed, or differs between the halves of the run by more than DRIFT_LIMIT standard errors."""
    return bool((mixing["r_hat"] > R_HAT_LIMIT).any()) or any(_moved(draws) for draws in quantities.values() if np.isfinite(draws).all())


def _moved(draws: FloatArray) -> bool:
    half = draws.shape[1] // 2
    if half < 4:
        return False
    (first, error, _), (last, other, _) = mean_and_error(draws[:, :half]), mean_and_error(draws[:, half:])
    return abs(last - first) > DRIFT_LIMIT * np.hypot(error, other)
