"""Packed sequences, grouped heads, axes without entries: each is the plain call on rearranged inputs."""

from __future__ import annotations

import itertools

import pytest
import torch

from attention import kernel_attention
from attention.naive import naive_attention
from tests.attention_inputs import HEADS, VALUE, assert_same, gradients, inputs, made, padding

OFFSETS = torch.tensor([0, 0, 1, 6, 6, 7, 40, 60])  # empty ones in front and inside
HOW = [{"form": "linear"}, {"form": "quadratic"}, {"form": "linear", "window": 3}]
how = pytest.mark.parametrize("how", HOW, ids=["linear", "quadratic", "window"])
causal_or_not = pytest.mark.parametrize("is_causal", [False, True])


def defined(x, fm, how, **options):
    return naive_attention(*x, fm, window=how.get("window"), **options)


# Packed sequences


@how
@causal_or_not
@pytest.mark.parametrize("name", ["favor", "cosformer"])
def test_packed_sequences_are_separate_runs(name, is_causal, how):
    fm, x = made(name), inputs(60, batch=1)
    for mask in (None, padding(60, batch=1)):
        options = {"is_causal": is_causal, "key_mask": mask, "cu_seqlens": OFFSETS}
        assert_same(kernel_attention(*x, fm, **options, **how), defined(x, fm, how, **options), [*x, *fm.parameters()])


@pytest.mark.parametrize("normalise", ["count", None])
def test_packed_sequences_count_their_own_keys(normalise):
    fm, x = made("fourier"), inputs(60, batch=1)
    options = {"is_causal": True, "cu_seqlens": OFFSETS, "normalise": normalise}
    assert_same(kernel_attention(*x, fm, **options), naive_attention(*x, fm, **options), [*x, fm.omega])


@how
def test_an_empty_sequence_leaves_its_state_as_it_was(how):
    fm, x = made(), inputs(9, batch=1)
    options = {"is_causal": True, "return_state": True, **how}
    _, state = kernel_attention(*x, fm, cu_seqlens=torch.tensor([0, 5, 5, 9], dtype=torch.int32), **options)
    for i, (start, end) in enumerate(((0, 5), (5, 5), (5, 9))):
        _, alone = kernel_attention(*(t[:, :, start:end] for t in x), fm, **options)
        for a, b in zip(_tensors(state.index_select(torch.tensor([i]))), _tensors(alone), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    empty = getattr(state, "far", state).index_select(torch.tensor([1]))
    assert empty.context.eq(0).all()
    assert empty.log_scale.eq(-torch.inf).all()
    assert empty.count == empty.position == 0


def _tensors(state) -> list[torch.Tensor]:
    return list(itertools.chain(*([field] if isinstance(field, torch.Tensor) else _tensors(field) for field in state)))


@how
@pytest.mark.parametrize("name", ["favor", "cosformer"])
def test_packed_sequences_go_on_from_their_states(name, how):
    """Three sequences in three steps each, some of no tokens."""
    fm, x, state = made(name), inputs(97, batch=1), None
    bounds, lengths = [0, 23, 29, 97], [[0, 3, 20], [4, 0, 2], [1, 60, 7]]
    rows, start = [[], [], []], bounds[:3]
    for step in zip(*lengths):
        index = torch.cat([torch.arange(s, s + n) for s, n in zip(start, step)])
        ends = torch.tensor([0, *itertools.accumulate(step)])
        part = [t[:, :, index] for t in x]
        out, state = kernel_attention(*part, fm, is_causal=True, cu_seqlens=ends, state=state, return_state=True, **how)
        for kept, new in zip(rows, out.split(step, 2)):
            kept.append(new)
        start = [s + n for s, n in zip(start, step)]
    out = torch.cat([torch.cat(kept, 2) for kept in rows], 2)
    assert state.position.tolist() == [23, 6, 68]
    assert_same(out, defined(x, fm, how, is_causal=True, cu_seqlens=torch.tensor(bounds)), [*x, *fm.parameters()])


def test_long_and_short_sequences_share_no_padding():
    """A long sequence does not blow up a hundred short ones: at most half of what is computed is filling."""
    fm, seen = made("softplus", heads=1), []
    fm.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[0] * args[0].shape[2]))
    lengths = [1000, *[3] * 100, *[2] * 50]
    total = sum(lengths)
    kernel_attention(*inputs(total, batch=1, heads=1), fm, cu_seqlens=torch.tensor([0, *itertools.accumulate(lengths)]))
    assert 2 * total <= sum(seen) <= 4 * total  # queries and keys


@pytest.mark.parametrize(
    ("offsets", "batch", "message"),
    [
        ([0, 9], 2, "cu_seqlens needs one batch entry and as many queries as keys"),
        ([0, 5], 1, r"cu_seqlens must rise from 0 to 9, got \[0, 5\]"),
        ([1, 9], 1, "must rise from 0"),
        ([0, 6, 4, 9], 1, "must rise from 0"),
        ([0], 1, "must rise from 0"),
        ([0.0, 9.0], 1, "cu_seqlens must be offsets, int32 or int64"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(offsets, batch, message):
    with pytest.raises(ValueError, match=message):
        kernel_attention(*inputs(9, batch=batch), made(), cu_seqlens=torch.tensor(offsets))


def test_a_packed_state_has_an_entry_for_every_sequence():
    fm, x, ends = made(), inputs(9, batch=1), torch.tensor([0, 5, 9])
    _, state = kernel_attention(*x, fm, cu_seqlens=ends, return_state=True)
    with pytest.raises(ValueError, match="state must have context of shape"):
        kernel_attention(*x, fm, cu_seqlens=torch.tensor([0, 9]), state=state)


# Grouped heads


@how
@causal_or_not
@pytest.mark.parametrize(("kv_heads", "sets"), [(1, 1), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1)])
@pytest.mark.parametrize("name", ["favor", "cosformer"])
def test_query_heads_share_key_heads(name, kv_heads, sets, is_causal, how):
    fm, x, mask = made(name, heads=sets), inputs(30, heads=4, kv_heads=kv_heads), padding(30)
    options = {"is_causal": is_causal, "key_mask": mask}
    fast = kernel_attention(*x, fm, **options, **how)
    assert_same(fast, defined(x, fm, how, **options), [*x, fm.omega])
    q, k, v = (t.detach() for t in x)
    k, v = (t.repeat_interleave(4 // kv_heads, 1) for t in (k, v))
    if sets != 2:
        torch.testing.assert_close(kernel_attention(q, k, v, fm, **options, **how), fast, rtol=1e-10, atol=1e-12)


@how
@pytest.mark.parametrize(("kv_heads", "sets", "kept"), [(1, 1, 1), (2, 1, 2), (2, 2, 2), (2, 4, 4)])
def test_states_of_grouped_heads_hold_each_key_once(kv_heads, sets, kept, how):
    """Unless every query head has features of its own. Prefill, several tokens, single ones."""
    fm, x, state, rows = made("cosformer", heads=sets), inputs(12, heads=4, kv_heads=kv_heads), None, []
    for part in zip(*(t.split([6, 4, 1, 1], 2) for t in x)):
        out, state = kernel_attention(*part, fm, is_causal=True, state=state, return_state=True, **how)
        rows.append(out)
    assert getattr(state, "far", state).context.shape == (2, kept, fm.feature_dim, VALUE)
    assert_same(torch.cat(rows, 2), defined(x, fm, how, is_causal=True), [*x, fm.omega])


# Axes without entries


@pytest.mark.parametrize("how", [*HOW, {"form": "auto"}])
@causal_or_not
@pytest.mark.parametrize("name", ["favor", "fourier", "cosformer"])
@pytest.mark.parametrize(("batch", "n_queries", "n_keys"), [(0, 4, 4), (0, 0, 0), (2, 0, 0), (2, 0, 5), (2, 4, 0)])
def test_empty_axes_give_empty_or_zero_rows(batch, n_queries, n_keys, name, is_causal, how):
    fm = made(name)
    if (n_queries > n_keys and is_causal) or ("window" in how and (fm.signed or (not is_causal and n_queries != n_keys))):
        pytest.skip("refused")
    x = inputs(n_queries, n_keys, batch=batch)
    for mask in (None, torch.ones(batch, n_keys, dtype=torch.bool)):
        out = kernel_attention(*x, fm, is_causal=is_causal, key_mask=mask, **how)
        assert out.shape == (batch, HEADS, n_queries, VALUE)
        assert out.eq(0).all()
        assert all(torch.isfinite(g).all() and g.shape == t.shape for g, t in zip(gradients(out, x), x))


@how
def test_no_queries_still_absorb_their_keys(how):
    fm, (q, k, v) = made(), inputs(1, 9)
    options = {"is_causal": True, "return_state": True, **how}
    none, state = kernel_attention(q[:, :, :0], k, v, fm, **options)
    assert none.shape == (2, HEADS, 0, VALUE)
    _, expected = kernel_attention(q, k, v, fm, **options)
    for a, b in zip(_tensors(state), _tensors(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    _, same = kernel_attention(q[:, :, :0], k[:, :, :0], v[:, :, :0], fm, state=state, **options)
    for a, b in zip(_tensors(same), _tensors(state), strict=True):
        assert torch.equal(a, b)
    assert state.position.tolist() == [9, 9]


def test_queries_without_keys_read_their_state():
    fm, (q, k, v) = made(), inputs(4, 9)
    _, state = kernel_attention(q, k, v, fm, return_state=True)
    for form in ("linear", "quadratic"):
        out = kernel_attention(q, k[:, :, :0], v[:, :, :0], fm, state=state, form=form)
        assert_same(out, naive_attention(q, k, v, fm), [q, k, v, fm.omega])


def test_a_wrong_number_of_heads_is_named():
    with pytest.raises(ValueError, match=r"feature_map must have particles for 1, 2 \(key\) or 4 \(query\) heads, got 3"):
        kernel_attention(*inputs(5, heads=4, kv_heads=2), made(heads=3))
