"""Rotary positions: rotations of pairs, relative in the dot product, and before any feature map."""

from __future__ import annotations

import pytest
import torch

from attention import kernel_attention
from attention.rotary import rotary
from tests.attention_inputs import DOUBLE, gradients, inputs, made


def drawn(*shape, dtype=DOUBLE) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=DOUBLE).to(dtype)


@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_are_turned_by_the_angles_of_the_paper(interleaved):
    x, position = drawn(2, 3, 5, 8), torch.tensor([0, 1, 2, 7, 100])
    out = rotary(x, position, 500.0, interleaved=interleaved)
    for i in range(4):
        pair = [2 * i, 2 * i + 1] if interleaved else [i, i + 4]
        turned = torch.view_as_complex(x[..., pair].contiguous()) * torch.exp(1j * position.double() * 500.0 ** (-2 * i / 8))
        torch.testing.assert_close(torch.view_as_complex(out[..., pair].contiguous()), turned, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotated", [None, 4])
def test_dot_products_depend_on_the_difference_of_positions(interleaved, rotated):
    q, k = drawn(2, 3, 1, 8).expand(2, 3, 6, 8), drawn(2, 3, 2, 8)[:, :, 1:].expand(2, 3, 6, 8)
    at, options = torch.arange(6), {"interleaved": interleaved, "rotated": rotated}
    near = (rotary(q, at + 3, **options) * rotary(k, at, **options)).sum(-1)
    far = (rotary(q, at + 1003, **options) * rotary(k, at + 1000, **options)).sum(-1)
    torch.testing.assert_close(near, near[..., :1].expand_as(near), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(far, near, rtol=1e-11, atol=1e-12)
    other = (rotary(q, at + 4, **options) * rotary(k, at, **options)).sum(-1)
    assert (other - near).abs().min() > 1e-3  # control: the difference does matter


def test_lengths_are_kept_and_position_0_is_the_identity():
    x = drawn(2, 3, 5, 8)
    torch.testing.assert_close(rotary(x, torch.arange(5)).norm(dim=-1), x.norm(dim=-1), rtol=1e-13, atol=0)
    assert torch.equal(rotary(x, torch.zeros(5, dtype=torch.int64)), x)
    assert torch.equal(rotary(x, torch.arange(5), rotated=4)[..., 4:], x[..., 4:])


def test_positions_may_differ_between_sequences():
    x, position = drawn(2, 3, 5, 8), torch.stack((torch.arange(5), torch.arange(5) + 40))
    out = rotary(x, position)
    for b in range(2):
        torch.testing.assert_close(out[b : b + 1], rotary(x[b : b + 1], position[b]), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_angles_of_narrow_types_are_computed_in_float64(dtype):
    """A float32 angle is off by position * 6e-8, 1e-3 at 16,384; a bfloat16 one by many turns."""
    x, position = drawn(1, 1, 4, 8, dtype=dtype), torch.tensor([3, 257, 4097, 16_384])
    out = rotary(x, position)
    assert out.dtype == dtype
    assert (out.double() - rotary(x.double(), position)).abs().max() < 4 * torch.finfo(dtype).eps


def test_gradcheck():
    x = drawn(1, 2, 3, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rotary(x, torch.tensor([0, 2, 9]), rotated=4), x)


def test_attention_of_rotated_vectors_is_relative_in_expectation():
    """FAVOR+ of rotated vectors with 40,000 features: moving all positions by 1000 moves the output by the features' noise only."""
    q, k, v = (t.detach() * 0.5 for t in inputs(8, heads=1, dim=4))
    fm, at = made("favor", n_features=40_000, heads=1, dim=4), torch.arange(8)
    out, moved = (kernel_attention(rotary(q, at + shift), rotary(k, at + shift), v, fm) for shift in (0, 1000))
    exact = torch.nn.functional.scaled_dot_product_attention(rotary(q, at), rotary(k, at), v)
    for value in (out, moved):
        assert (value - exact).norm() < 0.02 * exact.norm()
    still = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert (still - exact).norm() > 0.04 * exact.norm()  # control: rotations matter here


def test_a_recurrent_run_turns_by_the_positions_of_its_state():
    fm, (q, k, v) = made(dim=6), inputs(12, dim=6)
    at, state, rows = torch.arange(12), None, []
    whole = kernel_attention(rotary(q, at), rotary(k, at), v, fm, is_causal=True)
    for parts in zip(*(t.split([7, 4, 1], 2) for t in (q, k, v))):
        start = torch.zeros(2, dtype=torch.int64) if state is None else state.position
        here = start[:, None] + torch.arange(parts[0].shape[2])
        turned = [rotary(t, here) for t in parts[:2]]
        out, state = kernel_attention(*turned, parts[2], fm, is_causal=True, state=state, return_state=True)
        rows.append(out)
    torch.testing.assert_close(torch.cat(rows, 2), whole, rtol=1e-9, atol=1e-11)
    assert all(torch.isfinite(g).all() for g in gradients(whole, [q, k, v]))


@pytest.mark.parametrize(
    ("x", "position", "options", "message"),
    [
        ((2, 3, 5, 7), torch.arange(5), {}, "rotated must be even and at most 7, got 7"),
        ((2, 3, 5, 8), torch.arange(5), {"rotated": 10}, "rotated must be even and at most 8, got 10"),
        ((2, 3, 5, 8), torch.arange(4), {}, r"position must hold integers.*got torch.int64 \(4,\)"),
        ((2, 3, 5, 8), torch.arange(5.0), {}, "position must hold integers.*float32"),
        ((2, 3, 5, 8), [0, 1, 2, 3, 4], {}, "position must hold integers.*got a list"),
        ((2, 3, 5, 8), torch.arange(5), {"base": 0.0}, "base must be positive"),
        ((2, 3, 5, 8), torch.arange(5), {"interleaved": 1}, "interleaved must be True or False"),
        ((5, 8), torch.arange(5), {}, "x must be float"),
    ],
)
def test_bad_arguments_are_named(x, position, options, message):
    with pytest.raises(ValueError, match=message):
        rotary(torch.ones(x), position, **options)


@pytest.mark.parametrize("late", [10**6, 10**8])
def test_late_tokens_of_float32_keep_their_angles(late):
    x, at = drawn(1, 1, 4, 8), torch.tensor([0, 1, 2, late]) + late
    torch.testing.assert_close(rotary(x.float(), at), rotary(x, at).float(), rtol=1e-6, atol=1e-6)
