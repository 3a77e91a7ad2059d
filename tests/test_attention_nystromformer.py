"""Nystromformer and Linformer attention against their definitions, masks, and refusals; both inside the vision transformer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attention.landmarks import PooledLandmarks
from attention.linformer import Linformer
from attention.nystromformer import naive_nystromformer_attention, nystromformer_attention
from attention.vision import VisionTransformer, soft


@pytest.fixture
def qkv() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 24, 8, generator=generator, dtype=torch.float64) for _ in range(3)]


def _nystrom(q: Tensor, k: Tensor, v: Tensor, stride: int, **how) -> Tensor:
    pool = PooledLandmarks(stride)
    return nystromformer_attention(q, k, v, pool(q)[0], pool(k)[0], **how)


def test_equals_the_definition_with_an_exact_inverse(qkv: list[Tensor]) -> None:
    q, k, v = (2 * part for part in qkv)
    found = _nystrom(q, k, v, 6, n_iter=60)
    expected = torch.stack(
        [torch.stack([naive_nystromformer_attention(*(x[b, h] for x in (q, k, v)), 4) for h in range(3)]) for b in range(2)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_landmarks_that_are_all_tokens_give_softmax_attention(qkv: list[Tensor]) -> None:
    q, k, v = (2 * part for part in qkv)
    torch.testing.assert_close(_nystrom(q, k, v, 1, n_iter=80), F.scaled_dot_product_attention(q, k, v), rtol=1e-5, atol=1e-7)


def test_masked_keys_and_landmarks_change_nothing(qkv: list[Tensor]) -> None:
    q, k, v = qkv
    mask = (torch.arange(24) < 18).expand(2, 24)
    pool = PooledLandmarks(6)
    (of_q, there), (of_k, _) = (pool(part, key_mask=mask) for part in (q, k))
    filled = [part.masked_fill(~mask[:, None, :, None], torch.nan) for part in (k, v)]
    masked = nystromformer_attention(
        q, k.masked_fill(~mask[:, None, :, None], 9.0), filled[1], of_q, of_k, key_mask=mask, landmark_mask=there
    )
    short = _nystrom(*(part[:, :, :18] for part in (q, k, v)), 6)
    torch.testing.assert_close(masked[:, :, :18], short)


def test_gradients_of_both_are_finite_and_right(qkv: list[Tensor]) -> None:
    small = [part[:1, :1, :6, :3].clone().requires_grad_() for part in qkv]
    assert torch.autograd.gradcheck(lambda *of: _nystrom(*of, 3, n_iter=30), small, atol=1e-5)
    torch.manual_seed(0)
    linformer = Linformer(6, 2).double()
    assert torch.autograd.gradcheck(linformer, small)


def test_linformer_equals_its_formula_and_ignores_padding(qkv: list[Tensor]) -> None:
    torch.manual_seed(0)
    q, k, v = qkv
    module = Linformer(30, 5, heads=3).double()
    few_k, few_v = module.keys[..., :24] @ k, module.values[..., :24] @ v
    expected = torch.softmax(q @ few_k.mT * 8**-0.5, -1) @ few_v
    torch.testing.assert_close(module(q, k, v), expected)
    mask = (torch.arange(24) < 18).expand(2, 24)
    hidden = [part.masked_fill(~mask[:, None, :, None], torch.nan) for part in (k, v)]
    torch.testing.assert_close(module(q, *hidden, key_mask=mask), module(q, k[:, :, :18], v[:, :, :18]))


@pytest.mark.parametrize("kind", ["nystromformer", "linformer"])
def test_both_train_in_the_vision_transformer(kind: str) -> None:
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = VisionTransformer(soft("digits", attention=(kind,) * 4))
    F.cross_entropy(model(images), torch.tensor([1, 2, 3])).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_signed_maps_in_the_vision_transformer_have_queries_of_one_length_and_a_gain() -> None:
    attention = VisionTransformer(soft("digits", attention=("flexformer",) * 4, n_features=8)).stages[0].blocks[0].attention
    q, k, _ = attention.queries_keys_values(torch.randn(2, 64, 16))
    torch.testing.assert_close(q.norm(dim=-1), torch.ones(2, 1, 64))
    torch.testing.assert_close(k.norm(dim=-1), torch.ones(2, 1, 64))
    assert attention.gain.shape == (1, 1, 16)


def test_wrong_shapes_and_masks_are_named(qkv: list[Tensor]) -> None:
    q, k, v = qkv
    with pytest.raises(ValueError, match="landmarks_k must have the shape of landmarks_q"):
        nystromformer_attention(q, k, v, q[:, :, :4], k[:, :, :3])
    with pytest.raises(ValueError, match="v must have k's time"):
        nystromformer_attention(q, k, v[:, :, :5], q[:, :, :4], k[:, :, :4])
    with pytest.raises(ValueError, match="key_mask must be bool"):
        nystromformer_attention(q, k, v, q[:, :, :4], k[:, :, :4], key_mask=torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"k and v must be \(batch, 3, at most 10, dim\)"):
        Linformer(10, 2, heads=3)(q, k, v)
    with pytest.raises(ValueError, match="n_landmarks must be an integer"):
        Linformer(10, 0)
