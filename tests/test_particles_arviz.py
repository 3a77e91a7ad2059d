"""The ArviZ conversion: groups, axes, names, and diagnostics that agree with the project's own."""

from __future__ import annotations

import builtins
import json
import warnings

import numpy as np
import pytest

from particles import HMC, Alignment, FullSpace, Langevin, Quadratic, Riesz, geometric, simulate, to_arviz
from theory.convergence import effective_sample_size, split_r_hat

arviz = pytest.importorskip("arviz")

START = np.random.default_rng(0).normal(size=(4, 5, 2))
ENERGY = Quadratic(1.3) + Riesz(0, 0.2)


@pytest.fixture(scope="module")
def langevin():
    return simulate(START, ENERGY, FullSpace(2), Langevin(0.05, 2.0, drift_cap=0.5), n_steps=400, save_every=2, rng=1)


@pytest.fixture(scope="module")
def hmc():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return simulate(START, ENERGY, FullSpace(2), HMC(0.3, 2.0, n_leapfrog=5, tune=40), n_steps=200, save_every=10, rng=1)


def test_axes_and_names(langevin):
    idata = to_arviz(langevin)
    assert isinstance(idata, arviz.InferenceData)
    assert set(idata.groups()) == {"posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"}
    omega = idata.posterior.omega
    assert omega.dims == ("chain", "draw", "particle", "dim")
    assert np.array_equal(omega, langevin.omega[:, 1:])
    assert np.array_equal(idata.posterior.draw, langevin.step[1:])
    assert np.array_equal(idata.warmup_posterior.omega, langevin.omega[:, :1])  # the start alone
    for name in ("energy", "energy_riesz", "grad_norm", "projected", "capped", "coincident", "min_gap"):
        assert idata.sample_stats[name].dims == ("chain", "draw")
        assert np.array_equal(idata.sample_stats[name], langevin[name][:, 1:])
    assert idata.attrs["seed"] == "1"
    assert json.loads(idata.posterior.attrs["energy"])["name"] == "Sum"


def test_lp_is_the_log_density_of_the_gibbs_law(langevin):
    lp = to_arviz(langevin).sample_stats.lp
    expected = [[-2.0 * 5 * ENERGY.value(frame) for frame in chain] for chain in langevin.omega[:, 1:6].to_numpy()]
    np.testing.assert_allclose(lp[:, :5], expected, rtol=1e-12)


@pytest.mark.parametrize("beta", [float("inf"), geometric(1.0, 10.0, 10)])
def test_without_one_finite_beta_there_is_no_lp(beta):
    run = simulate(START, ENERGY, FullSpace(2), Langevin(0.01, beta), n_steps=10, rng=1)
    assert "lp" not in to_arviz(run).sample_stats


def test_tuning_steps_are_warmup_and_the_samplers_facts_have_arvizs_names(hmc):
    idata = to_arviz(hmc)
    assert idata.warmup_posterior.draw.to_numpy().tolist() == [0, 10, 20, 30, 40]
    assert idata.posterior.draw.to_numpy().tolist() == list(range(50, 210, 10))
    assert np.array_equal(idata.sample_stats.acceptance_rate, hmc.acceptance[:, 5:])
    assert np.array_equal(idata.sample_stats.step_size, hmc.step_size[:, 5:])
    assert (idata.sample_stats.step_size == idata.sample_stats.step_size[:, :1]).all()
    assert to_arviz(hmc, warmup=100).posterior.sizes["draw"] == 10
    assert to_arviz(hmc, warmup=0).warmup_posterior.sizes["draw"] == 1


def test_effective_size_and_r_hat_agree_with_ours(langevin):
    """ArviZ's ess(method="mean") is the same estimator up to its treatment of the last lags; R-hat "split" is the same formula."""
    idata = to_arviz(langevin, warmup=100)
    draws = idata.posterior.omega.to_numpy()
    assert float(arviz.rhat(idata, var_names="omega", method="split").omega[2, 1]) == pytest.approx(
        split_r_hat(draws[:, :, 2, 1]), rel=1e-10
    )
    ess = float(arviz.ess(idata, var_names="omega", method="mean").omega[2, 1])
    assert ess == pytest.approx(effective_sample_size(draws[:, :, 2, 1]), rel=0.05)
    stats = idata.sample_stats
    ours = split_r_hat(stats.lp.to_numpy()), effective_sample_size(stats.lp.to_numpy())
    assert float(arviz.rhat(stats[["lp"]], method="split").lp) == pytest.approx(ours[0], rel=1e-10)
    assert float(arviz.ess(stats[["lp"]], method="mean").lp) == pytest.approx(ours[1], rel=0.05)
    wrong = split_r_hat(draws[:, :40, 2, 1])  # negative control: other draws have another R-hat
    assert wrong != pytest.approx(split_r_hat(draws[:, :, 2, 1]), rel=1e-3)


def test_summary_and_a_lazy_store(langevin, tmp_path):
    idata = to_arviz(langevin)
    assert len(arviz.summary(idata, var_names="omega")) == 10
    x = np.random.default_rng(1).normal(size=(20, 2))
    energy = Alignment(x, x[:, 0] > 0, "fourier", batch_size=8)
    run = simulate(START, energy, FullSpace(2), Langevin(0.05, 2.0), n_steps=12, rng=1, store=tmp_path / "run")
    stats = to_arviz(run).sample_stats
    assert stats.sizes["draw"] == 12
    assert "extra_temperature" in stats


def test_bad_input(langevin, hmc, monkeypatch):
    with pytest.raises(ValueError, match=r"dataset must be a Dataset of simulate.*got ndarray"):
        to_arviz(np.zeros(3))
    with pytest.raises(ValueError, match="warmup must be an integer of at least 0, got -1"):
        to_arviz(langevin, warmup=-1)
    with pytest.raises(ValueError, match="warmup must leave frames after it, got 400 for a run of 400 steps"):
        to_arviz(langevin, warmup=400)
    with pytest.raises(ValueError, match="warmup must leave frames after it, got 40 for a run of 40 steps"):
        to_arviz(hmc.isel(step=slice(0, 5)))

    def no_arviz(name, *args, **kwargs):
        if name == "arviz":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    imported = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", no_arviz)
    with pytest.raises(ImportError, match=r"to_arviz needs ArviZ: pip install \"kernelgas\[arviz\]\""):
        to_arviz(langevin)
