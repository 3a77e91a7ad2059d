"""Landmarks on lines and grids of tokens: windows, masks, reproducible draws, checkpoints."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn import functional as F

from attention.landmarks import ConvLandmarks, FirstLandmarks, PooledLandmarks, RandomLandmarks
from attention.softmax_free import softmax_free_attention

MODULES: dict[str, Callable[[], nn.Module]] = {
    "pooled": lambda: PooledLandmarks(3),
    "conv": lambda: ConvLandmarks(4, 3, dims=1),
    "plain conv": lambda: ConvLandmarks(4, 3, dims=1, activation=False),
    "first": lambda: FirstLandmarks(5),
    "random": lambda: RandomLandmarks(5, generator=torch.Generator().manual_seed(3)).eval(),
}
each_module = pytest.mark.parametrize("name", MODULES)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _module(name: str) -> nn.Module:
    torch.random.manual_seed(0)
    return MODULES[name]().double()


def _tokens(generator: torch.Generator, time: int = 14, dim: int = 4) -> Tensor:
    return torch.randn(2, 3, time, dim, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 7), (1, 8), (7, 1)])
def test_pooling_of_a_grid_is_average_pooling_that_counts_no_padding(height: int, width: int, generator: torch.Generator) -> None:
    x = _tokens(generator, height * width)
    found, mask = PooledLandmarks(2)(x, grid=(height, width))
    images = x.flatten(0, 1).mT.unflatten(2, (height, width))
    expected = F.avg_pool2d(images, 2, ceil_mode=True, count_include_pad=False)
    torch.testing.assert_close(found, expected.flatten(2).mT.unflatten(0, (2, 3)))
    assert mask is None


@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 7)])
def test_convolution_of_a_grid_is_the_strided_convolution_with_zeros_at_its_end(
    height: int, width: int, generator: torch.Generator
) -> None:
    x = _tokens(generator, height * width)
    module = ConvLandmarks(4, 2, activation=False).double()
    found, _ = module(x, grid=(height, width))
    images = F.pad(x.flatten(0, 1).mT.unflatten(2, (height, width)), (0, -width % 2, 0, -height % 2))
    kernel = module.conv.weight.view(4, 2, 2, 4).permute(0, 3, 1, 2)
    torch.testing.assert_close(found, F.conv2d(images, kernel, stride=2).flatten(2).mT.unflatten(0, (2, 3)))
    line, _ = ConvLandmarks(4, 3, dims=1, activation=False).double()(x)
    assert line.shape == (2, 3, -(-height * width // 3), 4)


def test_landmarks_as_released_are_gelu_of_layer_norm_after_the_scaling_of_attention(generator: torch.Generator) -> None:
    x = _tokens(generator)
    module = _module("conv")
    found, _ = module(x)
    plain = _module("plain conv")
    plain.conv.load_state_dict(module.conv.state_dict())
    torch.testing.assert_close(4**-0.25 * found, F.gelu(F.layer_norm(plain(x)[0], (4,))))
    torch.testing.assert_close(module(7 * x)[0], found, rtol=1e-3, atol=1e-3)  # the tokens' scale is normalised away, but for eps


@each_module
def test_masked_content_changes_nothing_and_padding_at_the_end_is_a_shorter_sequence(name: str, generator: torch.Generator) -> None:
    module, x = _module(name), _tokens(generator)
    mask = torch.tensor([[True] * 9 + [False] * 5, [False, True, True, False, False, False] + [True] * 8])
    found, landmark_mask = module(x, key_mask=mask)
    poisoned = x.masked_fill(~mask[:, None, :, None], math.nan).requires_grad_()
    again, again_mask = module(poisoned, key_mask=mask)
    keep = landmark_mask[:, None, :, None].expand_as(found)
    assert torch.equal(found[keep], again[keep])
    assert torch.equal(landmark_mask, again_mask)
    grad = torch.autograd.grad(again[keep].square().sum(), poisoned)[0]
    assert grad.isfinite().all()
    assert (grad.masked_select(~mask[:, None, :, None]) == 0).all()
    if name != "random":  # the draw depends on the length
        short, short_mask = module(x[:1, :, :9], key_mask=mask[:1, :9])
        size = short.shape[2]
        torch.testing.assert_close(found[:1, :, :size], short)
        assert not landmark_mask[0, size:].any()
        torch.testing.assert_close(short[short_mask[:, None].expand(1, 3, -1)], module(x[:1, :, :9])[0].flatten(0, 2))


def test_window_without_tokens_has_no_landmark_and_a_partial_one_the_mean_of_what_is_there() -> None:
    x = torch.arange(6.0).view(1, 1, 6, 1)
    found, mask = PooledLandmarks(2)(x, key_mask=torch.tensor([[True, True, False, True, False, False]]))
    assert found.flatten().tolist() == [0.5, 3.0, 0.0]
    assert mask.tolist() == [[True, True, False]]


@pytest.mark.parametrize("count", [3, 8])
def test_first_and_random_take_visible_tokens_without_repetition(count: int, generator: torch.Generator) -> None:
    x = torch.arange(8.0).view(1, 1, 8, 1).expand(2, 3, 8, 1)
    mask = torch.tensor([[True, False, True, True, False, True, True, True], [False] * 6 + [True] * 2])
    first, _ = FirstLandmarks(count)(x)
    assert first[1, 2, :, 0].tolist() == list(range(count))
    for module in (FirstLandmarks(count), RandomLandmarks(count, generator=generator)):
        found, landmark_mask = module(x, key_mask=mask)
        assert found.shape == (2, 3, count, 1)
        for b in range(2):
            chosen = found[b, 0, landmark_mask[b], 0].long().tolist()
            assert len(set(chosen)) == len(chosen) == min(count, int(mask[b].sum()))
            assert mask[b, chosen].all()
            assert torch.equal(found[b, 0], found[b, 2])
    assert FirstLandmarks(20)(x)[0].shape == (2, 3, 8, 1)


def test_every_token_is_drawn_equally_often(generator: torch.Generator) -> None:
    """4 of 8 tokens, 2000 draws: counts within 5 standard deviations (22), a false alarm in 2e-6 of the runs."""
    x = torch.arange(8.0).view(1, 1, 8, 1)
    module = RandomLandmarks(4, generator=generator)
    counts = sum(torch.bincount(module(x)[0].flatten().long(), minlength=8) for _ in range(2000))
    assert (counts - 1000).abs().max() < 112
    biased = sum(torch.bincount(FirstLandmarks(4)(x)[0].flatten().long(), minlength=8) for _ in range(2000))
    assert (biased - 1000).abs().max() > 112


def test_random_draws_are_fresh_in_training_and_fixed_in_evaluation(generator: torch.Generator) -> None:
    x = _tokens(generator, 50)
    module = RandomLandmarks(5, generator=generator)
    assert not torch.equal(module(x)[0], module(x)[0])
    before = torch.get_rng_state()
    module.eval()
    assert torch.equal(module(x)[0], module(x)[0])
    assert torch.equal(torch.get_rng_state(), before)
    other = RandomLandmarks(5, generator=generator).eval()
    assert not torch.equal(other(x)[0], module(x)[0])
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x)[0], module(x)[0])
    assert torch.equal(copy.deepcopy(RandomLandmarks(5).eval())(x)[0].mean().isfinite(), torch.tensor(True))


@each_module
def test_state_dict_is_strict_and_complete(name: str, generator: torch.Generator) -> None:
    x, module = _tokens(generator), _module(name)
    fresh = MODULES[name]().double()
    for parameter in fresh.parameters():
        nn.init.zeros_(parameter)
    fresh.load_state_dict(module.state_dict(), strict=True)
    assert torch.equal(fresh(x)[0], module(x)[0])


@each_module
def test_sequences_of_a_batch_do_not_meet(name: str, generator: torch.Generator) -> None:
    x, module = _tokens(generator), _module(name)
    mask = torch.rand(2, 14, generator=generator) > 0.3
    for options in ({}, {"key_mask": mask}):
        both, _ = module(x, **options)
        one, _ = module(x[1:], **{key: value[1:] for key, value in options.items()})
        torch.testing.assert_close(one, both[1:])


@each_module
def test_gradcheck(name: str, generator: torch.Generator) -> None:
    module = _module(name)
    x = torch.randn(1, 2, 7, 4, dtype=torch.float64, generator=generator).requires_grad_()
    mask = torch.tensor([[True, True, False, True, False, True, True]])
    assert gradcheck(lambda x: module(x, key_mask=mask)[0], x)


@each_module
@pytest.mark.parametrize("time", [1, 2, 13, 101])
def test_attention_with_any_landmarks_and_length(name: str, time: int, generator: torch.Generator) -> None:
    module, x = _module(name), _tokens(generator, time)
    landmarks, mask = module(x, key_mask=torch.ones(2, time, dtype=torch.bool))
    out, residual = softmax_free_attention(x, x, landmarks, landmark_mask=mask, return_residual=True)
    assert out.shape == x.shape
    assert out.isfinite().all()
    assert (residual < 0.01).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_are_kept(dtype: torch.dtype, generator: torch.Generator) -> None:
    x = _tokens(generator).to(dtype)
    for name in MODULES:
        assert MODULES[name]().to(dtype)(x)[0].dtype == dtype
    ones = torch.full((1, 1, 70000, 1), 4.0, dtype=torch.float16)
    assert PooledLandmarks(70000)(ones)[0].item() == 4  # summed in float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PooledLandmarks(0), "stride must be an integer of at least 1, got 0"),
        (lambda: ConvLandmarks(4, 2, dims=3), "dims must be 1 or 2, got 3"),
        (lambda: ConvLandmarks(4, 2, activation=1), "activation must be True or False"),
        (lambda: RandomLandmarks(2, generator=3), "generator must be a torch.Generator or None, got 3"),
        (lambda: PooledLandmarks(2)(torch.ones(2, 6, 4)), "x must be float"),
        (lambda: PooledLandmarks(2)(torch.ones(2, 1, 6, 4), grid=(2, 4)), "grid must hold the 6 tokens of x"),
        (lambda: PooledLandmarks(2)(torch.ones(2, 1, 6, 4), grid=6), "grid must be"),
        (lambda: FirstLandmarks(2)(torch.ones(2, 1, 6, 4), key_mask=torch.ones(2, 6)), "key_mask must be bool"),
        (lambda: ConvLandmarks(4, 2)(torch.ones(2, 1, 6, 4)), "grid must be .height, width. for dims=2, got None"),
        (lambda: ConvLandmarks(4, 2, dims=1)(torch.ones(2, 1, 6, 4), grid=(2, 3)), "grid must be None for dims=1"),
        (lambda: ConvLandmarks(5, 2, dims=1)(torch.ones(2, 1, 6, 4)), "x must have dim 5"),
    ],
)
def test_bad_input_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
