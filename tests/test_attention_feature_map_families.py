"""What every name of a feature map promises: its formula, right gradients, any size of input, half types, heads apart, a state dict."""

from __future__ import annotations

import copy
import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from attention.feature_map import MAP_NAMES, MAPS, FeatureMap, feature_map

DIM, HEADS = 4, 3
TRIGONOMETRIC = ["fourier", "phase", "rfa", "flexformer", "flexformer-nonstationary"]
OWN_KEYS = [name for name in MAP_NAMES if MAPS[name].own_keys]


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(name: str, *, dim: int = DIM, heads: int = HEADS, seed: int = 0, moved: bool = True, **options) -> FeatureMap:
    """A map of `dim` particles in float64; `moved` shifts every parameter but a frozen omega off its start."""
    generator = torch.Generator().manual_seed(seed)
    extra = int(options.get("constant_feature", 0) > 0)
    width = MAPS[name].width
    fm = feature_map(name, dim=dim, n_features=width * dim + extra, heads=heads, generator=generator, **options).double()
    for parameter in fm.parameters() if moved else ():
        if parameter.requires_grad:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return fm


def where(fm: FeatureMap, x: Tensor) -> Tensor | None:
    return 3 * torch.arange(x.shape[2]) if fm.positional else None


def true_features(fm: FeatureMap, x: Tensor, role: str = "key") -> Tensor:
    log_scale, features = fm(x, role=role, position=where(fm, x))
    return log_scale.exp()[..., None] * features


def kernel(fm: FeatureMap, x: Tensor, y: Tensor) -> Tensor:
    return true_features(fm, x, "query") @ true_features(fm, y, "key").mT


def _shares(positive: Tensor) -> Tensor:
    return positive / positive.sum(-1, keepdim=True)


def literal(fm: FeatureMap, x: Tensor, role: str) -> Tensor:
    """The table in the module's docstring, written out with exponentials, one head's features at a time."""
    name, m = fm.name, fm.omega.shape[1]
    w = (fm.omega if role == "query" or fm.omega_k is None else fm.omega_k).detach()
    offset, w = (w[:, None, :, -1], w[..., :-1]) if name in ("cos2", "phase") else (0.0, w)
    norm = x.square().sum(-1, keepdim=True)
    if name == "flexformer-nonstationary":
        waves = [torch.einsum("bhtd,hmd->bhtm", x, part) for part in w.split(x.shape[-1], -1)]
        pair = torch.cat((waves[0].cos() + waves[1].cos(), waves[0].sin() + waves[1].sin()), -1) / 2
        return torch.exp(norm / fm.tau.detach().exp()[:, None, None]) * pair / m**0.5
    z = torch.einsum("bhtd,hmd->bhtm", x, w) + offset
    both = torch.cat((z, -z), -1)
    if name in ("rfa", "flexformer", "fourier"):
        return torch.exp(norm / 2 * (name != "fourier")) * torch.cat((z.cos(), z.sin()), -1) / m**0.5
    if name == "exponential":
        c = fm.key_norm.detach()[:, None, None] * norm + torch.einsum("bhtd,hd->bht", x, fm.key_shift.detach())[..., None]
        return torch.exp(z + fm.bias.detach()[:, None] + (c if role == "key" else 0)) / m**0.5
    if name == "optimal-positive":
        a = fm.tilt[:, None, None]
        weight = (1 - 4 * a) ** (DIM / 4) * torch.exp(a * fm.omega.detach().square().sum(-1)[:, None])
        return weight * torch.exp((1 - 4 * a).sqrt() * z - norm / 2) / m**0.5
    if name == "data-aware":
        sigma = fm.metric.detach().mT @ fm.metric.detach()
        w = torch.einsum("hmd,hde->hme", w, fm.metric.detach())  # N(0, Sigma)
        form = torch.einsum("bhtd,hde,bhte->bht", x, sigma, x)[..., None]
        return torch.exp(torch.einsum("bhtd,hmd->bhtm", x, w) - form / 2) / m**0.5
    if name == "polaformer":
        power = (1 + 4 * fm.power.detach().sigmoid())[:, None]
        plus, minus = z.relu() ** power, (-z).relu() ** power
        g = fm.log_opposite.detach().exp()[:, None, None] * (role == "query")
        return torch.cat((plus + g * minus, minus + g * plus), -1)
    if name == "cosformer":
        angle = math.pi / 2 * where(fm, x).double()[:, None] / fm.horizon
        return torch.cat((z.relu() * angle.cos(), z.relu() * angle.sin()), -1)
    return {
        "favor": lambda: torch.exp(z - norm / 2) / m**0.5,
        "favor-hyperbolic": lambda: torch.exp(both - norm / 2) / (2 * m) ** 0.5,
        "softplus": lambda: _shares(torch.log1p(z.exp())),
        "porf-softplus": lambda: _shares(torch.log1p(z.exp())),
        "elu": lambda: _shares(1 + torch.nn.functional.elu(z)),
        "elu+1": lambda: _shares(1 + torch.nn.functional.elu(z)),
        "sigmoid2": lambda: _shares(z.sigmoid() ** 2),
        "cos2": lambda: _shares(z.cos() ** 2),
        "softmaxfeat": lambda: z.softmax(-1),
        "phase": lambda: (2 / m) ** 0.5 * z.cos(),
        "hedgehog": lambda: both.exp(),
        "hedgehog-joint": lambda: both.softmax(-1),
        "hedgehog-softmax": lambda: torch.cat((z.softmax(-1), (-z).softmax(-1)), -1),
        "linear": lambda: 1 + torch.nn.functional.elu(z),
        "identity": lambda: z,
    }[name]()


@pytest.mark.parametrize("name", MAP_NAMES)
@pytest.mark.parametrize("role", ["query", "key"])
def test_features_are_the_formula_of_the_table(name, role):
    fm, x = made(name), points(2, HEADS, 5, DIM)
    if MAPS[name].frozen:
        fm.load_omega(points(HEADS, DIM, DIM, seed=1))
    torch.testing.assert_close(true_features(fm, x, role), literal(fm, x, role), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", MAP_NAMES)
def test_a_name_keeps_what_its_entry_says(name):
    kind, fm = MAPS[name], made(name)
    assert (fm.signed, fm.positional, fm.width) == (kind.signed, kind.positional, kind.width)
    assert fm.feature_dim == kind.width * DIM
    assert fm.normalise == ("rms" if kind.signed else "sum")
    assert (fm.omega_k is not None) == kind.own_keys
    assert fm.omega.requires_grad != kind.frozen
    assert fm.feature is None if kind.feature is None else isinstance(fm.feature, kind.feature)
    documented = {key: value for key, value in kind.options.items() if value is not None}
    torch.testing.assert_close(made(name, **documented).state_dict(), fm.state_dict(), rtol=0, atol=0)
    features = fm(points(1, HEADS, 3, DIM), position=where(fm, points(1, 1, 3, 1)))[1]
    assert features.shape == (1, HEADS, 3, fm.feature_dim)
    if not kind.signed:
        assert (features >= 0).all()


@pytest.mark.parametrize("name", MAP_NAMES)
@pytest.mark.parametrize("role", ["query", "key"])
def test_gradients_of_inputs_and_parameters(name, role):
    fm, x = made(name, heads=2, dim=3).release(), points(1, 2, 2, 3).requires_grad_()
    names, values = zip(*((key, value.detach().clone().requires_grad_()) for key, value in fm.named_parameters()))

    def true(x: Tensor, *values: Tensor) -> Tensor:
        log_scale, features = functional_call(fm, dict(zip(names, values)), (x,), {"role": role, "position": where(fm, x)})
        return log_scale.exp()[..., None] * features

    if name == "cos2":  # the offsets are no parameters of training
        (gradient,) = torch.autograd.grad(true(x, *values).square().sum(), values[:1])
        assert gradient[..., -1].eq(0).all()
        assert gradient[..., :-1].ne(0).all()
        fm.learn_offset = True
    assert torch.autograd.gradcheck(true, (x, *values), check_batched_grad=False)


@pytest.mark.parametrize("name", MAP_NAMES)
def test_every_parameter_learns(name):
    fm, x = made(name).release(), points(1, HEADS, 6, DIM)
    (kernel(fm, x, points(1, HEADS, 5, DIM, seed=1)) * points(1, HEADS, 6, 5, seed=2)).sum().backward()
    for key, parameter in fm.named_parameters():
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.reshape(HEADS, -1).ne(0).any(-1).all(), key


@pytest.mark.parametrize("name", MAP_NAMES)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e2, 1e4, 1e6, 1e9])
def test_bounded_and_finite_with_finite_gradients_at_any_size_of_input(name, size):
    """log_scale alone may grow; a token of zeros is one among others."""
    fm = made(name).float().release()
    x = (size * points(2, HEADS, 5, DIM)).float()
    x[:, :, 1] = 0
    x.requires_grad_()
    for role in ("query", "key"):
        log_scale, features = fm(x, role=role, position=where(fm, x))
        assert log_scale.isfinite().all()
        assert features.isfinite().all()
        assert features.abs().max() <= 1.4143 * fm.headroom(torch.float32)
        gradients = torch.autograd.grad(1e-12 * (features.sum() + log_scale.sum()), (x, fm.omega), allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", MAP_NAMES)
@pytest.mark.parametrize("size", [1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0])
def test_float32_keeps_the_digits_that_the_exponent_leaves(name, size):
    """Against float64, logarithms apart: an exponent of size E costs E eps, and nothing else does."""
    fm = made(name).float()
    x = (size * points(2, HEADS, 7, DIM)).float()
    wide = copy.deepcopy(fm).double()
    for role in ("query", "key"):
        scale, features = fm(x, role=role, position=where(fm, x))
        exact_scale, exact = wide(x.double(), role=role, position=where(fm, x))
        exponent = 1 + 5 * x.double().square().sum(-1) + 5 * x.double().norm(dim=-1) * wide.omega.detach().norm(dim=-1).max()
        if name == "polaformer":
            exponent = exponent + 5 * x.double().abs().log().abs().amax(-1)
        exact = exact * (exact_scale - scale.double()).exp()[..., None]
        bound = 10 * torch.finfo(torch.float32).eps * exponent[..., None]
        size = exact.abs().amax(-1, keepdim=True) if fm.signed or name == "cos2" else exact  # waves have zeros
        assert ((features - exact).abs() <= bound * size + 1e-37).all()


POSITIVE = [name for name in MAP_NAMES if not MAPS[name].signed]


@pytest.mark.parametrize("name", POSITIVE)
def test_products_of_features_of_large_inputs_keep_their_digits_in_float32(name):
    """N(0, 100 I) queries and keys of dim 64: kernels lie up to e^150 below the product of the features' maxima."""
    width = MAPS[name].width
    n = 64 * width if MAPS[name].square else 128
    fm = feature_map(name, dim=64, n_features=n, heads=2, generator=torch.Generator().manual_seed(0))
    q, k = (10 * 64**-0.25 * points(1, 2, 100, 64, seed=seed).float() for seed in (1, 2))

    def log_kernel(fm: FeatureMap, q: Tensor, k: Tensor) -> Tensor:
        (a, phi), (b, psi) = fm(q, position=where(fm, q)), fm(k, role="key", position=where(fm, k))
        return (phi @ psi.mT).log() + a[..., :, None] + b[..., None, :]

    found, exact = log_kernel(fm, q, k), log_kernel(copy.deepcopy(fm).double(), q.double(), k.double())
    assert (found - exact)[exact > -math.inf].abs().quantile(0.99) < 2e-4


@pytest.mark.parametrize("name", MAP_NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_and_autocast_compute_in_float32(name, dtype):
    """The same bits as float32 gives for the rounded numbers."""
    fm, x = made(name).to(dtype), points(2, HEADS, 5, DIM).to(dtype)
    expected = copy.deepcopy(fm).float()(x.float(), position=where(fm, x))
    with torch.autocast("cpu", dtype):
        inside = fm(x, position=where(fm, x))
    for found in (fm(x, position=where(fm, x)), inside):
        for a, b in zip(found, expected):
            assert a.dtype == torch.float32
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", MAP_NAMES)
def test_heads_are_apart_and_one_set_serves_all(name):
    fm, x = made(name), points(2, HEADS, 5, DIM)
    shared = made(name, heads=1)
    for role in ("query", "key"):
        together, serving = true_features(fm, x, role), true_features(shared, x, role)
        for head in range(HEADS):
            alone = made(name, heads=1, seed=5)
            alone.load_state_dict({key: value[head : head + 1] for key, value in fm.state_dict().items()}, strict=True)
            x_head = x[:, head : head + 1]
            torch.testing.assert_close(true_features(alone, x_head, role), together[:, head : head + 1], rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(true_features(shared, x_head, role), serving[:, head : head + 1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", MAP_NAMES)
def test_tokens_and_batch_entries_are_apart(name):
    fm, x = made(name), points(3, HEADS, 6, DIM)
    changed = x.clone()
    changed[1] *= 50
    changed[0, :, 4:] *= 50
    for a, b in zip(fm(x, position=where(fm, x)), fm(changed, position=where(fm, x))):
        torch.testing.assert_close(a[2], b[2], rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(a[0, :, :4], b[0, :, :4], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", MAP_NAMES)
def test_strict_state_dict_round_trip_is_bitwise_and_evaluation_deterministic(name, tmp_path):
    fm, fresh, x = made(name).eval(), made(name, seed=5, moved=False).eval(), points(2, HEADS, 5, DIM)
    torch.save(fm.state_dict(), tmp_path / "map.pt")
    fresh.load_state_dict(torch.load(tmp_path / "map.pt", weights_only=True), strict=True)
    for role in ("query", "key"):
        for a, b, c in zip(*(each(x, role=role, position=where(fm, x)) for each in (fm, fm, fresh))):
            assert torch.equal(a, b)
            assert torch.equal(a, c)


@pytest.mark.parametrize("name", MAP_NAMES)
def test_nan_stays_in_its_token(name):
    fm, x = made(name), points(1, HEADS, 4, DIM)
    x[0, 1, 2, 0] = math.nan
    log_scale, features = fm(x, position=where(fm, x))
    bad = torch.zeros(1, HEADS, 4, dtype=torch.bool)
    bad[0, 1, 2] = True
    assert torch.equal(features.isnan().any(-1) | log_scale.isnan(), bad)


@pytest.mark.parametrize("name", MAP_NAMES)
def test_non_contiguous_empty_and_float64_inputs_of_a_float32_map(name):
    fm = made(name).float()
    x = points(DIM, 5, HEADS, 2).float().permute(3, 2, 1, 0)
    for a, b in zip(fm(x, position=where(fm, x)), fm(x.contiguous(), position=where(fm, x))):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    log_scale, features = fm(x[:, :, :0], position=where(fm, x[:, :, :0]))
    assert (log_scale.shape, features.shape) == ((2, HEADS, 0), (2, HEADS, 0, fm.feature_dim))
    assert fm(x.double(), position=where(fm, x))[1].dtype == torch.float64


@pytest.mark.parametrize("name", MAP_NAMES)
def test_weights_weigh_the_particles_of_any_map(name):
    weights = torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=torch.float64)
    first = made(name, heads=1, moved=False)
    width, dim = MAPS[name].width, DIM
    both = [
        feature_map(name, dim=dim, n_features=width * dim, omega=first.omega.detach(), weights=given, dtype=torch.float64)
        for given in (None, weights)
    ]
    x = points(2, 1, 5, DIM)
    expected = true_features(both[0], x).unflatten(-1, (width, dim)) * (dim * weights).sqrt()
    torch.testing.assert_close(true_features(both[1], x), expected.flatten(-2), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OWN_KEYS)
def test_keys_own_particles_start_equal_learn_apart_and_can_be_shared_or_given(name):
    fm, width = made(name, moved=False), MAPS[name].width
    assert torch.equal(fm.omega, fm.omega_k)
    assert fm.omega.data_ptr() != fm.omega_k.data_ptr()
    assert not any(p.requires_grad for p in (fm.freeze().omega, fm.omega_k))
    shared = made(name, moved=False, shared=True)
    assert shared.omega_k is None
    x = points(1, HEADS, 5, DIM)
    torch.testing.assert_close(true_features(fm, x), true_features(shared, x))
    given = [points(DIM, DIM, seed=seed) for seed in (1, 2)]
    of_keys = feature_map(name, dim=DIM, n_features=width * DIM, omega=given[0], omega_k=given[1], dtype=torch.float64)
    loaded = made(name, heads=1).load_omega(*given)
    for found in (of_keys, loaded):
        assert torch.equal(found.omega[0], given[0])
        assert torch.equal(found.omega_k[0], given[1])
    assert torch.equal(loaded.load_omega(given[0]).omega_k[0], given[0])
    with pytest.raises(ValueError, match="omega_k has no meaning for"):
        shared.load_omega(*given)


def test_published_readings_of_hedgehog():
    """All from z = W x: the paper's exponentials, the joint softmax of (2 z, -2 z), and one softmax for each sign."""
    w, x = points(1, DIM, DIM, seed=1), points(1, 1, 5, DIM)
    z = x @ w.mT
    maps = {name: made(name, heads=1, moved=False).load_omega(w) for name in OWN_KEYS[1:]}
    torch.testing.assert_close(true_features(maps["hedgehog"], x), torch.cat((z.exp(), (-z).exp()), -1))
    torch.testing.assert_close(true_features(maps["hedgehog-softmax"], x), torch.cat((z.softmax(-1), (-z).softmax(-1)), -1))
    joint = made("hedgehog-joint", heads=1, moved=False, temperature=0.5).load_omega(w)
    torch.testing.assert_close(true_features(joint, x), torch.cat((2 * z, -2 * z), -1).softmax(-1))
    biased = made("hedgehog", heads=1, moved=False, bias=True).load_omega(w)
    biased.bias.data += 0.5
    torch.testing.assert_close(true_features(biased, x), torch.cat(((z + 0.5).exp(), (-z - 0.5).exp()), -1))
    assert torch.equal(made("hedgehog", heads=1, moved=False).omega[0], torch.eye(DIM, dtype=torch.float64))
    rows = feature_map("hedgehog", dim=6, n_features=2 * 4, generator=torch.Generator().manual_seed(0)).omega.detach()[0]
    torch.testing.assert_close(rows @ rows.T, torch.eye(4), rtol=0, atol=1e-6)


def test_cosformer_kernel_is_positive_decays_with_distance_and_ends_at_its_horizon():
    fm = made("cosformer", horizon=16)
    x, y, position = points(2, HEADS, 16, DIM), points(2, HEADS, 16, DIM, seed=1), torch.arange(16)
    (a, phi), (b, psi) = fm(x, position=position), fm(y, role="key", position=position)
    found = (phi * a.exp()[..., None]) @ (psi * b.exp()[..., None]).mT
    angle = math.pi / 32 * (position[:, None] - position).double()
    torch.testing.assert_close(found, (x.relu() @ y.relu().mT) * angle.cos(), rtol=1e-12, atol=1e-13)
    assert (found >= 0).all()
    each = torch.stack((position, position.flip(0)))
    for row in range(2):
        torch.testing.assert_close(fm(x, position=each)[1][row], fm(x, position=each[row])[1][row], rtol=0, atol=0)
    torch.testing.assert_close(made("cosformer")(x, position=position.byte()), made("cosformer")(x, position=position), rtol=0, atol=0)
    for wrong, message in (
        (position + 1, r"position must be in 0 to 15 \(horizon\), got 1 to 16"),
        (position - 1, "got -1 to 14"),
        (position.double(), "position must be integers of shape"),
        (position > 0, "position must be integers of shape .* got torch.bool"),
        (position[:3], r"position must be integers of shape \(16,\) or \(2, 16\), got"),
        (None, "position must be the tokens' integer positions for 'cosformer', got None"),
    ):
        with pytest.raises(ValueError, match=message):
            fm(x, position=wrong)
    with pytest.raises(ValueError, match="position must be None for 'favor', got"):
        made("favor")(x, position=position)
    with pytest.raises(ValueError, match="horizon"):
        made("cosformer", horizon=0)


def test_rectified_maps_of_negative_inputs_are_zero_and_finite():
    x = -points(1, HEADS, 3, DIM).abs().requires_grad_()
    for role in ("query", "key"):
        features = true_features(made("cosformer"), x, role)
        assert features.eq(0).all()
        (gradient,) = torch.autograd.grad(features.sum(), x)
        assert gradient.eq(0).all()


def test_polaformer_separates_signs_and_is_homogeneous():
    fm, x, y = made("polaformer"), points(1, HEADS, 4, DIM), points(1, HEADS, 5, DIM, seed=1)
    power = 1 + 4 * fm.power.detach().sigmoid()[:, None]
    plus = [z.relu() ** power for z in (x, y)]
    minus = [(-z).relu() ** power for z in (x, y)]
    same = plus[0] @ plus[1].mT + minus[0] @ minus[1].mT
    opposite = plus[0] @ minus[1].mT + minus[0] @ plus[1].mT
    expected = same + fm.log_opposite.detach().exp()[:, None, None] * opposite
    torch.testing.assert_close(kernel(fm, x, y), expected, rtol=1e-12, atol=1e-13)
    fm.power.data.zero_()
    torch.testing.assert_close(kernel(fm, 2 * x, y), 8 * kernel(fm, x, y), rtol=1e-12, atol=1e-13)  # p = 3
    assert fm.power.shape == (HEADS, DIM)
    torch.testing.assert_close(
        made("polaformer", opposite=0.2, moved=False).log_opposite.exp().detach(), torch.full((HEADS,), 0.2).double()
    )


def test_identity_is_the_dot_product_and_linear_the_map_of_katharopoulos():
    x, y = points(2, HEADS, 4, DIM), points(2, HEADS, 5, DIM, seed=1)
    torch.testing.assert_close(kernel(made("identity"), x, y), x @ y.mT, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(true_features(made("linear"), x), torch.nn.functional.elu(x) + 1, rtol=1e-13, atol=1e-14)
    tiny = torch.full((1, HEADS, 1, DIM), -8.0, dtype=torch.bfloat16)
    torch.testing.assert_close(
        true_features(made("linear").bfloat16(), tiny), torch.full((1, HEADS, 1, DIM), math.exp(-8)), rtol=1e-6, atol=0
    )
    wide = feature_map("linear", dim=DIM, n_features=7, omega=points(7, DIM), dtype=torch.float64)
    torch.testing.assert_close(true_features(wide, x), torch.nn.functional.elu(x @ wide.omega.mT) + 1, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", TRIGONOMETRIC)
def test_constant_feature_makes_the_kernel_non_negative_for_every_omega(name):
    """1 + (1/M) sum cos w.(x - y) >= 0, since no cosine is below -1; the products of "phase" reach -2."""
    least = 2.0 if name == "phase" else 1.0
    safe = made(name, constant_feature=least)
    plain, short = made(name), made(name, constant_feature=0.9 * least)
    assert (safe.signed, safe.normalise) == (False, "sum")
    assert (plain.signed, short.signed, short.normalise) == (True, True, "rms")
    x = points(1, HEADS, 30, DIM)
    for seed, size in enumerate((0.1, 1.0, 10.0, 1e3)):
        omega = size * points(HEADS, *safe.omega.shape[1:], seed=seed)
        safe.load_omega(omega), plain.load_omega(omega)
        (a, phi), (b, psi) = safe(x), safe(x, role="key")
        assert (phi @ psi.mT).min() >= -1e-10 * (phi @ psi.mT).max()
        added = least * ((a[..., :, None] + b[..., None, :]).exp() * safe.omega.shape[1])  # relative to the rows' scales, which hold 1/M
        torch.testing.assert_close(kernel(safe, x, x) - kernel(plain, x, x), added, rtol=1e-9, atol=1e-9)
    assert kernel(plain, x, x).min() < 0  # negative control
    x = points(1, HEADS, 2, DIM)
    x[:, :, 1] = -x[:, :, 0]
    worst = torch.zeros_like(safe.omega)  # every product at its lowest: w.(x - y) = pi, or for "phase" w.x + b = 0 and w.y + b = pi
    worst[..., : 2 * DIM : 1] = 0
    unit = math.pi / 2 * x[0, :, 0] / x[0, :, 0].square().sum(-1, keepdim=True)
    for start in range(0, safe.omega.shape[-1] - DIM + 1, DIM):
        worst[..., start : start + DIM] = unit[:, None]
    if name == "phase":
        worst[..., -1] = -math.pi / 2
    for fm, sign in ((safe, 0), (short, -1)):
        fm.load_omega(worst)
        value = (fm(x)[1] @ fm(x, role="key")[1].mT)[..., 0, 1] / fm.omega.shape[1]
        torch.testing.assert_close(value, torch.full_like(value, 0.1 * least * sign), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fourier", {"constant_feature": -1.0, "n_features": 9}, "constant_feature"),
        ("fourier", {"constant_feature": 1.0}, "n_features must be a multiple of 2 and the constant one for 'fourier', got 8"),
        ("favor", {"constant_feature": 1.0}, "unknown options for 'favor': .'constant_feature'.; it takes"),
        ("rfa", {"tau": 1.0}, "unknown options for 'rfa'"),
        ("flexformer-nonstationary", {"tau": math.nan}, "tau must be finite"),
        ("flexformer-nonstationary", {"spread": 1.5}, r"spread must be in \[0, 1\], got 1.5"),
        ("optimal-positive", {"A": 0.125}, "A must be finite and below 1/8.*0.125"),
        ("optimal-positive", {"A": -0.1, "phi2": 2.0}, "give one of them, got A=-0.1 and phi2=2.0"),
        ("optimal-positive", {"phi2": -2.0}, "phi2 must be at least 0"),
        ("optimal-positive", {"A": [0.0, -1.0]}, r"A must have shape \(3,\)"),
        ("exponential", {"key_norm": math.inf}, "key_norm must be finite"),
        ("exponential", {"shared": 1}, "shared must be True or False"),
        ("hedgehog", {"bias": "yes"}, "bias must be True or False"),
        ("hedgehog", {"omega_k": points(3, DIM)}, r"omega_k must have shape \(3, 4, 4\)"),
        ("hedgehog", {"omega_k": points(DIM, DIM), "shared": True}, "omega_k has no meaning for 'hedgehog' without keys of its own"),
        ("favor", {"omega_k": points(8, DIM)}, "omega_k has no meaning for 'favor'"),
        ("hedgehog-joint", {"temperature": -1.0}, "temperature"),
        ("hedgehog", {"n_features": 7}, "n_features must be a multiple of 2"),
        ("polaformer", {"alpha": 0.0}, "alpha"),
        ("polaformer", {"opposite": -0.5}, "opposite"),
        ("identity", {"n_features": 5}, "n_features must be 4 for 'identity' with dim=4 when no omega is given, got 5"),
        ("cosformer", {"n_features": 4}, "n_features must be 8 for 'cosformer' with dim=4"),
        ("cos2", {"learn_offset": 1}, "learn_offset must be True or False"),
        ("sigmoid2", {"floor": 0.1}, "unknown options for 'sigmoid2'"),
    ],
)
def test_bad_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        feature_map(name, **{"dim": DIM, "n_features": 8, "heads": HEADS, **options})


@pytest.mark.parametrize("name", MAP_NAMES)
def test_inputs_of_another_dim_are_refused(name):
    fm, x = made(name), points(1, HEADS, 2, DIM + 1)
    with pytest.raises(ValueError, match="must have"):
        fm(x, position=where(fm, x))


COMPILED = """
import sys
import torch
from attention.feature_map import MAPS, feature_map

for name in sys.argv[1:]:
    torch._dynamo.reset()
    fm = feature_map(name, dim=4, n_features=MAPS[name].width * 4, heads=3, dtype=torch.float64).release()
    compiled = torch.compile(fm, fullgraph=True, backend="aot_eager", dynamic=True)
    for time in (64, 100):
        x = torch.randn(2, 3, time, 4, dtype=torch.float64, requires_grad=True)
        position = 3 * torch.arange(time) if fm.positional else None
        results = []
        for each in (fm, compiled):
            log_scale, features = each(x, position=position)
            product = features * (log_scale - log_scale.detach().amax()).exp()[..., None]
            results.append((log_scale, features, *torch.autograd.grad(product.sum(), (x, fm.omega))))
        for a, b in zip(*results):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)

if "cosformer" in sys.argv:
    try:
        compiled(x, position=position + 4096)
    except RuntimeError as error:
        assert "position must be in 0 to 4095 (horizon)" in str(error)
    else:
        raise AssertionError("positions past the horizon were taken")
"""


@pytest.mark.slow  # attention as a whole is compiled by a fast test
def test_every_map_compiles_whole_for_any_length():
    """In a process without the shape checks of the tests, which no compiler sees through."""
    alike = ("porf-softplus", "elu+1", "rfa", "flexformer", "linear")  # the code of others
    names = sorted(set(MAP_NAMES) - {*alike}, key="cosformer".__eq__)  # that one last
    done = subprocess.run([sys.executable, "-c", COMPILED, *names], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
