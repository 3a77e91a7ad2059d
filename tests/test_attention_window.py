"""Softmax weights near the diagonal and the feature kernel beyond, under one normaliser."""

from __future__ import annotations

import itertools

import pytest
import torch

from attention import kernel_attention
from attention.naive import naive_attention
from attention.window import WindowState
from tests.attention_inputs import HEADS, POSITIVE, VALUE, assert_same, gradients, inputs, made, padding, relative

causal_or_not = pytest.mark.parametrize("is_causal", [False, True])
forms = pytest.mark.parametrize("form", ["linear", "quadratic"])


@forms
@causal_or_not
@pytest.mark.parametrize("window", [1, 2, 5, 64, 65, 129, 130, 500])
def test_equals_the_definition_for_every_width(window, is_causal, form):
    fm, x, mask = made(), inputs(130, batch=1), padding(130, batch=1)
    options = {"is_causal": is_causal, "window": window, "key_mask": mask}
    assert_same(kernel_attention(*x, fm, form=form, **options), naive_attention(*x, fm, **options), [*x, fm.omega])


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 8), (3, 70), (64, 65)])
@pytest.mark.parametrize("window", [1, 4, 100])
@forms
def test_the_last_query_stands_at_the_last_key(n_queries, n_keys, window, form):
    fm, x = made("softplus"), inputs(n_queries, n_keys)
    options = {"is_causal": True, "window": window}
    assert_same(kernel_attention(*x, fm, form=form, **options), naive_attention(*x, fm, **options), [*x, fm.omega])


@forms
@causal_or_not
@pytest.mark.parametrize("name", ["favor", "softplus"])
def test_a_window_over_everything_is_softmax_attention(name, is_causal, form):
    fm, (q, k, v), mask = made(name), inputs(70), padding(70)
    allowed = mask[:, None, None] & (torch.ones(70, 70, dtype=torch.bool).tril() if is_causal else True)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, allowed)
    out = kernel_attention(q, k, v, fm, is_causal=is_causal, key_mask=mask, window=70, form=form)
    torch.testing.assert_close(out, exact, rtol=1e-11, atol=1e-12)


@causal_or_not
def test_the_error_against_softmax_falls_with_the_window(is_causal):
    """Of FAVOR+ with 64 features: what is in the window carries no noise."""
    fm, (q, k, v) = made("favor", n_features=64, heads=1), inputs(80, heads=1)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    error = [relative(kernel_attention(q, k, v, fm, is_causal=is_causal, window=w), exact) for w in (1, 20, 60, 80)]
    assert error[0] > error[1] > error[2] > error[3]
    assert error[3] < 1e-10


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("size", [1e-2, 1.0, 4.0, 10.0])
def test_near_and_far_weights_of_any_size_join_in_float32(name, size):
    """exp(scale q.k) to exp(100) times the kernel and back, against float64."""
    fm, x = made(name, dim=16, n_features=32, dtype=torch.float32), [t.detach() for t in inputs(50, dim=16, dtype=torch.float32)]
    q, k, v = size * x[0], size * x[1], x[2]
    for is_causal in (False, True):
        out = kernel_attention(q, k, v, fm, is_causal=is_causal, window=4)
        assert relative(out, naive_attention(q, k, v, made(name, dim=16, n_features=32), is_causal=is_causal, window=4)) < 2e-5


@pytest.mark.parametrize("window", [1, 3, 40])
def test_every_split_gives_the_same_rows_state_and_gradients(window):
    fm, x, mask = made(), inputs(9), padding(9)
    options = {"is_causal": True, "window": window, "return_state": True, "chunk_size": 2}
    whole, final = kernel_attention(*x, fm, key_mask=mask, **options)
    assert isinstance(final, WindowState)
    expected = gradients(whole, [*x, fm.omega])
    for cuts in itertools.combinations(range(1, 9), 2):
        state, rows = None, []
        for start, end in itertools.pairwise([0, *cuts, 9]):
            part = [t[:, :, start:end] for t in x]
            out, state = kernel_attention(*part, fm, key_mask=mask[:, start:end], state=state, **options)
            rows.append(out)
        joined = torch.cat(rows, 2)
        torch.testing.assert_close(joined, whole, rtol=1e-9, atol=1e-11)
        for a, b in zip([*state.far, *state[1:]], [*final.far, *final[1:]], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
    for a, b in zip(gradients(joined, [*x, fm.omega]), expected):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_the_state_keeps_only_the_window():
    fm, x = made(), inputs(300)
    _, state = kernel_attention(*x, fm, is_causal=True, window=5, return_state=True)
    assert state.keys.shape == (2, HEADS, 5, x[1].shape[-1])
    assert state.values.shape == (2, HEADS, 5, VALUE)
    assert torch.equal(state.keys, x[1][:, :, -5:])
    assert state.far.count.tolist() == [295, 295]
    assert state.position.tolist() == [300, 300]


@causal_or_not
def test_work_grows_linearly(is_causal):
    """Entries of the largest matrix of scores and of the features: twice the length, twice as many."""
    fm, work = made("softplus", heads=1), []
    for n in (256, 512):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_flops=True) as profile:
            kernel_attention(*inputs(n, batch=1, heads=1), fm, is_causal=is_causal, window=4, form="linear")
        work.append(sum(event.flops for event in profile.key_averages() if event.flops))
    assert work[1] < 2.2 * work[0]


def test_a_state_of_another_kind_is_refused():
    fm, x = made(), inputs(6)
    _, state = kernel_attention(*x, fm, is_causal=True, return_state=True)
    with pytest.raises(ValueError, match="state must be a WindowState or None, got a State"):
        kernel_attention(*x, fm, is_causal=True, window=3, state=state)
    _, state = kernel_attention(*x, fm, is_causal=True, return_state=True, window=3)
    with pytest.raises(ValueError, match="state must be a State or None, got a WindowState"):
        kernel_attention(*x, fm, is_causal=True, state=state)
    with pytest.raises(ValueError, match=r"state must have keys of shape \(2, 3, 4, 5\)"):
        kernel_attention(*x, fm, is_causal=True, window=4, state=state)
