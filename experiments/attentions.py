"""The attentions of `efficiency` as calls without arguments: one pass over a sequence, or one more token after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attention.feature_map import FeatureMap, feature_map
from attention.landmarks import PooledLandmarks
from attention.linear import State, kernel_attention
from attention.linformer import Linformer
from attention.nystromformer import nystromformer_attention
from attention.seeds import seeded
from attention.softmax_free import softmax_free_attention
from experiments.efficiency import MATRIX, ROWS, SOFTMAX, Calls, Config, rows


def passes(config: Config, mode: str, length: int, seed: int) -> Calls:
    """One pass of each attention over the same inputs."""
    causal, training = mode.endswith("causal"), mode.startswith("training")
    qkv = [part.requires_grad_(training) for part in _inputs(config, length, seed)]

    def call(attend: Callable[..., Tensor], inputs: list[Tensor]) -> None:
        if training:
            torch.autograd.grad(attend(*inputs).sum(), inputs, allow_unused=True)
            return
        with torch.no_grad():
            attend(*inputs)

    found = {name: attention(config, name, length, causal=causal) for name in rows(config, mode, length)}
    short = [part[:, :, : min(64, length)].detach().requires_grad_(training) for part in qkv]
    for attend in found.values():  # what is loaded with a first call would count as its memory
        call(attend, short)
    return {name: partial(call, attend, qkv) for name, attend in found.items()}


def attention(config: Config, name: str, length: int, *, causal: bool) -> Callable[..., Tensor]:
    """A function of q, k, v (batch, head, time, dim). Its parameters are constants: gradients are those of the inputs."""
    if ROWS[name].name:
        phi = _feature_map(config, name, length)
        return lambda q, k, v: kernel_attention(q, k, v, phi, is_causal=causal)
    size = ROWS[name].width * config.dim
    pool = PooledLandmarks(max(1, length // size))
    if name == "soft":
        return lambda q, k, v: softmax_free_attention(q, v, pool(q)[0])
    if name == "nystromformer":
        return lambda q, k, v: nystromformer_attention(q, k, v, pool(q)[0], pool(k)[0])
    if name == "linformer":
        with seeded(0):
            return Linformer(length, min(size, length), heads=config.heads).requires_grad_(False).to(config.device)
    if name == MATRIX:
        mask = torch.ones(length, length, dtype=torch.bool, device=config.device).tril() if causal else None
        return lambda q, k, v: _by_matrix(q, k, v, mask)
    return lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal)


def _by_matrix(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[: q.shape[2], : k.shape[2]], -torch.inf)
    return scores.softmax(-1) @ v


def _feature_map(config: Config, name: str, length: int) -> FeatureMap:
    row, generator = ROWS[name], torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"horizon": length + 1} if row.name == "cosformer" else {}
    phi = feature_map(row.name, dim=config.dim, n_features=row.width * config.dim, heads=config.heads, generator=generator, **options)
    return phi.requires_grad_(False).to(config.device)


def _inputs(config: Config, length: int, seed: int) -> list[Tensor]:
    """q, k and v, N(0, 1/4) each."""
    generator = torch.Generator().manual_seed(seed)
    shape = (config.batch_size, config.heads, length, config.dim)
    return [0.5 * torch.randn(*shape, generator=generator).to(config.device) for _ in range(3)]


def decoding(config: Config, length: int, seed: int) -> tuple[Calls, dict[str, float]]:
    """One more token after `length`, and MiB that are kept between two tokens."""
    q, k, v = _inputs(config, length + 1, seed)
    token = [part[:, :, length:] for part in (q, k, v)]
    calls: Calls = {SOFTMAX: torch.no_grad()(lambda: scaled_dot_product_attention(token[0], k, v))}
    kept = {SOFTMAX: _mib(k, v)}
    for name in rows(config, "decoding", length):
        if ROWS[name].name:
            phi = _feature_map(config, name, length)
            with torch.no_grad():
                state = kernel_attention(q[:, :, :length], k[:, :, :length], v[:, :, :length], phi, is_causal=True, return_state=True)[1]
            calls[name] = partial(_token, token, phi, state)
            kept[name] = _mib(*(part for part in state if torch.is_tensor(part)))
    for call in calls.values():
        call()
    return calls, kept


def _token(token: list[Tensor], phi: FeatureMap, state: State) -> Any:
    """One more token from a state."""
    with torch.no_grad():
        return kernel_attention(token[0], token[1], token[2], phi, is_causal=True, state=state, return_state=True)


def _mib(*tensors: Tensor) -> float:
    return sum(part.numel() * part.element_size() for part in tensors) / 2**20
