"""The log gas in a disc at finite temperature: its equation, its free energy and its limits."""

import numpy as np
import pytest
from scipy.integrate import quad

from theory.equilibrium.liouville import DiscLogGas
from theory.mean_field import MeanField
from theory.mean_field.radial import RadialBall

CASES = [(1.4, 2.0, 3.0), (0.7, -0.9, 4.2), (1.0, 0.3, 0.5), (2.0, 0.0, 1.0), (1.1, 0.7, 400.0)]


def over_disc(law, function):
    return quad(lambda r: 2 * np.pi * r * law.density([r, 0.0]) * function(r), 0, law.radius, limit=400, epsabs=1e-13, epsrel=1e-12)[0]


@pytest.mark.parametrize("parameters", CASES)
def test_density_has_the_potential_that_makes_it_a_gibbs_law(parameters):
    law = DiscLogGas(*parameters)
    radius, strength, beta = parameters
    for r in (0.1, 0.5, 0.93):
        r *= radius
        within = law.radial_cdf(r)  # Newton: at r the mass within acts from the centre, a shell beyond as at its own radius
        beyond = quad(lambda q: 2 * np.pi * q * law.density([q, 0.0]) * np.log(q), r, radius, epsabs=1e-13, epsrel=1e-12, limit=400)[0]
        potential = -strength * (within * np.log(r) + beyond)
        assert law.potential([0.0, r]) == pytest.approx(potential, abs=1e-9)
        assert potential + np.log(law.density([r, 0.0])) / beta == pytest.approx(law.multiplier, abs=1e-9)
    assert law.potential([3.0, 0.0]) == pytest.approx(-strength * np.log(3.0))


@pytest.mark.parametrize("parameters", CASES)
def test_moments_entropy_and_energy_are_integrals_of_the_density(parameters):
    law = DiscLogGas(*parameters)
    for order in (0, 2, 1.3, -1):
        assert law.moment(order) == pytest.approx(over_disc(law, lambda r, k=order: r**k), rel=1e-8)
    assert law.entropy == pytest.approx(over_disc(law, lambda r: np.log(law.density([r, 0.0]))), abs=1e-8)
    assert law.energy == pytest.approx(over_disc(law, lambda r: law.potential([r, 0.0])) / 2, abs=1e-8)
    assert law.free_energy == pytest.approx(law.energy + law.entropy / law.beta)
    assert law.pressure == pytest.approx((1 / law.beta + law.strength / 4) / (np.pi * law.radius**2))
    u = np.linspace(0, 1, 7)
    assert np.allclose(law.radial_cdf(law.radial_quantile(u)), u)


@pytest.mark.parametrize("parameters", CASES[:3])
def test_free_energy_is_the_least_and_that_of_the_solver(parameters):
    radius, strength, beta = parameters
    law = DiscLogGas(*parameters)
    errors = []
    for n in (20, 40):
        field = MeanField(None, lambda r: -strength * np.log(r), beta, RadialBall(radius, n, 2))
        errors.append(field.stationary().free_energy - law.free_energy)
    assert errors[1] == pytest.approx(errors[0] / 4, rel=0.05, abs=1e-9)
    assert 0 < errors[1] < 2e-3  # piecewise constant densities are candidates


def test_cold_gas_goes_to_the_wall_and_an_attracting_one_to_the_centre():
    assert DiscLogGas(1.0, 1.0, 1e6).moment(2) == pytest.approx(1, abs=1e-4)
    assert DiscLogGas(1.0, -1.0, 3.9999).moment(2) < 1e-3
    assert DiscLogGas(1.5, 0.0, 2.0).density([0.3, 0.1]) == pytest.approx(1 / (np.pi * 1.5**2))
    for strength, beta in ((-1.0, 4.0), (-2.0, 3.0), (np.inf, 1.0), (1.0, np.inf)):
        with pytest.raises(ValueError):
            DiscLogGas(1.0, strength, beta)
    with pytest.raises(ValueError, match="order"):
        DiscLogGas(1.0, 1.0, 1.0).moment(-2)
