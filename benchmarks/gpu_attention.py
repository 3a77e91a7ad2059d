"""Kernel attention on a GPU: every map and form against float64 on the CPU, and times against SDPA and flash-linear-attention.

    python -m benchmarks.gpu [--device cuda] [--quick]

Rows of `benchmarks.gpu`. Errors are relative root-mean-square errors of outputs and gradients, the larger of the two, on inputs
N(0, I) / 2 of two batch entries, three heads and 150 tokens (two chunks and a rest). "ms" is one forward and backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attention import FeatureMap, feature_map, kernel_attention
from attention.naive import naive_attention

NAMES = (
    "favor", "favor-hyperbolic", "softplus", "porf-softplus", "elu", "sigmoid2", "softmaxfeat", "cos2", "fourier", "rfa", "phase",
    "flexformer", "flexformer-nonstationary", "hedgehog", "hedgehog-joint", "hedgehog-softmax", "exponential", "optimal-positive",
    "data-aware", "linear", "identity", "polaformer", "cosformer",
)  # fmt: skip
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
DIM, HEADS, FEATURES, TIME = 16, 3, 32, 150
Row = dict[str, Any]


def made(name: str, dtype: torch.dtype) -> FeatureMap:
    """A map by name on the CPU; the features of some are as many as their inputs."""
    size = DIM if name in ("linear", "identity") else FEATURES
    generator = torch.Generator().manual_seed(0)
    return feature_map(name, dim=DIM, n_features=size, heads=HEADS, generator=generator, dtype=torch.float64).to(dtype)


def forms(signed: bool) -> dict[str, dict[str, Any]]:
    """What is asked of a map; a window needs a positive one."""
    mask = torch.arange(TIME) < torch.tensor([[TIME], [TIME - 40]])
    window = {} if signed else {"window": {"window": 20}, "causal, window": {"window": 20, "is_causal": True}}
    return window | {
        "bidirectional": {},
        "causal": {"is_causal": True},
        "padded": {"key_mask": mask},
        "causal, padded": {"is_causal": True, "key_mask": mask},
        "by matrix": {"is_causal": True, "form": "quadratic"},
        "recurrent": {"is_causal": True, "cut": TIME // 3},
    }


def run(quick: bool, device: str) -> list[Row]:
    """One row a map, form and type, then the times."""
    types = (torch.float32,) if quick else tuple(BOUNDS)
    rows = [row for name in (NAMES[:3] if quick else NAMES) for dtype in types for row in checks(name, dtype, device)]
    return rows + [row for causal in (False, True) for row in times(causal, device, 64 if quick else 8192)]


def checks(name: str, dtype: torch.dtype, device: str) -> Iterator[Row]:
    """Errors of one map in all forms; inputs are exact in both types, and parameters float32."""
    generator = torch.Generator().manual_seed(1)
    exact, single = made(name, torch.float64), made(name, torch.float32).to(device)
    exact.load_state_dict(single.state_dict())  # the same particles to the last bit
    qkv = [(torch.randn(2, HEADS, TIME, DIM, generator=generator) / 2).to(dtype) for _ in range(3)]
    for form, options in forms(exact.signed).items():
        error, bound = _distance(qkv, exact, single, options, device), BOUNDS[dtype]
        yield {
            "what": f"{name}, {form}", "type": str(dtype).removeprefix("torch."), "N": TIME, "dim": DIM, "error": error,
            "bar": f"error <= {bound:g}", "passed": error <= bound,
        }  # fmt: skip


def _distance(qkv: list[Tensor], exact: FeatureMap, single: FeatureMap, options: dict[str, Any], device: str) -> float:
    """The largest relative error of the output and the gradients of q, k, v and all parameters."""
    slow, fast = [x.double().requires_grad_() for x in qkv], [x.to(device).requires_grad_() for x in qkv]
    how = "count" if exact.signed else "sum"  # the size of a signed sum can be anything
    expected = naive_attention(*slow, exact, normalise=how, **{key: x for key, x in options.items() if key not in ("form", "cut")})
    out = _attended(fast, single, normalise=how, **{key: x.to(device) if isinstance(x, Tensor) else x for key, x in options.items()})
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    fast, slow = (x + [p for p in fm.parameters() if p.requires_grad] for x, fm in ((fast, single), (slow, exact)))
    grads = torch.autograd.grad(out, fast, slope.to(out), allow_unused=True)
    true = torch.autograd.grad(expected, slow, slope, allow_unused=True)
    pairs = [(out.detach(), expected.detach())] + [(a, b) for a, b in zip(grads, true) if a is not None and b is not None and b.any()]
    return max(float((a.cpu().double() - b).norm() / b.norm()) for a, b in pairs)


def _attended(x: list[Tensor], fm: FeatureMap, cut: int = 0, **options: Any) -> Tensor:
    """`kernel_attention`, through a state in the middle of the sequence if there is a cut."""
    if not cut:
        return kernel_attention(*x, fm, **options)
    first, state = kernel_attention(*(t[:, :, :cut] for t in x), fm, return_state=True, **options)
    return torch.cat((first, kernel_attention(*(t[:, :, cut:] for t in x), fm, state=state, **options)), 2)


def times(is_causal: bool, device: str, n: int) -> list[Row]:
    """Forward and backward of 128 features, bfloat16, 8 sequences of 8 heads of 64."""
    from benchmarks.gpu import seconds

    favor = feature_map("favor", dim=64, n_features=128, heads=8, generator=torch.Generator().manual_seed(0)).freeze().to(device)
    methods: dict[str, Callable[..., Tensor]] = {
        "SDPA": lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=is_causal),
        "kernelgas favor": lambda q, k, v: kernel_attention(q, k, v, favor, is_causal=is_causal),
    }
    if is_causal:
        try:
            from fla.ops.linear_attn import chunk_linear_attn  # positive features by softplus; (batch, time, head, dim)
        except ImportError:
            pass
        else:
            methods["flash-linear-attention"] = lambda q, k, v: chunk_linear_attn(
                *(torch.nn.functional.softplus(t.transpose(1, 2)) for t in (q, k)), v.transpose(1, 2), normalize=True
            )[0]
    qkv = [torch.randn(8 if n > 1000 else 1, 8, n, 64, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    rows = []
    for name, method in methods.items():
        taken = seconds(lambda: torch.autograd.grad(method(*qkv).sum(), qkv), device)  # noqa: B023
        kind = "causal" if is_causal else "bidirectional"
        rows.append({"what": f"{name}, {kind}", "type": "bfloat16", "N": n, "dim": 64, "ms": 1e3 * taken})
    return rows
