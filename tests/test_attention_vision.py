"""The vision transformer in the layout of SOFT: published sizes, each kind of attention, checkpoints, learning digits."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attention.vision import VisionConfig, VisionTransformer, soft

KINDS = ["softmax-free", "softmax", "favor", "fourier"]


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def _everywhere(kind: str) -> VisionConfig:
    return soft("digits", attention=(kind,) * 4, n_features=8)


def _parameters(config: VisionConfig) -> int:
    return sum(p.numel() for p in VisionTransformer(config).parameters())


def _macs(config: VisionConfig, images: Tensor) -> tuple[float, float]:
    """Multiplications, in all and of the pseudo-inverses alone."""
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for n_iter in (config.n_iter, 0):
        model = VisionTransformer(VisionConfig(**(vars(config) | {"n_iter": n_iter}))).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(images)
        counts.append(counter.get_total_flops() / 2)
    return counts[0], counts[0] - counts[1]


def test_tiny_has_the_published_number_of_parameters() -> None:
    assert round(_parameters(soft("tiny")) / 1e6, 2) == 13.07
    assert round(_parameters(soft("tiny", landmarks="pool")) / 1e6, 2) == 12.96


@pytest.mark.slow
@pytest.mark.parametrize(("size", "millions"), [("small", 24), ("medium", 45), ("large", 64), ("huge", 87)])
def test_larger_sizes_have_the_published_number_of_parameters(size: str, millions: int) -> None:
    assert abs(_parameters(soft(size, landmarks="pool")) / 1e6 - millions) < 0.6


def test_tiny_has_the_published_number_of_multiplications_without_those_of_the_inverses() -> None:
    total, inverses = _macs(soft("tiny", landmarks="pool"), torch.zeros(1, 3, 224, 224))
    assert round((total - inverses) / 1e9, 1) == 1.9
    assert 0.15e9 < inverses < 0.2e9  # 20 steps of 2 * 49^3 for each of 46 heads: 0.22e9 at most


@pytest.mark.parametrize(
    ("kind", "landmarks"),
    [("softmax-free", "conv"), ("softmax-free", "pool"), ("softmax-free", "random"), *((kind, "conv") for kind in KINDS[1:])],
)
def test_every_attention_in_every_stage_has_finite_gradients_for_all_parameters(kind: str, landmarks: str, images: Tensor) -> None:
    model = VisionTransformer(soft("digits", attention=(kind,) * 4, landmarks=landmarks, n_features=8))
    F.cross_entropy(model(images), torch.tensor([1, 2, 3])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_queries_and_keys_share_one_projection() -> None:
    free, softmax = (VisionTransformer(_everywhere(kind)).stages[0].blocks[0].attention.project for kind in ("softmax-free", "softmax"))
    assert free.weight.shape == (32, 16)
    assert softmax.weight.shape == (48, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_a_batch_do_not_meet_in_evaluation(kind: str, images: Tensor) -> None:
    model = VisionTransformer(_everywhere(kind)).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(images)[1:2], model(images[1:2]), rtol=1e-4, atol=1e-5)
        assert torch.equal(model(images), model(images))


@pytest.mark.parametrize("kind", KINDS)
def test_no_images_have_no_logits(kind: str, images: Tensor) -> None:
    assert VisionTransformer(_everywhere(kind)).eval()(images[:0]).shape == (0, 10)


COMPILED = """
import torch
from attention.vision import VisionTransformer, soft

model, images = VisionTransformer(soft("digits")).eval(), torch.randn(2, 1, 8, 8)
torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(images), model(images))
"""


@pytest.mark.slow
def test_whole_transformer_is_one_compiled_graph() -> None:
    # in a process without the shape checks of the tests, which no compiler sees through
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]


def test_seed_fixes_the_weights_and_leaves_the_global_generator(images: Tensor) -> None:
    before = torch.get_rng_state()
    one, same, other = (VisionTransformer(_everywhere("favor"), rng=rng).eval()(images) for rng in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_sides_of_any_image_with_windows_that_do_not_fit() -> None:
    config = soft("digits", image_size=11, landmark_strides=(3, 4, 2, 1))
    assert config.sides == (11, 6, 3, 2)
    assert VisionTransformer(config)(torch.randn(2, 1, 11, 11)).shape == (2, 10)
    assert soft("tiny").sides == (56, 28, 14, 7)


def test_class_token_passes_the_convolution_unchanged() -> None:
    config = soft("digits", conv=(3, 3, 3, 3), image_size=16)
    attention = VisionTransformer(config).stages[3].blocks[0].attention
    v = torch.randn(2, 4, 5, 16)
    out = attention._convolved(v)
    assert torch.equal(out[:, :, 0], v[:, :, 0])
    expected = F.conv2d(v[1, :, 1:, 7].view(1, 4, 2, 2), attention.conv.weight, padding=1, groups=4)
    torch.testing.assert_close(out[1, :, 1:, 7], expected[0].flatten(1))


def test_drop_path_keeps_the_mean_and_is_off_in_evaluation(images: Tensor) -> None:
    """10,000 drops with probability 0.4 of a branch that is 1: the mean is within 5 standard errors, a false alarm in 6e-7 of the runs."""
    block = VisionTransformer(soft("digits", drop_path=0.4)).stages[3].blocks[0]
    assert block.drop == pytest.approx(0.4)
    torch.random.manual_seed(0)
    dropped = block._dropped(torch.ones(10_000, 1, 1))
    assert set(dropped.flatten().tolist()) == {0.0, float(torch.tensor(1.0) / (1 - block.drop))}
    assert abs(float(dropped.mean()) - 1) < 5 * (0.4 / 0.6 / 10_000) ** 0.5
    assert torch.equal(block.eval()._dropped(images), images)


def test_state_dict_is_strict_and_gives_the_same_logits(images: Tensor) -> None:
    for kind, landmarks in (("softmax-free", "conv"), ("softmax-free", "random"), ("favor", "pool")):
        config = soft("digits", attention=(kind,) * 4, landmarks=landmarks, n_features=8)
        model, fresh = VisionTransformer(config, rng=0), VisionTransformer(config, rng=1)
        model(images)  # moves the batch norms
        fresh.load_state_dict(copy.deepcopy(model.state_dict()), strict=True)
        assert torch.equal(model.eval()(images), fresh.eval()(images))


def test_bfloat16_autocast_trains(images: Tensor) -> None:
    model = VisionTransformer(soft("digits"))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images)
    assert logits.dtype == torch.bfloat16
    logits.float().square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in model.parameters())


def _digits() -> tuple[Tensor, Tensor]:
    """1,797 digits of scikit-learn in a fixed random order."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return torch.tensor(x / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8)[order], torch.tensor(y)[order]


def _train(model: nn.Module, x: Tensor, y: Tensor, *, n_epochs: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    losses = []
    for _ in range(n_epochs):
        for images, labels in zip(x.split(50), y.split(50)):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model.eval()(x).argmax(-1) == y).float().mean())


def test_loss_on_digits_falls_in_a_few_steps() -> None:
    x, y = _digits()
    model = VisionTransformer(soft("digits"))
    losses = _train(model, x[:700], y[:700], n_epochs=1)
    assert sum(losses[-3:]) / 3 < 1.5 < 2.2 < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "landmarks"), [("softmax-free", "conv"), ("softmax-free", "pool"), ("softmax", "conv"), ("favor", "conv")]
)
def test_digits_are_learned_with_every_attention_and_not_from_shuffled_labels(kind: str, landmarks: str) -> None:
    x, y = _digits()
    config = soft("digits", attention=(kind,) * 3 + ("softmax",), landmarks=landmarks)
    model = VisionTransformer(config)
    _train(model, x[:1400], y[:1400], n_epochs=6)
    assert _accuracy(model, x[1400:], y[1400:]) > 0.94
    if landmarks == "pool":  # the control
        model = VisionTransformer(config)
        shuffled = y[:1400][torch.randperm(1400, generator=torch.Generator().manual_seed(1))]
        _train(model, x[:1400], shuffled, n_epochs=2)
        assert _accuracy(model, x[1400:], y[1400:]) < 0.3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": (64, 128, 320)}, "dims must be a tuple of four"),
        ({"heads": (3, 4, 10, 16)}, "dims must be multiples of heads"),
        ({"depths": (1, 2, 0, 2)}, "depths must be an integer of at least 1, got 0"),
        ({"conv": (2, 3, 3, 0)}, "conv must be odd or 0"),
        ({"stem": ()}, "stem must be a tuple of strides"),
        ({"landmarks": "best"}, "landmarks must be one of"),
        ({"drop_path": 1.0}, "drop_path must be in"),
        ({"attention": "softmax"}, "attention must be a tuple of four"),
        ({"attention": ("softmax",) * 3 + ("best",)}, "attention must be from .*'favor'.* got 'best'"),
        ({"image_size": 0}, "image_size must be an integer"),
        ({"ridge": -1.0}, "ridge must be at least 0"),
        ({"n_iter": 2.5}, "n_iter must be an integer"),
        ({"normalise": "rows"}, "normalise must be one of"),
    ],
)
def test_bad_sizes_are_named_at_construction(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VisionConfig(**change)


def test_unknown_names_and_wrong_images_are_refused(images: Tensor) -> None:
    with pytest.raises(ValueError, match="size must be one of"):
        soft("giant")
    with pytest.raises(ValueError, match="size must be one of"):
        soft(["tiny"])
    with pytest.raises(ValueError, match="config must be a VisionConfig"):
        VisionTransformer({})
    with pytest.raises(ValueError, match=r"images must be float \(batch, 1, 8, 8\), got .*\(3, 1, 8, 7\)"):
        VisionTransformer(soft("digits"))(images[..., :7])
