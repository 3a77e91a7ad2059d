"""Feature maps and inputs of the tests of attention, and how two implementations are compared."""

from __future__ import annotations

import math

import torch

from attention.feature_map import MAPS, FeatureMap, feature_map

HEADS, DIM, VALUE = 3, 5, 7
DOUBLE = torch.float64
NAMES = [name for name in MAPS if name != "elu+1"]  # another name of "elu"
SIGNED = [name for name in NAMES if MAPS[name].signed]
POSITIVE = [name for name in NAMES if not MAPS[name].signed]
FAMILIES = ["favor", "softplus", "fourier", "hedgehog", "cosformer"]  # one of every family, where all would take long


def made(name: str = "favor", *, dim: int = DIM, n_features: int = 6, heads: int = HEADS, dtype=DOUBLE, **options) -> FeatureMap:
    """A map with all its parameters learnable; those that must be square are."""
    n_features = MAPS[name].width * dim if MAPS[name].square else n_features
    options = {"learn_offset": True, **options} if name == "cos2" else options
    generator = torch.Generator().manual_seed(1)
    return feature_map(name, dim=dim, n_features=n_features, heads=heads, generator=generator, **options).to(dtype).release()


def inputs(
    n_queries: int,
    n_keys: int | None = None,
    *,
    batch: int = 2,
    heads: int = HEADS,
    kv_heads: int | None = None,
    dim: int = DIM,
    seed: int = 0,
    dtype=DOUBLE,
) -> list[torch.Tensor]:
    """q (batch, head, query, dim), k and v (batch, kv_head, key, dim or VALUE), leaves that want gradients."""
    generator = torch.Generator().manual_seed(seed)
    n_keys, kv_heads = n_queries if n_keys is None else n_keys, heads if kv_heads is None else kv_heads
    shapes = ((heads, n_queries, dim), (kv_heads, n_keys, dim), (kv_heads, n_keys, VALUE))
    drawn = [torch.randn(batch, *shape, generator=generator, dtype=DOUBLE).to(dtype) for shape in shapes]
    return [x.requires_grad_() for x in drawn]


def padding(n_keys: int, batch: int = 2) -> torch.Tensor:
    """A mask with holes that leaves each sequence something."""
    mask = torch.rand(batch, n_keys, generator=torch.Generator().manual_seed(7)) > 0.3
    mask[:, 0] = True
    return mask


def gradients(out: torch.Tensor, wanted: list[torch.Tensor], seed: int = 3) -> list[torch.Tensor]:
    """Of a random linear function of the output."""
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE).to(out.dtype)
    return list(torch.autograd.grad((out * cotangent).sum(), wanted, retain_graph=True))


def assert_same(fast: torch.Tensor, slow: torch.Tensor, wanted: list[torch.Tensor], rtol: float = 1e-9) -> None:
    """Outputs and all gradients agree relative to their largest entry."""
    for a, b in zip([fast, *gradients(fast, wanted)], [slow, *gradients(slow, wanted)], strict=True):
        assert torch.isfinite(a).all()
        torch.testing.assert_close(a, b.to(a.dtype), rtol=rtol, atol=rtol * max(float(b.detach().abs().max()), 1e-3))


def relative(got: torch.Tensor, exact: torch.Tensor) -> float:
    """Frobenius relative error; infinite if something is not finite."""
    return float((got.double() - exact).norm() / exact.norm()) if torch.isfinite(got).all() else math.inf
