"""Faults that users of linear attention have met, each as a property that every map and every form must have.

The forms: running sums, the matrix of scores, and softmax weights in a window with running sums beyond.
"""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch

from attention import kernel_attention
from attention.naive import naive_attention
from tests.attention_inputs import (
    DIM,
    DOUBLE,
    FAMILIES,
    HEADS,
    NAMES,
    POSITIVE,
    SIGNED,
    assert_same,
    gradients,
    inputs,
    made,
    padding,
    relative,
)

FORMS = {"linear": {"form": "linear"}, "quadratic": {"form": "quadratic"}, "window": {"form": "linear", "window": 3}}
EVERY = [(name, form) for name in NAMES for form in FORMS if name in POSITIVE or form != "window"]
every_map_and_form = pytest.mark.parametrize(("name", "form"), EVERY)
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])


def attend(x, fm, form, **options):
    return kernel_attention(*x, fm, **FORMS[form], **{"chunk_size": 8, **options})


def defined(x, fm, form, **options):
    return naive_attention(*x, fm, window=FORMS[form].get("window"), **options)


def parameters(fm) -> list[torch.Tensor]:
    return list(fm.parameters())


# The definition


@every_map_and_form
@causal_or_not
def test_equals_the_definition_with_all_gradients(name, form, is_causal):
    fm, x = made(name), inputs(21)
    for mask in (None, padding(21)) if form == "linear" else (padding(21),):
        options = {"is_causal": is_causal, "key_mask": mask}
        assert_same(attend(x, fm, form, **options), defined(x, fm, form, **options), [*x, *parameters(fm)])


@pytest.mark.parametrize(("name", "form", "is_causal"), [(*case, True) for case in EVERY] + [(name, "linear", False) for name in NAMES])
def test_gradcheck(name, form, is_causal):
    """Along one random direction of all inputs and parameters; the last chunk is not full."""
    fm, (q, k, v), mask = made(name, n_features=4, heads=1, dim=2), inputs(5, batch=1, heads=1, dim=2), padding(5, batch=1)
    leaves = (q, k, v[..., :2].detach().requires_grad_(), *parameters(fm))

    def moved(q, k, v, *_):  # gradcheck moves the parameters themselves
        return attend((q, k, v), fm, form, is_causal=is_causal, key_mask=mask, chunk_size=2)

    assert torch.autograd.gradcheck(moved, leaves, fast_mode=True)


@pytest.mark.parametrize("name", FAMILIES)
@causal_or_not
def test_second_derivatives_are_those_of_the_definition(name, is_causal):
    """Of the squared gradient with respect to q, by every input and parameter."""
    fm, x = made(name), inputs(11)

    def penalty(attention):
        out = attention(*x, fm, is_causal=is_causal)
        return torch.autograd.grad(out.pow(3).sum(), x[0], create_graph=True)[0].square().sum()

    for fast, slow in zip(*(torch.autograd.grad(penalty(f), x) for f in (kernel_attention, naive_attention)), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-8 * float(slow.abs().max()))


# Masks and padding


@every_map_and_form
@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_no_output_and_no_gradient_whatever_it_holds(name, form, left):
    """NaN, infinities and numbers in q, k and v, in front of causal and behind bidirectional sequences; also of one alone in its batch."""
    fm, batch = made(name), 1 if left else 2
    if fm.positional and left:
        pytest.skip("positions count the padding in front")
    x = inputs(10, batch=batch)
    filling = torch.tensor([math.nan, math.inf, -math.inf, 3.0, 0.0, math.nan], dtype=DOUBLE)[:, None]
    pads = [filling.expand(batch, HEADS, 6, t.shape[-1]).clone().requires_grad_() for t in x]
    padded = [torch.cat((p, t) if left else (t, p), 2) for p, t in zip(pads, x)]
    mask = torch.arange(16) >= 6 if left else torch.arange(16) < 10
    short = attend(x, fm, form, is_causal=left)
    out = attend(padded, fm, form, is_causal=left, key_mask=mask.expand(batch, 16))[:, :, mask]
    torch.testing.assert_close(out, short, rtol=1e-10, atol=1e-11)
    expected = gradients(short, [*x, *parameters(fm)])
    got = gradients(out, [*x, *parameters(fm), *pads])
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
    assert all(g.eq(0).all() for g in got[-3:])


@every_map_and_form
@causal_or_not
def test_rows_without_keys_are_zero_with_finite_gradients(name, form, is_causal):
    fm, x, mask = made(name), inputs(9), torch.ones(2, 9, dtype=torch.bool)
    mask[0], mask[1, :4] = False, False
    out = attend(x, fm, form, is_causal=is_causal, key_mask=mask)
    assert out[0].eq(0).all()
    assert out[1, :, :4].eq(0).all() == is_causal
    assert all(torch.isfinite(g).all() for g in gradients(out, [*x, *parameters(fm)]))


@causal_or_not
@pytest.mark.parametrize("form", FORMS)
def test_a_window_of_nothing_but_padding_is_finite(form, is_causal):
    fm, x = made("softplus"), inputs(64)
    short = [t[:, :, :10] for t in x]
    out = kernel_attention(*x, fm, is_causal=is_causal, window=16, key_mask=(torch.arange(64) < 10).expand(2, 64))
    assert torch.isfinite(out).all()
    assert_same(out[:, :, :10], naive_attention(*short, fm, is_causal=is_causal, window=16), [*x, *parameters(fm)])


@pytest.mark.parametrize("shape", [(2, HEADS, 9, 9), (2, 1, 9, 9), (9, 9), (9,)])
def test_a_mask_of_pairs_is_refused(shape):
    mask = torch.ones(shape, dtype=torch.bool)
    mask[..., 4:6] = False
    with pytest.raises(ValueError, match="linear attention cannot take a mask of single query-key pairs"):
        kernel_attention(*inputs(9), made(), key_mask=mask)


# Causality, state, lengths


@every_map_and_form
def test_later_keys_change_no_earlier_output_bitwise(name, form):
    """Noise four and a hundred times larger, of which a maximum over all keys would make every earlier row underflow."""
    fm, (q, k, v), later = made(name, dtype=torch.float32), inputs(40, dtype=torch.float32), (torch.arange(40) > 18)[:, None]
    before = attend((q, k, v), fm, form, is_causal=True)
    for size in (4.0, 100.0):
        _, noise_k, noise_v = (size * t.detach() for t in inputs(40, seed=9, dtype=torch.float32))
        after = attend((q, torch.where(later, noise_k, k), torch.where(later, noise_v, v)), fm, form, is_causal=True)
        assert torch.equal(before[:, :, :19], after[:, :, :19])
        assert not torch.equal(before[:, :, 19:], after[:, :, 19:])


@pytest.mark.parametrize(("name", "form"), [case for case in EVERY if case[0] in POSITIVE])
@causal_or_not
def test_ones_stay_ones(name, form, is_causal):
    """Heads and time have different sizes, so that a sum over the wrong axis shows."""
    for n in (1, 5, 21):
        q, k, v = inputs(n)
        if name == "cosformer":  # it knows nothing of what is negative
            q, k = q.abs(), k.abs()
        out = attend((q, k, torch.ones_like(v)), made(name), form, is_causal=is_causal, key_mask=padding(n))
        torch.testing.assert_close(out, torch.ones_like(out), rtol=1e-12, atol=0)


@every_map_and_form
def test_a_prefix_of_a_long_run_is_the_short_run(name, form):
    fm, x = made(name), inputs(20)
    whole = attend(x, fm, form, is_causal=True)
    for t in (1, 2, 7, 8, 9, 19):
        torch.testing.assert_close(attend([y[:, :, :t] for y in x], fm, form, is_causal=True), whole[:, :, :t], rtol=1e-9, atol=1e-10)


@every_map_and_form
def test_a_run_may_be_split_anywhere(name, form):
    """Prefill and single steps, several tokens at once on a state, a call without tokens."""
    fm, x, mask = made(name), inputs(12), padding(12)
    options = {"is_causal": True, "return_state": True}
    whole, final = attend(x, fm, form, key_mask=mask, **options)
    for splits in ([7, 1, 1, 1, 1, 1], [5, 4, 1, 2], [1, 0, 3, 8]):
        state, rows = None, []
        for q, k, v, m in zip(*(t.split(splits, 2) for t in x), mask.split(splits, 1)):
            out, state = attend((q, k, v), fm, form, key_mask=m, state=state, **options)
            rows.append(out)
        torch.testing.assert_close(torch.cat(rows, 2), whole, rtol=1e-8, atol=1e-10)
        assert state.position.tolist() == [12, 12]
        for a, b in zip(_tensors(state), _tensors(final), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def _tensors(state) -> list[torch.Tensor]:
    return list(itertools.chain(*([field] if isinstance(field, torch.Tensor) else _tensors(field) for field in state)))


@every_map_and_form
def test_states_follow_the_beams(name, form):
    fm, x, step, order = made(name), inputs(6), inputs(1, seed=4), torch.tensor([1, 0])
    _, state = attend(x, fm, form, is_causal=True, return_state=True)
    out = attend(step, fm, form, is_causal=True, state=state)
    swapped = attend([t[order] for t in step], fm, form, is_causal=True, state=state.index_select(order))
    torch.testing.assert_close(swapped, out[order], rtol=1e-12, atol=1e-13)
    assert not torch.allclose(out[order], out)
    assert not any(t.requires_grad for t in _tensors(state.detach()))


@every_map_and_form
def test_a_new_state_forgets_the_old_run(name, form):
    """Starting anew in the middle is two runs: nothing of the first is left over in the second."""
    fm, x = made(name), inputs(12, batch=1)
    packed = attend(x, fm, form, is_causal=True, cu_seqlens=torch.tensor([0, 5, 12]))
    for start, end in ((0, 5), (5, 12)):
        alone = attend([t[:, :, start:end] for t in x], fm, form, is_causal=True)
        torch.testing.assert_close(packed[:, :, start:end], alone, rtol=1e-9, atol=1e-10)


@every_map_and_form
def test_one_query_on_many_keys_sees_them_all(name, form):
    fm, (q, k, v) = made(name), inputs(1, 8)
    q, k = (0.1 * t.detach() for t in (q, k))
    out = attend((q, k, v), fm, form, is_causal=True)
    assert torch.autograd.grad(out.square().sum(), v)[0].abs().sum((0, 1, 3)).gt(0).all()
    torch.testing.assert_close(out, defined((q, k, v), fm, form, is_causal=True), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("form", ["linear", "window"])
@causal_or_not
def test_every_length_fits_every_chunk(form, is_causal):
    fm = made("softplus")
    for n in (1, 2, 63, 64, 65, 100):
        x = inputs(n, batch=1)
        fast = attend(x, fm, form, chunk_size=64, is_causal=is_causal)
        assert_same(fast, defined(x, fm, form, is_causal=is_causal), [*x, *parameters(fm)])


# Batch, heads, strides


@every_map_and_form
@causal_or_not
def test_sequences_of_a_batch_do_not_mix(name, form, is_causal):
    fm, x, mask = made(name, dtype=torch.float32), inputs(16, dtype=torch.float32), padding(16)
    before = attend(x, fm, form, is_causal=is_causal, key_mask=mask)
    edited = [torch.stack((t[0], 5 * t[1] + 1)) for t in x]
    after = attend(edited, fm, form, is_causal=is_causal, key_mask=mask)
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1])


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_keys_does_not_matter(name):
    if made(name).positional:
        pytest.skip("its keys know their places")
    fm, (q, k, v), mask, order = made(name), inputs(20), padding(20), torch.randperm(20, generator=torch.Generator().manual_seed(2))
    for form in ("linear", "quadratic"):
        out = attend((q, k, v), fm, form, key_mask=mask)
        shuffled = attend((q, k[:, :, order], v[:, :, order]), fm, form, key_mask=mask[:, order])
        torch.testing.assert_close(shuffled, out, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_heads_are_those_of_one_head_each(name):
    fm, (q, k, v) = made(name), inputs(9)
    whole = kernel_attention(q, k, v, fm)
    for h in range(HEADS):
        one = made(name, heads=1)
        one.load_state_dict({key: value[h : h + 1] if len(value) == HEADS else value for key, value in fm.state_dict().items()})
        alone = kernel_attention(*(t[:, h : h + 1] for t in (q, k, v)), one)
        torch.testing.assert_close(alone, whole[:, h : h + 1], rtol=1e-11, atol=1e-12)


@every_map_and_form
@causal_or_not
def test_strides_do_not_matter(name, form, is_causal):
    fm, x = made(name), inputs(20)
    odd = [t.detach().transpose(1, 2).contiguous().transpose(1, 2) for t in x]
    odd[1] = torch.stack((odd[1], odd[1]), -1).flatten(-2)[..., ::2]
    odd[2] = odd[2].transpose(2, 3).contiguous().transpose(2, 3)
    expected = attend(x, fm, form, is_causal=is_causal)
    torch.testing.assert_close(attend(odd, fm, form, is_causal=is_causal), expected.detach(), rtol=1e-11, atol=1e-12)


# Numbers


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1e-2, 1.0, 4.0, 10.0])
@pytest.mark.parametrize(("dtype", "bar"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)])
def test_sizes_of_inputs_against_the_definition_in_float64(name, size, dtype, bar):
    """Outputs and the gradient of v; signed maps without a divisor, as far as the type reaches."""
    fm, x = made(name, dim=8, n_features=16, dtype=torch.float32), [t.detach() for t in inputs(50, dim=8, dtype=torch.float32)]
    exact, how = copy.deepcopy(fm).double(), "count" if fm.signed else "sum"
    q, k, v = ((t * factor).to(dtype).requires_grad_() for t, factor in zip(x, (size, size, 1.0)))
    for is_causal in (False, True):
        expected = naive_attention(q, k, v, exact, is_causal=is_causal, normalise=how)
        if expected.abs().max() > torch.finfo(dtype).max / 10:  # rfa and flexformer: exp(|q|^2/2 + |k|^2/2)
            assert name in ("rfa", "flexformer", "flexformer-nonstationary")
            continue
        for form in ("linear", "quadratic") if dtype == torch.float32 else ("linear",):
            out = kernel_attention(q, k, v, fm, is_causal=is_causal, normalise=how, form=form)
            assert out.dtype == dtype
            assert relative(out, expected) < bar
            assert relative(gradients(out, [v])[0], gradients(expected, [v])[0]) < bar


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("size", [1e-2, 1.0, 4.0, 10.0])
def test_gradients_of_queries_and_keys_in_float32_at_every_size(name, size):
    """They are differences of values under the weights, of which half the digits may cancel: 1e-4 is asked, not 1e-5."""
    fm, x = made(name, dim=8, n_features=16, dtype=torch.float32), [t.detach() for t in inputs(50, dim=8, dtype=torch.float32)]
    single = [(t * factor).requires_grad_() for t, factor in zip(x, (size, size, 1.0))]
    double = [t.detach().double().requires_grad_() for t in single]
    for form in ("linear", "quadratic"):
        got = gradients(kernel_attention(*single, fm, is_causal=True, form=form), single)
        for a, b in zip(got, gradients(naive_attention(*double, copy.deepcopy(fm).double(), is_causal=True), double)):
            assert relative(a, b) < 1e-4


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("size", [1e-2, 1.0, 4.0, 10.0])
def test_divisors_of_signed_maps_cost_only_what_cancels(name, size):
    """A row's error is below 1e-5 times its condition: sums of absolute values over the sums. `report` tells of the divisors' signs."""
    fm, (q, k, v) = made(name, dim=16, n_features=32, dtype=torch.float32), [t.detach() for t in inputs(90, dim=16, dtype=torch.float32)]
    q, k, exact, report = size * q, size * k, copy.deepcopy(fm).double(), {}
    phi = [exact((t * 16**-0.25).double(), role=role) for t, role in ((q, "query"), (k, "key"))]
    weight = (phi[1][0] - phi[1][0].amax(-1, keepdim=True)).exp()[:, :, None]
    kernel, largest = phi[0][1] @ phi[1][1].mT * weight, phi[0][1].abs() @ phi[1][1].abs().mT * weight
    condition = (largest @ v.double().abs()).norm(dim=-1) / (kernel @ v.double()).norm(dim=-1)
    out = {how: kernel_attention(q, k, v, fm, normalise=how) for how in ("rms", "sum")}
    kernel_attention(q, k, v, fm, normalise="sum", report=report)
    conditions = {"rms": condition, "sum": condition + largest.sum(-1) / kernel.sum(-1).abs()}
    for how, value in out.items():
        expected = naive_attention(q, k, v, exact, normalise=how)
        assert ((value - expected).norm(dim=-1) <= 1e-5 * conditions[how] * expected.norm(dim=-1)).all()
    assert abs(float(report["nonpositive"]) - float((kernel.sum(-1) <= 0).double().mean())) < 0.01
    assert report["denominator"].shape == q.shape[:3]
    torch.testing.assert_close(out["rms"].square().mean(-1), torch.ones_like(report["denominator"]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", NAMES)
@causal_or_not
def test_types_and_autocast_keep_wide_sums(name, is_causal):
    for dtype in (torch.float32, torch.float64):
        fm = made(name, dtype=dtype)
        for autocast, half in itertools.product((False, True), (torch.bfloat16, torch.float16)):
            x = inputs(20, dtype=half)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                out, state = attend(x, fm, "linear", is_causal=is_causal, return_state=True)
            assert out.dtype == half
            assert {t.dtype for t in state[:3]} == {dtype}
            assert all(torch.isfinite(g).all() for g in gradients(out, [*x, *parameters(fm)]))


@pytest.mark.parametrize("n", [4096, 65536])
@causal_or_not
def test_sums_of_many_half_precision_keys_stay_finite(n, is_causal):
    q, k, v = (t.detach().half() for t in inputs(n, batch=1, heads=1))
    k = torch.full_like(k, 4.0)
    out = kernel_attention(q, k, v, made("elu", heads=1, renormalise=False, dtype=torch.float32), is_causal=is_causal)
    expected = v.double().cumsum(2) / torch.arange(1, n + 1)[:, None] if is_causal else v.double().mean(2, keepdim=True).expand_as(v)
    assert relative(out, expected) < 5e-3


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("value", [-8.0, -300.0])
def test_a_single_token_returns_its_value_however_small_its_features(name, value):
    """elu(-8) + 1 is 0 in bfloat16; here the output is v, and v does not hang on q and k."""
    fm = made(name, heads=1, dim=2, n_features=4, dtype=torch.float32)
    q, k = (torch.full((1, 1, 1, 2), value, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    v = torch.full((1, 1, 1, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)
    if name == "cosformer":  # it knows nothing of what is negative
        q, k = (t.detach().abs().requires_grad_() for t in (q, k))
    out = kernel_attention(q, k, v, fm)
    out.sum().backward()
    assert out.eq(0.5).all()
    assert max(q.grad.abs().max(), k.grad.abs().max()) < 1e-5


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("size", [4.0, 10.0])
def test_large_inputs_do_not_make_rows_alike(name, size):
    fm, (q, k, v) = made(name, dim=32, n_features=64, dtype=torch.float32), inputs(60, dim=32, dtype=torch.float32)
    for is_causal in (False, True):
        assert kernel_attention(size * q, size * k, v, fm, is_causal=is_causal).std(2).min() > 0


@causal_or_not
def test_features_that_are_all_zero_give_zero(is_causal):
    """cosFormer's rectified features of negative keys."""
    (q, k, v), fm = inputs(9), made("cosformer", omega=torch.eye(DIM), horizon=16)
    k = -k.detach().abs().requires_grad_()
    for form in ("linear", "quadratic"):
        out = attend((q, k, v), fm, form, is_causal=is_causal)
        assert out.eq(0).all()
        assert all(torch.isfinite(g).all() for g in gradients(out, [q, k, v, *parameters(fm)]))


@pytest.mark.parametrize("form", ["linear", "window"])
def test_gradients_of_keys_of_falling_size(form):
    """Prefix sums are kept, not rebuilt by subtraction in the backward pass."""
    fm, (q, k, v) = made("softplus", heads=1, renormalise=False, dtype=torch.float32), inputs(1500, batch=1, heads=1)
    q, k = q.detach() * 0.1, (k.detach() * torch.logspace(3, 0, 1500, dtype=DOUBLE)[:, None])
    x = [t.detach().requires_grad_() for t in (q, k, v)]
    single = [t.detach().float().requires_grad_() for t in x]
    got = gradients(attend(single, fm, form, is_causal=True), single)
    for a, b in zip(got, gradients(defined(x, copy.deepcopy(fm).double(), form, is_causal=True), x)):
        assert relative(a, b) < 1e-3


# Modules


@pytest.mark.parametrize("name", NAMES)
def test_attending_changes_no_parameter_and_repeats_itself(name):
    fm, x = made(name), inputs(9)
    before = copy.deepcopy(fm.state_dict())
    for module in (fm.train(), fm.eval()):
        assert torch.equal(kernel_attention(*x, module), kernel_attention(*x, module))
    assert all(torch.equal(value, before[key]) for key, value in fm.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_map_loads_strictly_before_its_first_use(name, tmp_path):
    fm, x = made(name), inputs(9)
    with torch.no_grad():
        for p in fm.parameters():
            p.add_(0.1)
    torch.save(fm.state_dict(), tmp_path / "map.pt")
    fresh = made(name, omega=torch.zeros_like(fm.omega[0]))
    fresh.load_state_dict(torch.load(tmp_path / "map.pt"), strict=True)
    assert torch.equal(kernel_attention(*x, fresh), kernel_attention(*x, fm))


@pytest.mark.parametrize("name", FAMILIES)
def test_short_sequences_train(name):
    fm, x = made(name, dtype=torch.float32), inputs(8, dtype=torch.float32)
    optimizer = torch.optim.SGD(fm.train().parameters(), lr=0.01)
    before = fm.omega.detach().clone()
    kernel_attention(*x, fm, is_causal=True).square().sum().backward()
    optimizer.step()
    assert torch.isfinite(fm.omega).all()
    assert not torch.equal(fm.omega, before)


@causal_or_not
def test_a_nan_comes_out_as_nan(is_causal):
    """No hang, no silence."""
    for which in range(3):
        x = [t.detach() for t in inputs(9)]
        x[which][:, :, 4] = math.nan
        out = kernel_attention(*x, made(), is_causal=is_causal)
        assert out[:, :, 4].isnan().all()


def test_scale_has_one_default():
    fm, x = made(), inputs(20)
    for form, normalise in itertools.product(FORMS, ("sum", "rms", "count", None)):
        if form != "window" or normalise == "sum":
            options = {"normalise": normalise, "is_causal": True}
            assert torch.equal(attend(x, fm, form, **options), attend(x, fm, form, scale=DIM**-0.5, **options))


def test_a_map_from_a_name_prints_nothing(capsys):
    for name in NAMES:
        made(name)
    assert capsys.readouterr().out == ""
