"""Random features have their exact means and variances, and the published identities between maps hold to rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attention.exponential import optimal_tilt
from attention.feature_map import MAPS, FeatureMap, feature_map

TILT = -0.3
PAIRS = [(0.7, -0.4), (0.9, 0.6), (0.3, 0.2)]
X, Y = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), torch.tensor([0.1, 0.4, 0.2], dtype=torch.float64)


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def true_features(fm: FeatureMap, x: Tensor, role: str = "query") -> Tensor:
    log_scale, features = fm(x, role=role)
    return log_scale.exp()[..., None] * features


def tilted_second_moment(a: float, dim: int, norms: float, total: float) -> float:
    """E (phi(x) phi(y))^2 of the optimal positive feature for |x|^2 + |y|^2 = norms and |x + y|^2 = total."""
    return (1 - 4 * a) ** dim * (1 - 8 * a) ** (-dim / 2) * math.exp(2 * (1 - 4 * a) / (1 - 8 * a) * total - norms)


def moments(name: str, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean and variance of phi(x).phi(y) of one particle w ~ N(0, I) (Performer, Lemma 2, and what follows like it)."""
    dot, distance, total = (float(v) for v in (x @ y, (x - y).square().sum(), (x + y).square().sum()))
    norms, trig = float(x @ x + y @ y), 0.5 * (1 - math.exp(-distance)) ** 2
    positive = math.exp(2 * dot) * math.expm1(total)
    return {
        "favor": (math.exp(dot), positive),
        "data-aware": (math.exp(dot), positive),
        "favor-hyperbolic": (math.exp(dot), -0.5 * math.expm1(-total) * positive),
        "rfa": (math.exp(dot), math.exp(norms) * trig),
        "flexformer": (math.exp(dot), math.exp(norms) * trig),
        "fourier": (math.exp(-distance / 2), trig),
        "phase": (math.exp(-distance / 2), trig + 0.5),
        "optimal-positive": (math.exp(dot), tilted_second_moment(TILT, len(x), norms, total) - math.exp(2 * dot)),
    }[name]


NAMES = ["favor", "favor-hyperbolic", "rfa", "flexformer", "fourier", "phase", "optimal-positive", "data-aware"]


def one_particle_each(name: str, heads: int, *, dim: int = 1, omega: Tensor | None = None) -> FeatureMap:
    options = {"A": TILT} if name == "optimal-positive" else {}
    generator = _seeded(0)
    return feature_map(
        name, dim=dim, n_features=MAPS[name].width, heads=heads, omega=omega, generator=generator, dtype=torch.float64, **options
    )


def estimates(fm: FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    phi, psi = (true_features(fm, point.expand(1, fm.heads, 1, len(point))) for point in (x, y))
    return (phi * psi).sum(-1).flatten().detach()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pair", PAIRS)
def test_mean_and_variance_of_one_feature_by_quadrature(name, pair):
    """Gauss-Hermite in one dimension, and for phases a grid that is exact for trigonometric polynomials."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    omega, weights = torch.from_numpy(nodes)[:, None, None], torch.from_numpy(weights / weights.sum())
    if name == "phase":
        phases = 2 * math.pi * torch.arange(8, dtype=torch.float64) / 8
        omega = torch.cat((omega.repeat_interleave(8, 0), phases.repeat(100)[:, None, None]), -1)
        weights = weights.repeat_interleave(8) / 8
    x, y = (torch.tensor([value], dtype=torch.float64) for value in pair)
    found = estimates(one_particle_each(name, len(omega), omega=omega), x, y)
    mean, variance = moments(name, x, y)
    assert float(weights @ found) == pytest.approx(mean, rel=1e-11)
    assert float(weights @ found**2) - mean**2 == pytest.approx(variance, rel=1e-9)
    wide = estimates(one_particle_each(name, len(omega), omega=omega * torch.tensor([1.3, 1.0])[: omega.shape[-1]].double()), x, y)
    assert abs(float(weights @ wide) - mean) > 1e-3  # negative control: another width


@pytest.mark.parametrize("name", NAMES)
def test_first_draws_have_their_mean_and_variance(name):
    fm = one_particle_each(name, 40_000, dim=3)
    found, (mean, variance) = estimates(fm, X, Y), moments(name, X, Y)
    error = (variance / len(found)) ** 0.5
    assert abs(found.mean() - mean) < 4.5 * error  # false-alarm rate 7e-6
    spread = (found - mean).square()
    assert abs(spread.mean() - variance) < 5 * spread.std() / len(found) ** 0.5  # about 1e-5, spreads being skewed
    scaled = fm.omega.detach() * torch.tensor([1.5, 1.5, 1.5, 1.0], dtype=torch.float64)[: fm.omega.shape[-1]]
    assert abs(estimates(fm.load_omega(scaled), X, Y).mean() - mean) > 4.5 * error  # negative control


@pytest.mark.parametrize("name", ["favor", "favor-hyperbolic", "flexformer", "fourier", "optimal-positive"])
def test_orthogonal_blocks_stay_unbiased_and_lower_the_variance(name):
    """The products of two features of a block are negatively correlated; independent ones are not."""
    m, heads = 3, 20_000
    options = {"A": TILT} if name == "optimal-positive" else {}
    fm = feature_map(name, dim=3, n_features=m * MAPS[name].width, heads=heads, dtype=torch.float64, generator=_seeded(1), **options)
    mean, variance = moments(name, X, Y)

    def deviations(fm: FeatureMap) -> Tensor:
        phi, psi = (true_features(fm, point.expand(1, heads, 1, 3)) for point in (X, Y))
        return m * (phi * psi)[0, :, 0].detach().unflatten(-1, (-1, m)).sum(-2) - mean

    def correlation(each: Tensor) -> float:
        """Mean product of two different deviations, in standard errors."""
        products = each.sum(-1).square() - each.square().sum(-1)
        return float(products.mean() / products.std() * heads**0.5)

    orthogonal = deviations(fm)
    assert abs(orthogonal.mean()) < 4.5 * (variance / m / heads) ** 0.5  # false-alarm rate below 7e-6
    assert correlation(orthogonal) < -6
    assert abs(correlation(deviations(fm.load_omega(points(heads, m, 3, seed=2))))) < 4.5  # 7e-6


def test_means_of_the_numbers_in_the_literature():
    """x = (.3, -.2, .5), y = (.1, .4, .2): what Monte Carlo gave elsewhere."""
    expected = {"favor": 1.0982255, "favor-hyperbolic": 0.2736909, "rfa": 0.1353517, "phase": 0.5750292}
    for name, variance in expected.items():
        assert moments(name, X, Y)[1] == pytest.approx(variance, rel=1e-6)
    assert moments("favor", X, Y)[0] == pytest.approx(1.0512710964, rel=1e-9)


def test_data_aware_features_are_unbiased_for_their_covariance():
    fm, metric = one_particle_each("data-aware", 40_000, dim=3), torch.eye(3).double() + 0.4 * points(3, 3, seed=3)
    fm.metric.data.copy_(metric)
    mean = float((X @ metric.T @ metric @ Y).exp())
    (_, variance), found = moments("favor", metric @ X, metric @ Y), estimates(fm, X, Y)
    assert abs(found.mean() - mean) < 4.5 * (variance / len(found)) ** 0.5  # false-alarm rate 7e-6
    assert abs(mean - float((X @ Y).exp())) > 9 * (variance / len(found)) ** 0.5  # negative control: another kernel


@pytest.mark.parametrize("dim", [1, 4, 64])
@pytest.mark.parametrize("total", [0.0, 0.3, 2.0, 50.0])
def test_optimal_tilt_has_the_least_variance_and_less_than_favor(dim, total):
    best = float(optimal_tilt(torch.tensor(total, dtype=torch.float64), dim))
    log = lambda a: dim * math.log1p(-4 * a) - dim / 2 * math.log1p(-8 * a) + 2 * (1 - 4 * a) / (1 - 8 * a) * total  # noqa: E731
    assert log(best) == pytest.approx(math.log(tilted_second_moment(best, dim, 0.0, total)), rel=1e-12)
    grid = np.concatenate((np.linspace(-3, 0.12, 400), best + np.linspace(-0.01, 0.004, 50)))
    assert all(log(best) <= log(a) + 1e-12 for a in grid)
    assert best <= 0
    assert log(best) < log(0) if total else best == 0
    rho = (math.sqrt((2 * total + dim) ** 2 + 8 * dim * total) - 2 * total - dim) / (4 * total) if total else 1.0
    assert best == pytest.approx((1 - 1 / rho) / 8, rel=1e-9, abs=1e-15)  # as printed


def test_optimal_positive_options():
    made = lambda **options: feature_map("optimal-positive", dim=4, n_features=6, heads=2, dtype=torch.float64, **options)  # noqa: E731
    assert made(A=[-0.2, 0.1]).tilt.tolist() == [-0.2, 0.1]
    assert made(A=-0.5).tilt.tolist() == [-0.5, -0.5]
    for phi2, given in (([1.0, 9.0], {"phi2": [1.0, 9.0]}), ([4.0, 4.0], {})):  # 2 sqrt(4): unit normal queries and keys, scaled
        expected = optimal_tilt(torch.tensor(phi2, dtype=torch.float64), 4)
        torch.testing.assert_close(made(**given).tilt, expected, rtol=1e-12, atol=0)
    scaled = points(2000, 4) * 4**-0.25 + points(2000, 4, seed=1) * 4**-0.25
    assert scaled.square().sum(-1).mean() == pytest.approx(4.0, rel=0.05)
    omega, x = points(2, 6, 4), points(1, 2, 5, 4)
    plain = feature_map("favor", dim=4, n_features=6, heads=2, omega=omega, dtype=torch.float64)
    torch.testing.assert_close(true_features(made(A=0.0, omega=omega), x), true_features(plain, x), rtol=1e-12, atol=0)
    assert made(A=-0.5, omega=100 * omega)(x)[1].isfinite().all()
    wide = made(A=0.12, omega=100 * omega)(x)  # importance weights exp(A |w|^2) beyond the largest number
    assert wide[0].max() > 800
    assert all(part.isfinite().all() for part in wide)


def test_optimal_positive_beats_favor_on_softmax_rows():
    """Attention weights of N(0, I) queries and keys, 64 features: mean square error against softmax, many draws."""
    q, k = (points(1, 1, 20, 8, seed=seed) * 8**-0.25 for seed in (1, 2))
    exact, error = (q @ k.mT).softmax(-1), {}
    for name in ("favor", "optimal-positive"):
        fm = feature_map(name, dim=8, n_features=64, heads=50, generator=_seeded(0), dtype=torch.float64)
        kernel = true_features(fm, q.expand(1, 50, 20, 8)) @ true_features(fm, k.expand(1, 50, 20, 8), "key").mT
        error[name] = float((kernel / kernel.sum(-1, keepdim=True) - exact).square().mean().detach())
    assert error["optimal-positive"] < 0.8 * error["favor"]


def test_flexformer_with_gaussian_frequencies_is_the_softmax_kernels_estimator():
    """In the paper's units: omega' = d^(-1/4) omega, phi~(x) = exp(|x|^2/(2 sqrt d)) [cos omega'.x, sin omega'.x]/sqrt n."""
    d, n = 16, 9
    fm = feature_map("flexformer", dim=d, n_features=2 * n, generator=_seeded(0), dtype=torch.float64)
    raw, omega = points(1, 1, 7, d), fm.omega.detach()[0] * d**-0.25
    z = raw @ omega.T
    published = torch.exp(raw.square().sum(-1, keepdim=True) / (2 * math.sqrt(d))) * torch.cat((z.cos(), z.sin()), -1) / n**0.5
    torch.testing.assert_close(true_features(fm, raw * d**-0.25), published, rtol=1e-12, atol=1e-14)
    rfa = feature_map("rfa", dim=d, n_features=2 * n, omega=fm.omega, dtype=torch.float64)
    assert all(torch.equal(a, b) for a, b in zip(rfa(raw), fm(raw)))
    x, y = raw[:, :, :3] * d**-0.25, raw[:, :, 3:6] * d**-0.25
    many = feature_map("flexformer", dim=d, n_features=2 * 40_000, generator=_seeded(1), dtype=torch.float64)
    norms = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
    distance = norms - 2 * x @ y.mT
    error = (0.5 * norms.exp() * (1 - (-distance).exp()).square() / 40_000).sqrt()
    found = true_features(many, x) @ true_features(many, y).mT
    assert ((found - (x @ y.mT).exp()).abs() < 4.9 * error).all()  # false-alarm rate 9 times 1e-6, less as rows are orthogonal
    wide = true_features(many.load_omega(1.2 * many.omega.detach()), x) @ true_features(many, y).mT
    assert ((wide - (x @ y.mT).exp()).abs() > 4.9 * error).any()  # negative control


def test_nonstationary_flexformer_with_equal_pairs_is_the_stationary_one():
    d, n = 5, 6
    w, x = points(3, n, d), points(2, 3, 7, d)
    s = feature_map("flexformer", dim=d, n_features=2 * n, heads=3, omega=w, dtype=torch.float64)
    both = feature_map("flexformer-nonstationary", dim=d, n_features=2 * n, heads=3, omega=torch.cat((w, w), -1), dtype=torch.float64)
    assert both.tau.tolist() == [math.log(2)] * 3  # log(2 sqrt d) for inputs that are not scaled by d^(-1/4)
    torch.testing.assert_close(true_features(both, x), true_features(s, x), rtol=1e-14, atol=1e-15)
    both.tau.data += 1e-3
    assert (true_features(both, x) - true_features(s, x)).abs().max() > 1e-4  # negative control


def test_nonstationary_flexformer_in_the_papers_units_and_product_form():
    """tau' = tau + log sqrt d, omega' = d^(-1/4) omega; with half sums and differences 2 cos cos and 2 sin cos (Yaglom)."""
    d, n = 4, 5
    fm = feature_map("flexformer-nonstationary", dim=d, n_features=2 * n, spread=1.0, generator=_seeded(0),
                     dtype=torch.float64)  # fmt: skip
    fm.tau.data.fill_(0.9)
    raw, (w1, w2) = points(1, 1, 7, d), (fm.omega.detach()[0] * d**-0.25).split(d, -1)
    half_sum, half_difference = raw @ (w1 + w2).T / 2, raw @ (w1 - w2).T / 2
    factor = torch.exp(raw.square().sum(-1, keepdim=True) / math.exp(0.9 + math.log(math.sqrt(d))))
    product = torch.cat((half_sum.cos() * half_difference.cos(), half_sum.sin() * half_difference.cos()), -1) / n**0.5
    torch.testing.assert_close(true_features(fm, raw * d**-0.25), factor * product, rtol=1e-12, atol=1e-14)


def test_nonstationary_pairs_start_close_together_and_gaussian():
    made = lambda **options: feature_map(  # noqa: E731
        "flexformer-nonstationary", dim=6, n_features=80, heads=60, generator=_seeded(0), dtype=torch.float64, **options
    ).omega.detach()
    for options, spread in (({}, 0.1), ({"spread": 0.6}, 0.6), ({"spread": 0.0}, 0.0), ({"spread": 1.0}, 1.0)):
        first, second = made(**options).split(6, -1)
        for half in (first, second):
            assert half.std() == pytest.approx(1.0, rel=0.03)
        assert (first - second).std() == pytest.approx(math.sqrt(2) * spread, rel=0.03, abs=1e-12)


def test_parameter_counts_of_the_published_table():
    """n d numbers a head (Flexformer_s, Hedgehog with one W for queries and keys), twice that with pairs, and one tau a head."""
    count = lambda name, **options: sum(  # noqa: E731
        p.numel() for p in feature_map(name, dim=64, n_features=128, heads=8, **options).parameters() if p.requires_grad
    )
    assert count("flexformer") == 8 * 64 * 64
    assert count("hedgehog", shared=True) == 8 * 64 * 64
    assert count("hedgehog") == 2 * 8 * 64 * 64
    assert count("flexformer-nonstationary") == 8 * (2 * 64 * 64 + 1)
    assert 6 * count("flexformer") / 41e6 == pytest.approx(0.0049, rel=0.03)  # small model: 6 layers of 8 heads
    assert 16 * 2 * count("flexformer") / 247e6 == pytest.approx(0.0043, rel=0.03)  # big one: 16 layers of 16
    assert 6 * count("flexformer-nonstationary") / 41e6 == pytest.approx(0.0097, rel=0.02)
    assert feature_map("flexformer", dim=64, n_features=32).omega.numel() == 16 * 64  # as for images in the long-range arena


def test_general_exponential_starts_as_favor_up_to_the_querys_factor():
    omega, x = points(2, 6, 4), points(1, 2, 5, 4)
    general = feature_map("exponential", dim=4, n_features=6, heads=2, omega=omega, dtype=torch.float64)
    plain = feature_map("favor", dim=4, n_features=6, heads=2, omega=omega, dtype=torch.float64)
    torch.testing.assert_close(true_features(general, x, "key"), true_features(plain, x), rtol=1e-12, atol=0)
    lifted = true_features(plain, x) * (x.square().sum(-1, keepdim=True) / 2).exp()
    torch.testing.assert_close(true_features(general, x), lifted, rtol=1e-12, atol=0)


def test_exponential_holds_the_exact_invariances_of_softmax_attention():
    """Adding one vector to all keys, or to all queries a weight of keys, is within the family: it moves b, key_shift and nothing else."""
    fm = feature_map("exponential", dim=3, n_features=7, dtype=torch.float64, generator=_seeded(0))
    q, k, shift = points(1, 1, 4, 3), points(1, 1, 5, 3, seed=1), points(3, seed=2)
    shares = lambda k: (lambda kernel: kernel / kernel.sum(-1, keepdim=True))(true_features(fm, q) @ true_features(fm, k, "key").mT)  # noqa: E731
    moved = shares(k + shift)
    fm.bias.data += (fm.omega_k.data @ shift) / 2  # half on each side of the product
    fm.key_shift.data += 2 * fm.key_norm.data * shift
    torch.testing.assert_close(shares(k), moved, rtol=1e-12, atol=1e-14)
