"""Does a run obey the laws it should? `check` reads a trajectory and compares it with every prediction that applies.

The Dataset is one that a simulation wrote, see `theory.report.run`. Nothing here shares code with the simulation.

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
from theory.convergence.chains import effective_sample_size, split_r_hat
from theory.report.course_laws import free_energy, mixing, quantities, stationarity
from theory.report.density_laws import density
from theory.report.description_rules import described_energy, described_force, inside
from theory.report.ground_state_rules import balance, ground_state, settled
from theory.report.laws import Law
from theory.report.moment_laws import centre_of_mass, chaos_bias, energy, second_moment
from theory.report.run import NotApplicable, Potential, Run, read
from theory.report.step_rules import acceptance, capped, coincident, extra_temperature, steps
from theory.report.temperature_law import temperature
from theory.report.wall_laws import wall_atom

__all__ = ["check", "summary"]

R_HAT_REMARK, ESS_LIMIT = 1.05, 100  # beyond which a quantity is remarked on


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

    Statistical laws: "second_moment" (virial identity of the Euler step itself, exact at any step size; needs a trap and no wall
    contact), "centre_of_mass" (the same of the mean position, which mutual forces do not move), "temperature" (balance of noise and
    forces apart from the strength of the repulsion, at walls and on a torus together with it), "energy" (its exact mean: MALA and HMC,
    log gases in a trap, between walls, on a circle), "chaos_bias" (fourth moment of the log gas on the line, exact at finite N, told
    from its mean-field limit), "density" (deciles of the exact or mean-field law: of the position on the line, of the radius or of each
    coordinate in more dimensions), "wall_atom" (fraction of particles on the boundary against the artefact of the projected scheme,
    never read as physics), "stationarity" (no drift from the first to the last third of the frames) and "free_energy" (no rise from the
    start on).

    Rules without statistics: "mixing" (R-hat; no chain ends where another does), "inside" (the domain), "described_energy" and
    "described_force" (what was recorded is what the description says), "steps" (drifts far longer than the noise, by which a gas
    explodes), "capped" (drifts that the cap shortened), "acceptance" (MALA and HMC: no chain is stuck), "extra_temperature" (heat of
    minibatches against 1/beta), "coincident" (no bare pair at distance 0, no infinite energy), and for descents (infinite or scheduled
    beta) "settled" (the energy has come to rest), "balance" (so have the forces) and "ground_state" (in the equilibrium known in closed
    form).

    Frames up to the sampler's `tune` steps are left out. A law that fails while the frames still drift says so in its note.

    Parameters
    ----------
    dataset
        A trajectory with `omega` (chain, step, particle, dim). Its attrs `energy`, `domain`, `sampler` are descriptions as JSON; beta is
        in the sampler's, as {"name": "MALA", "step_size": 0.01, "beta": 6.0}. Laws that need what is not described are skipped.
    external, interaction
        Callables of x and of the distance r, for energy terms that the description does not give in closed form (alignment, user
        energies); they are added to the described terms and used by the density law. V(x) is per particle, g(r) includes its strength.
    burn_in
        Fraction of the saved frames left out at the start, or more where the sampler tuned for longer.
    alpha
        Rate at which a correct run is rejected, all statistical laws together.
    rng
        Seed or generator of the noise and of the exact samples that laws draw.

    Returns
    -------
    xr.Dataset
        `predicted`, `measured`, `standard_error` (effective sample size), `standard_error_chains` (spread of the chains),
        `allowance`, `uncertainty` (standard error and allowance together), `z`, `p_value`, `p_corrected` (for the number of statistical
        laws), `passed`, `note` on the axis `law`, which is empty if nothing applies; `r_hat`, `ess` and `mean` on the axis `quantity`,
        without the second moment on a torus. attrs["skipped"] says, as JSON, why each other law was left out.

    Raises
    ------
    ValueError
        If `omega` is missing, misshapen or beyond 1e100, a description is no JSON object or holds numbers that no energy, domain or
        sampler has, a Langevin, MALA or HMC sampler has no beta, a recorded series holds none, burn_in or alpha lies outside [0, 1)
        and (0, 1), or no frame is left after the tuning.
    """
    if not 0 < real(alpha, "alpha") < 1:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha!r}")
    run = read(dataset, burn_in, external, interaction)
    found, skipped = _tested(run, generator(rng))
    table = _table(found, alpha).merge(_mixed_quantities({} if run.descent() else quantities(run)))
    table.attrs = {
        "schema": "kernelgas.check/2",
        "alpha": alpha,
        "burn_in": burn_in,
        "n_frames": run.omega.shape[1],
        "skipped": json.dumps(skipped),
    }
    return table


def _laws(rng: np.random.Generator) -> dict[str, Callable[[Run], Law]]:
    """Every law by its name, in the order of the table; `rng` is the generator of those that draw."""
    found: list[Callable[[Run], Law]] = [second_moment, centre_of_mass, partial(temperature, rng=rng), energy, chaos_bias]
    found += [partial(density, rng=rng), wall_atom, stationarity, free_energy, mixing, inside, described_energy, described_force]
    found += [steps, capped, acceptance, extra_temperature, coincident, settled, balance, ground_state]
    return {getattr(law, "func", law).__name__: law for law in found}


def _tested(run: Run, rng: np.random.Generator) -> tuple[list[Law], dict[str, str]]:
    """The laws that apply, and why the others do not."""
    found: list[Law] = []
    skipped: dict[str, str] = {}
    for name, law in _laws(rng).items():
        try:
            found.append(law(run))
        except NotApplicable as reason:
            skipped[name] = str(reason)
    return found, skipped


def summary(table: xr.Dataset) -> str:
    """The result of `check` as a few lines of text."""
    if not isinstance(table, xr.Dataset) or "law" not in table.dims or "skipped" not in table.attrs:
        raise ValueError(f"table must be what check returns, got {type(table).__name__}")
    lines = [f"{'law':<17} {'predicted':>11} {'measured':>11} {'+-':>9} {'z':>7} {'p':>7}  verdict"]
    for name in table["law"].values:
        row = table.sel(law=name)
        numbers = f"{float(row['predicted']):11.5g} {float(row['measured']):11.5g} {float(row['uncertainty']):9.2g} {_tested_by(row)}"
        lines.append(f"{name:<17} {numbers}  {'ok' if bool(row['passed']) else 'FAILED'}  {row['note'].values!s}")
    if not table.sizes["law"]:
        lines.append("no law applies to this run")
    for name in table["quantity"].values:
        lines.append(f"{name:<17} {_mixed(table.sel(quantity=name))}")
    lines += [f"not tested: {name} ({reason})" for name, reason in json.loads(table.attrs["skipped"]).items()]
    return "\n".join(lines)


def _tested_by(row: xr.Dataset) -> str:
    """Deviation in standard errors and corrected p-value; rules without statistics have none."""
    return f"{'-':>7} {'-':>7}" if np.isnan(row["p_value"]) else f"{float(row['z']):7.2f} {float(row['p_corrected']):7.2g}"


def _mixed(row: xr.Dataset) -> str:
    """Mean, R-hat and effective samples of a quantity, with a remark where they are bad."""
    r_hat, ess = float(row["r_hat"]), float(row["ess"])
    if not np.isfinite(row["mean"]):
        return "infinite in some frames"
    text = f"mean {float(row['mean']):.5g}, split R-hat {r_hat:.3f}, effective samples {ess:.0f}"
    text += f"; R-hat over {R_HAT_REMARK:g}: not mixed" if r_hat > R_HAT_REMARK else ""
    return text + (f"; under {ESS_LIMIT} samples: rough errors" if ess < ESS_LIMIT else "")


def _table(found: list[Law], alpha: float) -> xr.Dataset:
    """The laws as a Dataset on the axis `law`, verdicts corrected for the number of statistical laws."""
    tested = sum(np.isfinite(law.p_value) for law in found)
    found = [law._replace(passed=bool(law.p_value * tested > alpha)) if np.isfinite(law.p_value) else law for law in found]
    found = _hinted(found)
    columns = {field: np.array([getattr(law, field) for law in found], float) for field in Law._fields[1:7]}
    total, gap = np.hypot(columns["standard_error"], columns["allowance"]), columns["measured"] - columns["predicted"]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(gap == 0, 0.0, gap / total)
    columns |= {"uncertainty": total, "z": z, "p_corrected": np.minimum(1.0, columns["p_value"] * tested)}
    words = {"passed": np.array([law.passed for law in found], bool), "note": np.array([law.note for law in found], str)}
    names = np.array([law.name for law in found], str)
    return xr.Dataset({name: ("law", column) for name, column in (columns | words).items()}, coords={"law": names})


def _hinted(found: list[Law]) -> list[Law]:
    """The laws, with a hint on those that failed while the frames drift."""
    drifting = any(law.name in ("stationarity", "mixing") and not law.passed for law in found)
    hint = "; the frames still drift: longer burn_in or run"
    fails = [drifting and not law.passed and np.isfinite(law.p_value) and law.name != "stationarity" for law in found]
    return [law._replace(note=law.note + hint) if fail else law for law, fail in zip(found, fails)]


def _mixed_quantities(draws: dict[str, FloatArray]) -> xr.Dataset:
    """Split R-hat, effective sample size and mean of each quantity."""
    rows = [(split_r_hat(values), effective_sample_size(values), float(values.mean())) for values in draws.values()]
    columns = {name: ("quantity", column) for name, column in zip(("r_hat", "ess", "mean"), np.reshape(rows, (-1, 3)).T)}
    return xr.Dataset(columns, coords={"quantity": np.array(list(draws), str)})
