"""Particles as parameters: draws, loading, weights, stored measures, freezing, and the same phi as in `particles`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import attention
from attention import FeatureMap, feature_map, kernel_attention
from attention.feature_map import MAPS
from particles import load_measure, save_measure
from particles.features import (
    CosineSquared,
    Elu,
    FourierPair,
    FourierPhase,
    HyperbolicPair,
    NonstationaryPair,
    PositiveExponential,
    SigmoidSquared,
    Softplus,
)

NAMES = ["favor", "favor-hyperbolic", "softplus", "porf-softplus", "elu", "sigmoid2", "softmaxfeat", "cos2", "fourier", "phase"]


def points(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(name: str = "favor", *, dim: int = 5, n_features: int = 6, heads: int = 3, seed: int = 0, **options) -> FeatureMap:
    generator = torch.Generator().manual_seed(seed)
    return feature_map(name, dim=dim, n_features=n_features, heads=heads, generator=generator, **options).double()


def true_features(fm: FeatureMap, x: torch.Tensor) -> torch.Tensor:
    log_scale, features = fm(x, role="key")
    return log_scale.exp()[..., None] * features


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_is_the_particles_kernel(name):
    fm, x, y = made(name), points(2, 3, 4, 5), points(2, 3, 6, 5, seed=1)
    assert fm.feature_dim == 6
    assert fm.signed == fm.feature.signed == (name in ("fourier", "phase"))
    expected = fm.feature.kernel(x, y, fm.omega.detach())
    torch.testing.assert_close(true_features(fm, x) @ true_features(fm, y).mT, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_in_omega_is_the_particles_pullback(name):
    fm, x = made(name, heads=1), points(1, 1, 7, 5)
    cotangent = points(7, 6, seed=2)
    (true_features(fm, x)[0, 0] * cotangent).sum().backward()
    omega = fm.omega.detach()[0]
    _, pullback = fm.feature.value_and_pullback(x[0, 0], omega)
    expected = pullback(cotangent.unflatten(-1, (fm.feature.width, -1))) / omega.shape[0] ** 0.5
    if name == "cos2":
        expected[..., -1] = 0  # the phases are fixed
    torch.testing.assert_close(fm.omega.grad[0], expected, rtol=1e-10, atol=1e-12)


def test_options_reach_the_feature():
    x = points(1, 3, 4, 5)
    raw = made("softplus", renormalise=False, floor=0.1, temperature=2.0)
    z = torch.einsum("bhtd,hmd->bhtm", x, raw.omega.detach())
    torch.testing.assert_close(true_features(raw, x), (torch.log1p((z / 2).exp()) + 0.1) / 6**0.5, rtol=1e-12, atol=0)
    clamped = made("elu+1", renormalise=False, floor=0.7)
    z = torch.einsum("bhtd,hmd->bhtm", x, clamped.omega.detach())
    torch.testing.assert_close(true_features(clamped, x), (1 + torch.nn.functional.elu(z)).clamp(min=0.7) / 6**0.5, rtol=1e-12, atol=0)


ORTHOGONAL = [
    "favor",
    "favor-hyperbolic",
    "porf-softplus",
    "fourier",
    "phase",
    "flexformer",
    "exponential",
    "optimal-positive",
    "data-aware",
]


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_orthogonal_first_draw(name):
    dim, heads = 6, 300
    fm = made(name, dim=dim, n_features=15 * MAPS[name].width, heads=heads)
    omega = fm.omega.detach()[..., :dim]
    for block in (omega[:, :6], omega[:, 6:12], omega[:, 12:]):
        gram = block @ block.mT
        assert (gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-4  # float32 parameter
    lengths = omega.norm(dim=-1).flatten().numpy()
    assert stats.kstest(lengths, stats.chi(dim).cdf).pvalue > 1e-5  # false-alarm rate 1e-5
    assert stats.kstest(lengths, stats.chi(dim + 1).cdf).pvalue < 1e-5  # negative control
    positive = int((omega[:, 0, 0] > 0).sum())  # all of one sign without the correction of QR; false-alarm rate 1e-5
    assert stats.binomtest(positive, heads).pvalue > 1e-5


@pytest.mark.parametrize("name", ["softplus", "softmaxfeat", "elu", "sigmoid2", "cos2", "rfa"])
def test_other_first_draws_are_normal(name):
    omega = made(name, dim=6, n_features=15 * MAPS[name].width, heads=200).omega.detach()[..., :6].flatten().numpy()
    assert stats.kstest(omega, "norm").pvalue > 1e-5  # false-alarm rate 1e-5
    assert stats.kstest(1.2 * omega, "norm").pvalue < 1e-5  # negative control


@pytest.mark.parametrize("name", ["phase", "cos2"])
def test_phases_are_uniform(name):
    phase = made(name, n_features=16, heads=100).omega.detach()[..., -1].flatten().numpy()
    assert stats.kstest(phase, stats.uniform(0, 2 * math.pi).cdf).pvalue > 1e-5  # false-alarm rate 1e-5
    assert stats.kstest(phase, stats.uniform(0, math.pi).cdf).pvalue < 1e-5  # negative control


@pytest.mark.parametrize("name", NAMES)
def test_generator_decides_the_draw(name):
    first, second, other = made(name).omega, made(name).omega, made(name, seed=1).omega
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_global_generator_is_left_alone():
    before = torch.get_rng_state()
    made("phase")
    assert torch.equal(before, torch.get_rng_state())


def test_freeze_and_release():
    fm = made()
    assert fm.omega.requires_grad
    assert fm.freeze() is fm
    assert not fm.omega.requires_grad
    log_scale, features = fm(points(1, 3, 2, 5), role="query")
    assert not features.requires_grad
    assert not log_scale.requires_grad
    assert fm.release().omega.requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip_before_the_first_forward(name, tmp_path):
    fm, fresh, x = made(name), made(name, seed=5), points(2, 3, 4, 5)
    torch.save(fm.state_dict(), tmp_path / "map.pt")
    fresh.load_state_dict(torch.load(tmp_path / "map.pt", weights_only=True), strict=True)
    for a, b in zip(fm(x, role="key"), fresh(x, role="key")):
        assert torch.equal(a, b)


def test_load_omega_copies_into_the_parameter():
    fm = made()
    parameter, address = fm.omega, fm.omega.data_ptr()
    given = points(6, 5, seed=3)
    fm.load_omega(given)
    assert fm.omega is parameter
    assert fm.omega.data_ptr() == address
    assert torch.equal(fm.omega, given.expand(3, 6, 5))
    given.zero_()
    assert fm.omega.abs().min() > 0
    per_head = points(3, 6, 5, seed=4).numpy()
    per_head.flags.writeable = False
    assert np.array_equal(fm.load_omega(per_head).omega.detach().numpy(), per_head)
    assert fm.load_omega(np.ones((6, 5), dtype=int)).omega.eq(1).all()
    assert fm.load_omega(per_head.astype(">f4")).omega.detach().numpy()[0, 0, 0] == per_head.astype(np.float32)[0, 0, 0]


def test_omega_given_at_construction():
    given = points(6, 5)
    fm = feature_map("favor", dim=5, n_features=6, heads=2, omega=given)
    assert fm.omega.dtype == torch.float32
    assert fm.omega.requires_grad
    torch.testing.assert_close(fm.omega.detach(), given.float().expand(2, 6, 5), rtol=0, atol=0)
    assert feature_map("favor", dim=5, n_features=6, omega=given, dtype=torch.float64).omega.dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "feature"),
    [("fourier", FourierPair()), ("softplus", Softplus()), ("favor", PositiveExponential()), ("favor-hyperbolic", HyperbolicPair())],
)
def test_a_saved_measure_enters_attention_as_the_same_kernel(name, feature, tmp_path):
    omega, x, y = points(4, 5).numpy(), points(1, 2, 7, 5, seed=1), points(1, 2, 6, 5, seed=2)
    uneven = np.array([0.1, 0.0, 0.6, 0.3])
    for weights in (None, uneven):
        save_measure(tmp_path / "measure", omega, feature, weights=weights, overwrite=True)
        measure = load_measure(tmp_path / "measure")
        options = {"renormalise": False} if name == "softplus" else {}
        size = 4 * measure.feature.width
        fm = feature_map(name, dim=5, n_features=size, omega=measure.omega, weights=measure.weights, dtype=torch.float64, **options)
        assert fm.feature == measure.feature
        each = [measure.feature.kernel(x.numpy(), y.numpy(), measure.omega[k : k + 1]) for k in range(4)]
        expected = sum(weight * kernel for weight, kernel in zip(measure.weights, each))
        np.testing.assert_allclose((true_features(fm, x) @ true_features(fm, y).mT).detach().numpy(), expected, rtol=1e-12, atol=1e-14)
        if weights is None:
            np.testing.assert_allclose(expected, measure.feature.kernel(x.numpy(), y.numpy(), measure.omega), rtol=1e-12, atol=1e-14)
        v = points(1, 2, 6, 3, seed=3)
        out = kernel_attention(x, y, v, fm, scale=1.0, normalise="count").detach().numpy()
        np.testing.assert_allclose(out, expected @ v.numpy() / 6, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "feature",
    [
        Softplus(),
        Softplus(2.0, 0.1, True),
        Elu(floor=0.2),
        Elu(offset=True),
        SigmoidSquared(0.7),
        CosineSquared(),
        CosineSquared(True),
        HyperbolicPair(),
        FourierPair(),
        FourierPhase(),
        NonstationaryPair(),
    ],
    ids=repr,
)
def test_a_measures_feature_enters_attention_as_it_is(feature, tmp_path):
    x, y = points(1, 1, 7, 5, seed=1), points(1, 1, 6, 5, seed=2)
    omega = points(4, feature.particle_dim(5)).numpy()
    save_measure(tmp_path / "measure", omega, feature)
    m = load_measure(tmp_path / "measure")
    options = {"dim": 5, "n_features": 4 * m.feature.width}
    fm = feature_map(m.feature, **options, omega=m.omega, weights=m.weights, dtype=torch.float64)
    assert (fm.name, fm.feature) == (feature.name, feature)
    found = (true_features(fm, x) @ true_features(fm, y).mT).detach().numpy()
    np.testing.assert_allclose(found, m.feature.kernel(x.numpy(), y.numpy(), m.omega), rtol=1e-12, atol=1e-14)
    for wrong in ({"temperature": 2.0}, {"renormalise": True}):
        with pytest.raises(ValueError, match="options belong to the names of maps.*got.*" + next(iter(wrong))):
            feature_map(m.feature, **options, **wrong)


def test_first_draw_of_a_given_feature():
    generator = torch.Generator().manual_seed(0)
    phase = feature_map(FourierPhase(), dim=6, n_features=20, heads=100, generator=generator).omega.detach()
    pair = feature_map(NonstationaryPair(), dim=6, n_features=40, heads=100, generator=generator).omega.detach()
    assert pair.shape == (100, 20, 12)
    square = feature_map(CosineSquared(), dim=6, n_features=20, heads=100, generator=generator).omega.detach()
    assert stats.kstest(square[..., -1].flatten().numpy(), stats.uniform(0, 2 * math.pi).cdf).pvalue > 1e-5
    for omega in (phase[..., :-1], pair):
        assert stats.kstest(omega.flatten().numpy(), "norm").pvalue > 1e-5  # false-alarm rate 1e-5
    assert stats.kstest(phase[..., -1].flatten().numpy(), stats.uniform(0, 2 * math.pi).cdf).pvalue > 1e-5
    assert stats.kstest(phase[..., -1].flatten().numpy(), "norm").pvalue < 1e-5  # negative control


def test_weights_are_kept_by_head_saved_and_reset_with_new_particles(tmp_path):
    weights = np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])
    weights.flags.writeable = False
    fm = made(n_features=3, heads=2, omega=points(3, 5), weights=weights)
    x = points(1, 2, 4, 5)
    plain = made(n_features=3, heads=2, omega=points(3, 5))
    expected = true_features(plain, x) * torch.from_numpy(3 * weights).sqrt()[:, None]
    torch.testing.assert_close(true_features(fm, x), expected, rtol=1e-6, atol=0)  # weights are rounded to float32 at first
    fresh = made(n_features=3, heads=2, omega=points(3, 5, seed=9), weights=np.full(3, 1 / 3))
    fresh.load_state_dict(fm.state_dict(), strict=True)
    assert torch.equal(true_features(fresh, x), true_features(fm, x))
    assert not fm.weights.requires_grad
    torch.testing.assert_close(true_features(fm.load_omega(points(3, 5)), x), true_features(plain, x), rtol=1e-6, atol=0)


def test_each_head_uses_its_own_particles():
    fm, x = made("softplus"), points(2, 3, 4, 5)
    together = true_features(fm, x)
    for head in range(3):
        alone = made("softplus", heads=1).load_omega(fm.omega.detach()[head])
        torch.testing.assert_close(true_features(alone, x[:, head : head + 1]), together[:, head : head + 1], rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_computes_in_float32_at_least(dtype):
    log_scale, features = made().to(dtype)(points(1, 3, 4, 5).to(dtype), role="query")
    assert log_scale.dtype == features.dtype == torch.promote_types(dtype, torch.float32)


@pytest.mark.parametrize("name", ["softplus", "elu", "favor", "softmaxfeat"])
def test_small_features_keep_their_relative_accuracy_in_bfloat16(name):
    """elu(x) + 1 in bfloat16 is 0 at x = -8; the features are computed in float32, by logarithms."""
    options = {"renormalise": False} if name in ("softplus", "elu") else {}
    fm = made(name, dim=1, n_features=1, heads=1, omega=np.ones((1, 1)), **options)
    x = torch.full((1, 1, 1, 1), -8.0, dtype=torch.bfloat16)
    exact = {"softplus": math.log1p(math.exp(-8)), "elu": math.exp(-8), "favor": math.exp(-8 - 32), "softmaxfeat": 1.0}[name]
    assert true_features(fm.float(), x).item() == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("performer", {}, "name must be one of .*'favor'.*got 'performer'"),
        (None, {}, "name"),
        (FourierPair(), {"n_features": 7}, "n_features must be a multiple of 2 for 'fourier', got 7"),
        (["favor"], {}, "name must be one of"),
        ("favor", {"dtype": torch.int64}, "dtype must be a real floating-point.*int64"),
        ("favor", {"generator": 3}, "generator must be a torch.Generator or None, got 3"),
        ("favor", {"n_features": 0}, "n_features"),
        ("fourier", {"n_features": 7}, "n_features must be a multiple of 2 for 'fourier', got 7"),
        ("favor", {"dim": 0}, "dim"),
        ("favor", {"heads": 1.5}, "heads"),
        ("favor", {"temperature": 2.0}, "temperature has no meaning for 'favor', got 2.0"),
        ("softplus", {"temperature": 0.0}, "temperature"),
        ("softplus", {"flor": 0.1}, "unknown options for 'softplus': .'flor'."),
        ("softplus", {"floor": -1.0}, "floor"),
        ("fourier", {"renormalise": True}, "unknown options"),
        ("favor", {"omega": np.ones((5, 5))}, r"omega must have shape \(3, 6, 5\) or \(6, 5\), got \(5, 5\)"),
        ("favor", {"omega": np.full((6, 5), np.nan)}, "omega must be finite"),
        ("favor", {"omega": np.ones((2, 6, 5))}, "omega"),
        ("favor", {"omega": "omega.npy"}, "omega"),
        ("favor", {"omega": np.full((6, 5), -1e6), "dtype": torch.float16}, r"omega must be finite in torch.float16, got .* 1e\+06"),
        ("exponential", {"omega_k": np.full((6, 5), 1e39)}, "omega_k must be finite in torch.float32"),
        ("exponential", {"key_norm": None}, "key_norm must be a real number, got None"),
        ("optimal-positive", {"A": -1e40}, "A must be finite .*A=-1e.40"),
        ("optimal-positive", {"phi2": 1e300}, r"A must be finite .*phi2=1e\+300"),
        ("flexformer-nonstationary", {"omega": np.ones((3, 10)), "spread": 0.2}, "spread belongs to a first draw.* got 0.2"),
        ("favor", {"weights": np.full(6, 1 / 6)}, "give omega with them"),
        ("favor", {"omega": np.ones((6, 5)), "weights": np.full(5, 0.2)}, r"weights must have shape \(3, 6\) or \(6,\), got \(5,\)"),
        ("favor", {"omega": np.ones((6, 5)), "weights": np.ones(6)}, "weights must be at least 0 and sum to 1.*6.0"),
        ("favor", {"omega": np.ones((6, 5)), "weights": [2.0, -1.0, 0, 0, 0, 0]}, "weights must be at least 0.*-1.0"),
        ("favor", {"omega": np.ones((6, 5)), "weights": np.full(6, np.nan)}, "weights must be finite"),
    ],
)
def test_bad_arguments_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        feature_map(name, **{"dim": 5, "n_features": 6, "heads": 3, **options})


@pytest.mark.parametrize("x", [points(3, 4, 5), points(1, 2, 4, 5), points(1, 3, 4, 6), points(1, 3, 4, 5).numpy()])
def test_inputs_that_do_not_fit_are_refused(x):
    with pytest.raises(ValueError, match=r"must have"):
        made()(x, role="query")


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex128])
@pytest.mark.parametrize("name", ["favor", "fourier"])
def test_inputs_of_no_float_type_are_refused(name, dtype):
    with pytest.raises(ValueError, match=rf"x must have shape \(batch, 3, time, dim\) and a float type, got {dtype}"):
        made(name)(points(1, 3, 4, 5).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_particles_of_half_types_are_taken(dtype):
    fm = made("exponential").to(dtype)
    omega, keys = fm.omega.detach().clone(), 2 * fm.omega.detach()
    for each in (
        fm.load_omega(omega, keys),
        feature_map("exponential", dim=5, n_features=6, heads=3, omega=omega, omega_k=keys, dtype=dtype),
    ):
        assert each.omega.dtype == dtype
        assert torch.equal(each.omega, omega)
        assert torch.equal(each.omega_k, keys)


def test_unknown_role_is_refused():
    with pytest.raises(ValueError, match="role must be 'query' or 'key', got 'value'"):
        made()(points(1, 3, 4, 5), role="value")


def test_a_failed_load_changes_nothing():
    fm = made()
    before = fm.omega.detach().clone()
    with pytest.raises(ValueError, match="omega"):
        fm.load_omega(np.ones((6, 4)))
    assert torch.equal(fm.omega, before)
    with pytest.raises(ValueError, match=r"omega must be finite in torch.float16, got a largest size of 7e\+04"):
        fm.half().load_omega(np.full((6, 5), 7e4))
    assert torch.equal(fm.omega, before.half())


def test_construction_prints_nothing(capsys):
    repr(made("favor"))
    assert capsys.readouterr() == ("", "")


def test_package_exports():
    for name in attention.__all__:
        assert getattr(attention, name) is not None
