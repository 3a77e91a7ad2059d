from __future__ import annotations

import itertools
import math
import subprocess
import sys

import pytest
import torch

from attention import State, feature_map, kernel_attention, running_sums
from attention.naive import naive_attention
from tests.attention_inputs import DIM, DOUBLE, HEADS, VALUE, assert_same, gradients, inputs, made, padding

NAMES = ["favor", "softmaxfeat", "fourier"]


# The definition


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 500, 600])
@pytest.mark.parametrize("is_causal", [False, True])
def test_equals_the_quadratic_form_with_all_gradients(name, n, is_causal):
    fm, x = made(name), inputs(n)
    for mask in (None, padding(n)):
        fast = kernel_attention(*x, fm, is_causal=is_causal, key_mask=mask)
        assert_same(fast, naive_attention(*x, fm, is_causal=is_causal, key_mask=mask), [*x, fm.omega])


@pytest.mark.parametrize("normalise", ["sum", "rms", "count", None])
@pytest.mark.parametrize("name", ["favor", "softplus", "fourier"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_every_normaliser(name, normalise, is_causal):
    fm, x, mask = made(name, n_features=32), inputs(70), padding(70)
    options = {"is_causal": is_causal, "key_mask": mask, "normalise": normalise}
    with torch.no_grad():
        x[0].mul_(0.3), x[1].mul_(0.3)  # keeps the sums of the signed map away from 0
    assert_same(kernel_attention(*x, fm, **options), naive_attention(*x, fm, **options), [*x, fm.omega])


def test_naive_is_softmax_like_when_features_are_exact():
    """A polynomial kernel written by hand: phi(x) = softplus features give K = phi.phi; compare with explicit loops."""
    fm, (q, k, v) = made("softplus", heads=1), inputs(3, 4, batch=1, heads=1)
    root = DIM**-0.25
    phi = [(lambda s: s[0].exp()[..., None] * s[1])(fm(x * root, role="key"))[0, 0] for x in (q, k)]
    for i in range(3):
        weights = torch.stack([phi[0][i] @ phi[1][j] for j in range(4)])
        torch.testing.assert_close(naive_attention(q, k, v, fm)[0, 0, i], (weights / weights.sum()) @ v[0, 0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 8), (3, 70), (70, 3), (5, 1100), (1100, 2)])
def test_cross_attention(n_queries, n_keys):
    fm, x, mask = made(), inputs(n_queries, n_keys), padding(n_keys)
    assert_same(kernel_attention(*x, fm, key_mask=mask), naive_attention(*x, fm, key_mask=mask), [*x, fm.omega])


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 8), (3, 70), (64, 65), (600, 650)])
def test_causal_is_aligned_bottom_right(n_queries, n_keys):
    fm, x, mask = made("softplus"), inputs(n_queries, n_keys), padding(n_keys)
    for key_mask, normalise in itertools.product((None, mask), ("sum", "count")):
        options = {"is_causal": True, "key_mask": key_mask, "normalise": normalise}
        assert_same(kernel_attention(*x, fm, **options), naive_attention(*x, fm, **options), [*x, fm.omega])
    seen = torch.autograd.grad(kernel_attention(*x, fm, is_causal=True)[:, :, 0].sum(), x[2])[0].abs().sum((0, 1, 3)) > 0
    assert seen.tolist() == [j <= n_keys - n_queries for j in range(n_keys)]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("n", [1025])
def test_recomputed_features_give_the_same_gradients(monkeypatch, n, is_causal):
    fm, x = made("porf-softplus"), inputs(n, batch=1)
    mask = padding(n, batch=1)
    stored = kernel_attention(*x, fm, is_causal=is_causal, key_mask=mask)
    monkeypatch.setattr(running_sums, "_KEPT", 0)
    recomputed = kernel_attention(*x, fm, is_causal=is_causal, key_mask=mask)
    assert torch.equal(stored, recomputed)
    assert_same(recomputed, naive_attention(*x, fm, is_causal=is_causal, key_mask=mask), [*x, fm.omega])
    for a, b in zip(gradients(stored, [*x, fm.omega]), gradients(recomputed, [*x, fm.omega])):
        assert torch.equal(a, b)


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 128, 1000])
def test_chunk_size_changes_only_rounding(chunk_size):
    fm, x = made(), inputs(150)
    assert_same(kernel_attention(*x, fm, is_causal=True, chunk_size=chunk_size), naive_attention(*x, fm, is_causal=True), [*x, fm.omega])


@pytest.mark.parametrize("is_causal", [False, True])
def test_scale_defaults_to_the_root_of_the_dimension_and_multiplies_the_dot_product(is_causal):
    fm, (q, k, v) = made(), inputs(20)
    default = kernel_attention(q, k, v, fm, is_causal=is_causal)
    assert torch.equal(default, kernel_attention(q, k, v, fm, is_causal=is_causal, scale=DIM**-0.5))
    moved = kernel_attention(4 * q, 4 * k, v, fm, is_causal=is_causal, scale=DIM**-0.5 / 16)
    torch.testing.assert_close(moved, default, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(kernel_attention(q, k, v, fm, is_causal=is_causal, scale=1.0), default)


def test_many_features_approach_softmax_attention():
    """FAVOR+ is unbiased for exp(scale q.k): with 40,000 features the output is softmax attention's to about a per cent."""
    q, k, v = (0.5 * x.detach() for x in inputs(12, heads=1))
    fm = made("favor", n_features=40_000, heads=1)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    error = (kernel_attention(q, k, v, fm) - exact).norm() / exact.norm()
    few = (kernel_attention(q, k, v, made("favor", n_features=16, heads=1)) - exact).norm() / exact.norm()
    assert error < 0.02
    assert few > 2 * error  # control: the bar can tell


# Masks and padding


@pytest.mark.parametrize("name", ["favor", "softplus", "fourier", "elu"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_padding_changes_nothing_whatever_it_holds(name, is_causal, left, batch):
    fm, x = made(name), inputs(10, batch=batch)
    short = kernel_attention(*x, fm, is_causal=is_causal)
    wanted = [*x, fm.omega]
    expected = gradients(short, wanted)
    for filling in (0.0, 3.0, math.nan, math.inf, -math.inf):
        pads = [torch.full((batch, HEADS, 6, t.shape[-1]), filling, dtype=DOUBLE).requires_grad_() for t in x]
        padded = [torch.cat((p, t) if left else (t, p), 2) for p, t in zip(pads, x)]
        mask = torch.arange(16) >= 6 if left else torch.arange(16) < 10
        out = kernel_attention(*padded, fm, is_causal=is_causal, key_mask=mask.expand(batch, 16))[:, :, mask]
        torch.testing.assert_close(out, short, rtol=1e-10, atol=1e-12)
        got = gradients(out, [*wanted, *pads])
        for a, b in zip(got[:4], expected):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
        assert all(g.eq(0).all() for g in got[4:])


def test_a_query_that_is_not_finite_is_seen_only_in_its_own_row():
    fm, (q, k, v) = made(), inputs(6)
    with torch.no_grad():
        q[0, :, 2] = math.nan
    out = kernel_attention(q, k, v, fm, key_mask=torch.ones(2, 6, dtype=torch.bool))
    assert out[0, :, 2].isnan().all()
    assert out.isnan().sum() == HEADS * VALUE


# Causality


def test_early_rows_survive_a_later_key_of_huge_scale_in_their_chunk():
    """Log scales that rise by 400 within a chunk: no row underflows, all equal the definition."""
    fm, (q, k, v) = made("favor", heads=1, n_features=1, dim=1, omega=torch.ones(1, 1), dtype=torch.float32), inputs(20, heads=1, dim=1)
    k = torch.linspace(-20, 1, 20, dtype=DOUBLE).expand(2, 1, 20)[..., None].detach().requires_grad_()
    x = [t.float() for t in (q, k, v)]
    out = kernel_attention(*x, fm, is_causal=True, scale=2.0)
    expected = naive_attention(q, k, v, fm.double(), is_causal=True, scale=2.0)
    torch.testing.assert_close(out.double(), expected, rtol=2e-5, atol=2e-5)
    assert out.abs().amin(-1).min() > 0


# State


@pytest.mark.parametrize("name", ["favor", "fourier"])
@pytest.mark.parametrize("normalise", ["default", "count", None])
def test_every_split_gives_the_same_outputs_state_and_gradients(name, normalise):
    fm, x, mask = made(name), inputs(5), padding(5)
    options = {"is_causal": True, "normalise": normalise, "return_state": True, "chunk_size": 2}
    whole, final = kernel_attention(*x, fm, key_mask=mask, **options)
    expected = gradients(whole, [*x, fm.omega])
    for cuts in itertools.product([False, True], repeat=4):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [5]
        state, rows = None, []
        for start, end in zip([0, *ends], ends):
            part = [t[:, :, start:end] for t in x]
            out, state = kernel_attention(*part, fm, key_mask=mask[:, start:end], state=state, **options)
            rows.append(out)
        joined = torch.cat(rows, 2)
        torch.testing.assert_close(joined, whole, rtol=1e-9, atol=1e-11)
        for a, b in zip(state, final):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
        for a, b in zip(gradients(joined, [*x, fm.omega]), expected):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("splits", [[7, 1, 1, 1, 1, 1], [5, 4, 1, 2], [600, 1, 50]])
def test_prefill_and_decoding_in_float32(splits):
    fm, x = made("favor", n_features=32, dtype=torch.float32), inputs(sum(splits), dtype=torch.float32)
    whole = kernel_attention(*x, fm, is_causal=True)
    state, rows = None, []
    for parts in zip(*(t.split(splits, 2) for t in x)):
        out, state = kernel_attention(*parts, fm, is_causal=True, state=state, return_state=True)
        rows.append(out)
    torch.testing.assert_close(torch.cat(rows, 2), whole, rtol=1e-5, atol=1e-5)


def test_bidirectional_state_adds_keys():
    fm, (q, k, v), mask = made(), inputs(9), padding(9)
    _, state = kernel_attention(q, k[:, :, :4], v[:, :, :4], fm, key_mask=mask[:, :4], return_state=True)
    out = kernel_attention(q, k[:, :, 4:], v[:, :, 4:], fm, key_mask=mask[:, 4:], state=state)
    assert_same(out, naive_attention(q, k, v, fm, key_mask=mask), [q, k, v, fm.omega])
    assert torch.equal(state.count, mask[:, :4].sum(-1))


def test_state_follows_the_beams_and_detaches():
    fm, x, step = made(), inputs(6), inputs(1, seed=4)
    _, state = kernel_attention(*x, fm, is_causal=True, return_state=True)
    order = torch.tensor([1, 0])
    out = kernel_attention(*step, fm, is_causal=True, state=state)
    swapped = kernel_attention(*(t[order] for t in step), fm, is_causal=True, state=state.index_select(order))
    torch.testing.assert_close(swapped, out[order], rtol=1e-13, atol=1e-15)
    assert state.context.requires_grad
    assert not any(field.requires_grad for field in state.detach())
    assert isinstance(state.index_select(torch.tensor([0, 0, 1])), State)
    assert state.index_select(torch.tensor([0, 0, 1])).context.shape[0] == 3


def test_state_holds_the_true_sums():
    fm, (q, k, v) = made("softplus"), inputs(8)
    _, state = kernel_attention(q, k, v, fm, return_state=True)
    log_scale, features = fm(k * DIM**-0.25, role="key")
    phi = log_scale.exp()[..., None] * features
    size = state.log_scale.exp()
    torch.testing.assert_close(size[..., None, None] * state.context, phi.mT @ v, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(size[..., None] * state.key_sum, phi.sum(-2), rtol=1e-12, atol=1e-14)


def test_a_state_of_another_shape_is_refused():
    _, state = kernel_attention(*inputs(4), made(n_features=8), return_state=True)
    with pytest.raises(ValueError, match="state must have context of shape"):
        kernel_attention(*inputs(4), made(), state=state)
    _, state = kernel_attention(*inputs(4), made(), return_state=True)
    for name in State._fields:
        with pytest.raises(ValueError, match=f"state must have {name} of shape"):
            kernel_attention(*inputs(4), made(), state=state._replace(**{name: getattr(state, name)[:1]}))
        with pytest.raises(ValueError, match=f"state must have {name} of type"):
            kernel_attention(*inputs(4), made(), state=state._replace(**{name: getattr(state, name).to(torch.complex64)}))


# Identities


@pytest.mark.parametrize("is_causal", [False, True])
def test_rms_output_has_unit_size(is_causal):
    out = kernel_attention(*inputs(70), made("fourier"), is_causal=is_causal)
    torch.testing.assert_close(out.square().mean(-1), torch.ones(2, HEADS, 70, dtype=DOUBLE), rtol=1e-12, atol=0)


def test_heads_may_share_one_set_of_particles():
    shared, x = made(heads=1), inputs(20)
    each = made(heads=HEADS, omega=shared.omega.detach()[0])
    torch.testing.assert_close(kernel_attention(*x, shared), kernel_attention(*x, each), rtol=1e-13, atol=1e-15)


# Numbers


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 2e-5), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_types(name, dtype, rtol, is_causal):
    """The output has the input's type and the error of its rounding; sums are float32 at least."""
    fm, x = made(name, dtype=torch.float32), inputs(130, dtype=dtype)
    options = {"is_causal": is_causal, "normalise": "sum" if not made(name).signed else "count"}
    out, state = kernel_attention(*x, fm, return_state=True, **options)
    assert out.dtype == dtype
    assert state.context.dtype == torch.float32
    grads = gradients(out, [*x, fm.omega])
    assert [g.dtype for g in grads] == [dtype, dtype, dtype, torch.float32]
    exact = [t.detach().double().requires_grad_() for t in x]
    double = made(name)
    slow = naive_attention(*exact, double, **options)
    for a, b in zip([out, *grads], [slow, *gradients(slow, [*exact, double.omega])]):
        assert (a.double() - b).norm() < rtol * b.norm()


@pytest.mark.parametrize("is_causal", [False, True])
def test_autocast_keeps_float32_sums(is_causal):
    projection, fm = torch.nn.Linear(DIM, 3 * DIM), made(dtype=torch.float32)
    x = torch.randn(2, HEADS, 30, DIM, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        out, state = kernel_attention(*projection(x).chunk(3, -1), fm, is_causal=is_causal, return_state=True)
        out.float().square().sum().backward()
    assert out.dtype == torch.bfloat16
    assert state.context.dtype == state.key_sum.dtype == state.log_scale.dtype == torch.float32
    exact = kernel_attention(*projection(x).chunk(3, -1), fm, is_causal=is_causal)
    assert (out - exact).norm() < 0.02 * exact.norm()
    assert all(torch.isfinite(p.grad).all() for p in (*projection.parameters(), fm.omega))


def _log_features(name: str, omega: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    z = x @ omega.mT
    if name == "favor":
        return z - x.square().sum(-1, keepdim=True) / 2
    if name == "softmaxfeat":
        return z.log_softmax(-1)
    if name == "softplus":
        tail = z < -30
        z = torch.where(tail, z, z.masked_fill(tail, 0).exp().log1p().log().where(z < 30, z.clamp(min=1).log()))
    else:
        z = torch.where(z > 0, z.clamp(min=0).log1p(), z)
    return z.log_softmax(-1)


@pytest.mark.parametrize("name", ["favor", "softplus", "softmaxfeat", "elu"])
@pytest.mark.parametrize("size", [1e-3, 1e-2, 0.1, 1.0, 4.0, 10.0, 30.0, 100.0])
@pytest.mark.parametrize("is_causal", [False, True])
def test_sizes_of_inputs_against_logarithms(name, size, is_causal):
    """float32 against a float64 reference that never leaves the logarithm: every row is right, or 0 after underflow."""
    fm = made(name, dim=32, n_features=64, dtype=torch.float32)
    q, k, v = (t.detach() for t in inputs(60, dim=32, dtype=torch.float32))
    q, k = size * q, size * k
    out = kernel_attention(q, k, v, fm, is_causal=is_causal)
    log_q, log_k = (_log_features(name, fm.omega.detach().double(), t.double() * 32**-0.25) for t in (q, k))
    scores = torch.logsumexp(log_q[:, :, :, None] + log_k[:, :, None], -1)
    if is_causal:
        scores = scores.masked_fill(torch.ones(60, 60).triu(1) > 0, -math.inf)
    expected = scores.softmax(-1) @ v.double()
    lost = out.eq(0).all(-1)
    assert not lost.any() or (size > 10 and name in ("favor", "softmaxfeat"))
    error = (out - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert error[~lost].max() < 2e-4 if (~lost).any() else lost.all()
    assert out.std(2).min() > 0 or size > 10


def test_underflow_is_zero_with_finite_gradients():
    """q and k that no feature has in common: exp(-200) of a kernel. float32 returns 0 and a gradient of 0; float64 the exact answer."""
    omega = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    q, k = torch.tensor([[200.0, 0.0]]).expand(1, 1, 1, 2), torch.tensor([[0.0, 200.0]]).expand(1, 1, 3, 2)
    v = torch.arange(3.0).expand(1, 1, 3)[..., None].contiguous()
    for dtype, expected in ((torch.float32, 0.0), (DOUBLE, 1.0)):
        fm = feature_map("favor", dim=2, n_features=2, omega=omega, dtype=dtype)
        x = [t.to(dtype).clone().requires_grad_() for t in (q, k, v)]
        for is_causal in (False, True):
            out = kernel_attention(*x, fm, scale=1.0, is_causal=is_causal)
            torch.testing.assert_close(out, torch.full_like(out, expected))
            grads = torch.autograd.grad(out.sum(), [*x, fm.omega])
            assert all(torch.isfinite(g).all() for g in grads)
            assert dtype == DOUBLE or all(g.eq(0).all() for g in grads)


# Dropout


@pytest.mark.parametrize("how", [{"form": "linear"}, {"form": "quadratic"}, {"form": "linear", "window": 3}])
@pytest.mark.parametrize("is_causal", [False, True])
def test_dropout_drops_whole_keys_of_a_head_from_the_numerator(how, is_causal):
    """The same keys in every form: output and gradients are those of values that were dropped by hand."""
    fm, (q, k, v) = made(), inputs(40)
    generator = torch.Generator().manual_seed(5)
    kept = torch.rand(v.shape[:3], generator=torch.Generator().manual_seed(5)) >= 0.3
    out = kernel_attention(q, k, v, fm, is_causal=is_causal, dropout=0.3, generator=generator, **how)
    by_hand = naive_attention(q, k, v * kept[..., None] / 0.7, fm, is_causal=is_causal, window=how.get("window"))
    assert_same(out, by_hand, [q, k, v, fm.omega])


def test_dropout_keeps_the_mean():
    """4000 draws, each entry of the batch its own: each of 42 means is off by over 5 standard errors with probability 6e-7."""
    fm, x = made("softplus", heads=1), [t.detach() for t in inputs(6, batch=1, heads=1)]
    draws = kernel_attention(*(t.expand(4000, -1, -1, -1) for t in x), fm, dropout=0.4, generator=torch.Generator().manual_seed(0))
    assert ((draws.mean(0) - kernel_attention(*x, fm)[0]).abs() < 5 * draws.std(0) / math.sqrt(4000)).all()


def test_dropout_is_off_by_default_and_draws_from_its_generator():
    fm, x, generator = made(), inputs(9), torch.Generator().manual_seed(0)
    assert torch.equal(kernel_attention(*x, fm), kernel_attention(*x, fm))
    before = generator.get_state()
    kernel_attention(*x, fm, dropout=0.0, generator=generator)
    assert torch.equal(generator.get_state(), before)
    first = kernel_attention(*x, fm, dropout=0.5, generator=generator)
    assert not torch.equal(first, kernel_attention(*x, fm, dropout=0.5, generator=generator))
    assert torch.equal(first, kernel_attention(*x, fm, dropout=0.5, generator=torch.Generator().manual_seed(0)))


# Forms and report


@pytest.mark.parametrize("name", ["favor", "fourier"])
@pytest.mark.parametrize("normalise", ["default", "count", None])
def test_states_of_one_form_go_on_in_the_other(name, normalise):
    fm, x, mask = made(name), inputs(30), padding(30)
    options = {"is_causal": True, "normalise": normalise}
    whole = naive_attention(*x, fm, key_mask=mask, **options)
    for forms in (("linear", "quadratic"), ("quadratic", "linear"), ("auto", "quadratic")):
        state, rows = None, []
        for form, part, m in zip(forms, zip(*(t.split(15, 2) for t in x)), mask.split(15, 1)):
            out, state = kernel_attention(*part, fm, key_mask=m, state=state, return_state=True, form=form, **options)
            rows.append(out)
        assert torch.equal(state.count, mask.sum(-1))
        assert_same(torch.cat(rows, 2), whole, [*x, fm.omega])


@pytest.mark.parametrize("is_causal", [False, True])
def test_short_inputs_take_the_quadratic_form_and_long_ones_the_linear(is_causal):
    fm, matrices = made("softplus", n_features=32, heads=1, dim=16), {}
    for n in (8, 400):
        x = [t.detach() for t in inputs(n, batch=1, heads=1, dim=16)]
        forms = {form: kernel_attention(*x, fm, is_causal=is_causal, form=form, chunk_size=3) for form in ("auto", "linear", "quadratic")}
        matrices[n] = [form for form in ("linear", "quadratic") if torch.equal(forms[form], forms["auto"])]
    assert matrices == {8: ["quadratic"], 400: ["linear"]}


def test_the_report_tells_of_divisors_and_leaves_the_output_alone():
    fm, x, report = made("fourier", heads=1, dim=2), inputs(50, heads=1, dim=2), {}
    out = kernel_attention(*x, fm, normalise="sum", report=report)
    torch.testing.assert_close(out, kernel_attention(*x, fm, normalise="sum"), rtol=1e-9, atol=1e-11)
    (_, q), (log_k, k) = (fm(t * 2**-0.25, role=role) for t, role in zip(x, ("query", "key")))
    sums = (q @ k.mT * log_k.exp()[..., None, :]).sum(-1)
    assert torch.equal(report["denominator"] > 0, sums > 0)
    assert report["nonpositive"] == (sums <= 0).double().mean()
    assert not report["denominator"].requires_grad
    none = torch.zeros(2, 50, dtype=torch.bool)
    none[1, 3] = True
    kernel_attention(*x, made("softplus", heads=1, dim=2), key_mask=none, report=report)
    assert report["nonpositive"] == 0  # rows without keys are not counted


# Use


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.ones(2, 3, 5)}, "q must be float"),
        ({"q": torch.ones(2, 3, 4, 5, dtype=torch.int64)}, "q must be float.*int64"),
        ({"k": torch.ones(2, 0, 4, 5), "v": torch.ones(2, 0, 4, 5)}, "k must be float"),
        ({"k": torch.ones(2, 3, 4, 6)}, "k must have q's batch and dim"),
        ({"k": torch.ones(1, 3, 4, 5)}, "k must have q's batch"),
        ({"v": torch.ones(2, 3, 5, 5)}, "v must have k's batch, head and time"),
        ({"q": torch.ones(2, 3, 6, 5), "is_causal": True}, "a causal q must not be longer than k, got 6 queries and 4 keys"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"scale": math.nan}, "scale"),
        ({"normalise": "l2"}, "normalise must be one of .* got 'l2'"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"feature_map": made(dim=6)}, "omega must have"),
        ({"feature_map": "softplus"}, "feature_map must be a FeatureMap, got 'softplus'"),
        ({"q": torch.ones(2, 3, 4, 5).numpy()}, "q must be float.*got NumPy float32"),
        ({"q": torch.ones(2, 3, 4, 5, dtype=torch.complex64)}, "q must be float.*complex64"),
        ({"is_causal": "no"}, "is_causal must be True or False, got 'no'"),
        ({"return_state": 1}, "return_state must be True or False, got 1"),
        ({"key_mask": [[True] * 4] * 2}, "key_mask must be bool.*got a list"),
        ({"state": (1, 2)}, "state must be a State or None, got a tuple"),
        ({"feature_map": made(heads=2)}, "feature_map must have particles for 1, 3 .* heads, got 2"),
        ({"form": "cubic"}, "form must be one of .* got 'cubic'"),
        ({"dropout": 1.0}, "dropout must be in .* got 1.0"),
        ({"generator": 3}, "generator must be a torch.Generator or None, got 3"),
        ({"k": torch.ones(2, 2, 4, 5), "v": torch.ones(2, 2, 4, 5)}, "heads that divide q's"),
        ({"window": 0}, "window"),
        ({"window": 2, "feature_map": made("fourier")}, "window needs a positive feature_map"),
        ({"window": 2, "normalise": "count"}, "window needs .* normalise='sum'"),
        ({"window": 2, "q": torch.ones(2, 3, 3, 5)}, "window of a bidirectional call needs as many queries as keys, got 3 and 4"),
        ({"window": 2, "return_state": True}, "window of a bidirectional call has no state"),
        ({"report": {}, "normalise": "rms"}, "report is of the divisors of normalise='sum', got normalise='rms'"),
        ({"report": []}, r"report must be a dict or None, got \[\]"),
        ({"feature_map": torch.nn.Linear(5, 5)}, "feature_map must be a FeatureMap, got Linear"),
        ({"cu_seqlens": torch.tensor([0, 4])}, "cu_seqlens needs one batch entry"),
        ({"cu_seqlens": [0, 4]}, "cu_seqlens must be offsets.*got a list"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    arguments = {name: torch.ones(2, 3, 4, 5) for name in ("q", "k", "v")} | {"feature_map": made()} | changes
    with pytest.raises(ValueError, match=message):
        kernel_attention(**arguments)


COMPILED = """
import torch
from attention import feature_map, kernel_attention

fm = feature_map("softplus", dim=5, n_features=6, heads=3, dtype=torch.float64)
eager = lambda *x: kernel_attention(*x, fm, is_causal=True)
attend = torch.compile(eager, fullgraph=True, backend="eager", dynamic=True)
for n in (64, 100):
    x = [torch.randn(2, 3, n, 5, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    pair = [attend(*x), eager(*x)]
    grads = [torch.autograd.grad(out.square().sum(), [*x, fm.omega]) for out in pair]
    for a, b in zip([pair[0], *grads[0]], [pair[1], *grads[1]]):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
"""


def test_is_one_graph_to_torch_compile_and_imports_silently():
    """In a process of its own: the shape checks that run in these tests would break the graph."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
