"""Features against their slow definition, their derivatives, closed-form kernels and extreme arguments."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from particles import naive
from particles.features import (
    CosineSquared,
    Elu,
    FourierPair,
    FourierPhase,
    HyperbolicPair,
    NonstationaryPair,
    PositiveExponential,
    SigmoidSquared,
    SoftmaxFeatures,
    Softplus,
    as_feature,
    feature_from_description,
)

NAMES = ["fourier", "phase", "nonstationary", "positive", "hyperbolic", "softplus", "elu", "sigmoid2", "cos2", "softmax"]
OPTIONS = [
    Softplus(0.7, 0.1),
    Softplus(0.7, 0.1, True),
    Softplus(renormalise=True),
    Elu(0.5, 0.3),
    Elu(1.3, 0.3, True),
    Elu(renormalise=True),
    Elu(0.8, 0.0, False, True),
    Elu(renormalise=True, offset=True),
    SigmoidSquared(0.6),
    SigmoidSquared(0.6, True),
    CosineSquared(True),
    SoftmaxFeatures(0.4),
]
ALL = [as_feature(name) for name in NAMES] + OPTIONS


def data(feature, *, chains=(), n=7, particles=5, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)), rng.normal(size=(*chains, particles, feature.particle_dim(dim)))


@pytest.mark.parametrize("name", NAMES)
def test_features_and_kernel_equal_the_slow_definition(name):
    feature = as_feature(name)
    x, omega = data(feature, chains=(2,))
    slow = np.array([[naive.features(name, row, w) for row in x] for w in omega])
    np.testing.assert_allclose(feature(x, omega), slow, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(feature(torch.tensor(x), torch.tensor(omega)).numpy(), slow, rtol=1e-12, atol=1e-14)
    kernel = [[[naive.kernel(name, a, b, w) for b in x[:2]] for a in x] for w in omega]
    np.testing.assert_allclose(feature.kernel(x, x[:2], omega), kernel, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("feature", ALL, ids=repr)
@pytest.mark.parametrize("chains", [(), (2,)])
def test_pullback_equals_finite_differences_and_autograd(feature, chains):
    x, omega = data(feature, chains=chains)
    phi, pullback = feature.value_and_pullback(x, omega)
    cotangent = np.random.default_rng(1).normal(size=phi.shape)
    gradient = pullback(cotangent)
    numerical = naive.numerical_gradient(lambda w: float((cotangent * feature(x, w)).sum()), omega)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(phi, feature(x, omega), rtol=1e-14)

    tensors = [torch.tensor(a) for a in (x, omega, cotangent)]
    phi, pullback = feature.value_and_pullback(*tensors[:2])
    np.testing.assert_allclose(pullback(tensors[2]).numpy(), gradient, rtol=1e-12, atol=1e-13)
    tensors[1].requires_grad_()
    scale, scaled = feature.scaled(*tensors[:2])
    (torch.exp(scale)[..., None, None] * scaled * tensors[2]).sum().backward()
    np.testing.assert_allclose(tensors[1].grad.numpy(), gradient, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "feature", [Softplus(floor=1e-20, renormalise=True), Softplus(floor=1e-3), Elu(floor=1e-20, renormalise=True)], ids=repr
)
def test_pullback_of_features_below_their_floor(feature):
    x, omega = np.abs(data(feature)[0]) + 0.1, data(feature)[1] - 80
    phi, pullback = feature.value_and_pullback(x, omega)
    weight = torch.tensor(np.random.default_rng(1).normal(size=phi.shape))
    moved = torch.tensor(omega, requires_grad=True)
    scale, scaled = feature.scaled(torch.tensor(x), moved)
    (torch.exp(scale)[..., None, None] * scaled * weight).sum().backward()
    np.testing.assert_allclose(pullback(weight.numpy()), moved.grad.numpy(), rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize("feature", [f for f in ALL if f not in (Elu(0.5, 0.3),)], ids=repr)
def test_autograd_is_right_at_the_origin(feature):
    omega = torch.zeros(4, feature.particle_dim(3), dtype=torch.float64, requires_grad=True)
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, pullback = feature.value_and_pullback(x, omega.detach())
    scale, phi = feature.scaled(x, omega)
    cotangent = torch.randn(phi.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((torch.exp(scale)[..., None, None] * phi * cotangent).sum(), omega)
    torch.testing.assert_close(gradient, pullback(cotangent))


@pytest.mark.parametrize("feature", ALL, ids=repr)
def test_scaled_never_overflows_in_float32_and_broadcasts_over_batch_and_head(feature):
    generator = torch.Generator().manual_seed(2)
    x = (100 * torch.randn(2, 3, 4, 8, generator=generator)).requires_grad_()
    omega = (100 * torch.randn(3, 5, feature.particle_dim(8), generator=generator)).requires_grad_()
    scale, phi = feature.scaled(x, omega)
    assert phi.shape == (2, 3, 4, feature.width, 5)
    assert scale.shape == (2, 3, 4)
    assert bool(scale.isfinite().all())
    assert float(phi.detach().abs().max()) <= 1.01 * float(np.finfo(np.float32).max) ** (1 / 3)
    (1e-12 * (phi.sum() + scale.sum())).backward()
    assert bool(x.grad.isfinite().all() and omega.grad.isfinite().all())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softplus_and_elu_keep_relative_accuracy_where_they_underflow(dtype):
    x, omega = np.array([[-1000.0, 0.0]], dtype), np.array([[1.0, 0.0], [1.001, 0.0]], dtype)
    z = -1000.0 * omega[:, 0].astype(float)
    for feature, power in ((Softplus(), 1), (Elu(), 1), (SigmoidSquared(), 2)):  # exp(z) there, or its square
        scale, phi = feature.scaled(x, omega)
        np.testing.assert_allclose(scale[..., None] + np.log(phi[0]), power * z[None], rtol=1e-6)
    for feature in (Softplus(renormalise=True), Elu(renormalise=True)):
        expected = math.sqrt(2) * np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        np.testing.assert_allclose(feature(x, omega)[0, 0], expected, rtol=2e-4 if dtype is np.float32 else 1e-12)
    grid = np.linspace(-40, 40, 4001)[:, None]
    np.testing.assert_allclose(Softplus()(grid, np.ones((1, 1)))[:, 0, 0], np.log1p(np.exp(grid[:, 0])), rtol=1e-14)


@pytest.mark.parametrize("feature", [f for f in ALL if f.many_body], ids=repr)
def test_normalised_features_sum_to_the_square_root_of_their_number(feature):
    x, omega = data(feature)
    np.testing.assert_allclose(feature(30 * x, omega).sum(-1), math.sqrt(5), rtol=1e-12)


def test_only_normalised_features_are_many_body():
    assert [f.name for f in map(as_feature, NAMES) if f.many_body] == ["softmax"]
    assert Softplus(renormalise=True).many_body
    assert not Softplus(renormalise=True).signed


def test_phase_average_is_the_stationary_kernel():
    """The mean over a uniform grid of phases of 2 cos(w.x + b) cos(w.x' + b) is cos w.(x - x') exactly."""
    x, w = np.random.default_rng(3).normal(size=(2, 3)), np.array([0.3, -1.2, 0.8])
    phases = 2 * np.pi * np.arange(8) / 8
    omega = np.column_stack([np.tile(w, (8, 1)), phases])
    assert FourierPhase().kernel(x[:1], x[1:], omega)[0, 0] == pytest.approx(math.cos(w @ (x[0] - x[1])), abs=1e-14)


def test_nonstationary_pair_is_yaglom_in_product_form():
    """cos w1.x + cos w2.x = 2 cos(m.x) cos(h.x) with m, h half sum and half difference; equal halves give the stationary kernel."""
    x, omega = data(NonstationaryPair())
    m, h = (omega[:, :3] + omega[:, 3:]) / 2, (omega[:, :3] - omega[:, 3:]) / 2
    phi = np.concatenate([np.cos(x @ m.T) * np.cos(x @ h.T), np.sin(x @ m.T) * np.cos(x @ h.T)], -1)
    np.testing.assert_allclose(NonstationaryPair().kernel(x, x, omega), phi @ phi.T / 5, atol=1e-14)
    w = omega[:, :3]
    np.testing.assert_allclose(NonstationaryPair().kernel(x, x, np.hstack([w, w])), FourierPair().kernel(x, x, w), atol=1e-14)


def test_mean_and_variance_under_the_gaussian_law():
    """Exact per-feature moments by Gauss-Hermite quadrature: Fourier pair (1 - e^-D^2)^2/2, positive e^{2xy}(e^{z^2} - 1), z = x + y,
    and (1 - e^{-z^2})/2 times that with both signs."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(90)
    weights /= weights.sum()
    x, y = np.array([[0.7]]), np.array([[-0.4]])
    for feature, mean, variance in (
        (FourierPair(), math.exp(-(1.1**2) / 2), 0.5 * (1 - math.exp(-(1.1**2))) ** 2),
        (PositiveExponential(), math.exp(-0.28), math.exp(-0.56) * (math.exp(0.3**2) - 1)),
        (HyperbolicPair(), math.exp(-0.28), math.exp(-0.56) * (math.exp(0.3**2) - 1) * (1 - math.exp(-(0.3**2))) / 2),
    ):
        products = (feature(x, nodes[:, None]) * feature(y, nodes[:, None])).sum(-2)[0]
        assert weights @ products == pytest.approx(mean, rel=1e-12)
        assert weights @ products**2 - mean**2 == pytest.approx(variance, rel=1e-11)


def test_squared_cosine_averages_over_phase_and_gaussian_frequency():
    """Mean over phases of cos^2(a + b) cos^2(a' + b) = 1/4 + cos(2(a - a'))/8; with w ~ N(0, I): 1/4 + exp(-2 |x - x'|^2)/8."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights /= weights.sum()
    phases = np.pi * np.arange(8) / 8
    x, y = np.array([[0.7]]), np.array([[-0.4]])
    omega = np.column_stack([np.repeat(nodes, 8), np.tile(phases, len(nodes))])
    products = (CosineSquared()(x, omega) * CosineSquared()(y, omega))[0, 0].reshape(-1, 8).mean(1)
    np.testing.assert_allclose(products, 0.25 + np.cos(2 * nodes * 1.1) / 8, rtol=1e-12)
    assert weights @ products == pytest.approx(0.25 + math.exp(-2 * 1.1**2) / 8, rel=1e-10)


def test_means_of_positive_features_under_the_logistic_and_the_gaussian_law():
    """z logistic: sigmoid(z) is uniform, so E sigmoid^2 = 1/3 and E softplus = 1. z ~ N(0, s^2): E(1 + elu) = 1/2 + s/sqrt(2 pi)
    + exp(s^2/2) P(N > s)."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    uniform, weights = (1 + nodes) / 2, weights / 2
    logistic, one = np.log(uniform / (1 - uniform)), np.ones((1, 1))
    assert weights @ SigmoidSquared()(one, logistic[:, None])[0, 0] == pytest.approx(1 / 3, rel=1e-12)
    assert weights @ SigmoidSquared(0.5)(one, 0.5 * logistic[:, None])[0, 0] == pytest.approx(1 / 3, rel=1e-12)
    assert weights @ Softplus()(one, logistic[:, None])[0, 0] == pytest.approx(1, rel=1e-4)  # the law has a tail
    for s in (0.6, 1.4):
        grid = np.linspace(0, 12, 200_001)
        density = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
        mean = sum(np.trapezoid(density * Elu()(one, sign * s * grid[:, None])[0, 0], grid) for sign in (1, -1))
        expected = 0.5 + s / math.sqrt(2 * math.pi) + math.exp(s * s / 2) * math.erfc(s / math.sqrt(2)) / 2
        assert mean == pytest.approx(expected, rel=1e-9)


def test_offset_is_the_weight_of_a_constant_column():
    x, omega = data(CosineSquared())
    padded = np.column_stack([x, np.ones(len(x))])
    for feature, plain in ((Elu(0.7, 0.1, True, True), Elu(0.7, 0.1, True)), (Elu(offset=True), Elu())):
        assert feature.particle_dim(3) == 4
        np.testing.assert_allclose(feature(x, omega), plain(padded, omega), rtol=1e-13)
    np.testing.assert_allclose(CosineSquared()(x, omega), FourierPhase()(x, omega) ** 2 / 2, rtol=1e-12)


def test_squared_cosine_at_its_zeros():
    """Next to a zero phi is tiny, not zero, and its derivative 0 / 0 does not appear."""
    for dtype in (np.float32, np.float64):
        x, omega = np.ones((1, 1), dtype), np.array([[0.0, np.pi / 2], [0.0, -np.pi / 2], [0.0, 0.0]], dtype)
        for feature in (CosineSquared(), CosineSquared(True)):
            phi, pullback = feature.value_and_pullback(x, omega)
            assert (phi[0, 0, :2] > 0).all()
            assert phi[0, 0, :2].max() < 1e-14
            assert np.abs(pullback(np.ones_like(phi))).max() < 1e-6


@pytest.mark.parametrize("feature", [PositiveExponential(), HyperbolicPair()])
def test_positive_kernel_overflows_to_infinity_not_nan(feature):
    x = np.full((2, 3), 30.0)
    with np.errstate(over="ignore"):
        kernel = feature.kernel(x, x, np.full((4, 3), 50.0))
    assert np.isposinf(kernel).all()


def test_hyperbolic_pair_is_the_mean_of_both_signs():
    x, omega = data(HyperbolicPair())
    both = (PositiveExponential().kernel(x, x, omega) + PositiveExponential().kernel(x, x, -omega)) / 2
    np.testing.assert_allclose(HyperbolicPair().kernel(x, x, omega), both, rtol=1e-13)
    np.testing.assert_allclose(HyperbolicPair().kernel(x, x, -omega), both, rtol=1e-13)


@pytest.mark.parametrize("feature", ALL, ids=repr)
def test_description_round_trip(feature):
    assert feature_from_description(feature.describe()) == feature


def test_integer_and_read_only_arrays_work_and_stay():
    x, omega = np.arange(6).reshape(2, 3), np.array([[1, 0, -1]])
    x.flags.writeable = omega.flags.writeable = False
    phi, pullback = FourierPair().value_and_pullback(x, omega)
    np.testing.assert_array_equal(phi, FourierPair()(x.astype(float), omega.astype(float)))
    assert pullback(np.ones(phi.shape)).shape == omega.shape


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"feature.*'gauss'"):
        as_feature("gauss")
    with pytest.raises(ValueError, match="omega must have 4 numbers per particle"):
        FourierPhase()(np.ones((2, 3)), np.ones((5, 3)))
    with pytest.raises(ValueError, match=r"omega.*\(5, 3\)"):
        NonstationaryPair()(np.ones((2, 3)), np.ones((5, 3)))
    with pytest.raises(ValueError, match="omega"):
        FourierPair()(np.ones((2, 3)), np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"temperature.*-1"):
        Softplus(temperature=-1)
    with pytest.raises(ValueError, match="floor"):
        Elu(floor=float("nan"))
    with pytest.raises(ValueError, match="temperature"):
        SoftmaxFeatures(0)
    for option in ("renormalise", "offset"):
        with pytest.raises(ValueError, match=option):
            Elu(**{option: 1})
    for cls in (SigmoidSquared, CosineSquared):
        with pytest.raises(ValueError, match="renormalise"):
            cls(renormalise="yes")
    with pytest.raises(ValueError, match=r"temperature.*0"):
        SigmoidSquared(0)
    with pytest.raises(ValueError, match="NumPy or all torch"):
        FourierPair()(np.ones((2, 3)), torch.ones(5, 3))
    with pytest.raises(ValueError, match="unknown options"):
        feature_from_description({"name": "Softplus", "tau": 1})
    with pytest.raises(ValueError, match="Gauss"):
        feature_from_description({"name": "Gauss"})
    for text in ("Elu", {}):
        with pytest.raises(ValueError, match="description must name one of"):
            feature_from_description(text)
    with pytest.raises(ValueError, match="x must be a NumPy array or a torch tensor, got list"):
        FourierPair()([[1.0, 2.0, 3.0]], np.ones((5, 3)))
    with pytest.raises(ValueError, match="x2 must be finite"):
        FourierPair().kernel(np.ones((2, 3)), np.full((2, 3), np.nan), np.ones((5, 3)))


def test_kernel_takes_what_tables_and_trajectories_hold():
    x, omega = np.arange(6).reshape(2, 3), np.random.default_rng(0).normal(size=(5, 3))
    expected = FourierPair().kernel(x.astype(float), x.astype(float), omega)
    frame, labelled = pd.DataFrame(x), xr.DataArray(omega, dims=("particle", "dim"))
    np.testing.assert_array_equal(FourierPair().kernel(frame, x.tolist(), labelled), expected)
