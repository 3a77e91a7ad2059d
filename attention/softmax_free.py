"""Attention with a Gaussian kernel, no softmax and linear time: SOFT and SOFT++ (arXiv 2110.11945, 2207.03341).

With tokens x and landmarks y, both multiplied by scale^(1/2), and K(a, b) = exp(-|a - b|^2 / 2):
    P = K(y, x) (landmark, token),  A = K(y, y) (landmark, landmark),  S^ = P^T A^+ P,  out = S^ v.
S^ is the Nystrom approximation of S = K(x, x): S - S^ is positive semi-definite, and 0 in the rows of landmarks that are tokens. Queries
are keys (one projection makes both), so that S is symmetric, with ones on its diagonal and no row sums divided out.

A^+ comes from Newton's iteration (`newton`), a smooth function of A even where A^+ is not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attention.feature_map import described
from attention.newton import newton_pinv, pinv
from particles.arrays import flag, positive

__all__ = ["gaussian", "log_gaussian", "newton_pinv", "normalisation", "softmax_free_attention"]

_NORMALISE = (True, False, None, "landmarks", "tokens")


def softmax_free_attention(
    q: Tensor,
    v: Tensor,
    landmarks: Tensor,
    *,
    scale: float | None = None,
    n_iter: int = 20,
    tol: float | None = None,
    ridge: float = 0.0,
    normalise: bool | str | None = True,
    key_mask: Tensor | None = None,
    landmark_mask: Tensor | None = None,
    is_causal: bool = False,
    return_residual: bool = False,
) -> Any:
    """S^ v with S^ = P^T A^+ P, P = K(landmarks, q) and A = K(landmarks, landmarks), in O(time * landmark).

    Any float types, strides and devices; the output has v's type.

    Parameters
    ----------
    q : (batch, head, time, dim) tokens, queries and keys at once. Kernels are computed in float32 at least (distances in float64 where the
        device has it), autocast or not.
    v : (batch, head, time, value).
    landmarks : (batch, head, landmark, dim) in the units of q, from `attention.landmarks` or anything else; any number of at least 1.
    scale : K = exp(-scale |q_i - q_j|^2 / 2); dim**-0.5 if None.
    n_iter, tol : of `newton_pinv`.
    ridge : A stands for K(y, y) + ridge 1. With a ridge, S^ is a smooth function of the landmarks even where some coincide.
    normalise : with D = diag(d), S^ becomes P^T D^-1/2 A^+ D^-1/2 P.
        True or "landmarks": d = A 1, released as SOFT++. It makes S^ smaller, but its spectral norm still grows with the number of tokens.
        "tokens": d = P 1, the same if the landmarks are the tokens. The spectral norm is then at most |A^+| max_i (P^T 1)_i
        <= landmarks * |A^+|, whatever the number of tokens: D^-1/2 P E^-1/2 has norm 1 for E = diag(P^T 1).
        False or None: plain SOFT.
    key_mask : (batch, time), True = a token. Elsewhere rows of the output are 0 and the content, NaN included, changes nothing and gets no
        gradient.
    landmark_mask : (batch, landmark), the same for landmarks, as windows without any token have none.
    is_causal : there is no causal form, since every landmark sees every token.
    return_residual : also return `newton_pinv`'s residual, (batch, head).

    Returns
    -------
    out (batch, head, time, value), or (out, residual).

    Raises
    ------
    ValueError
        On is_causal=True, shapes or masks that do not fit, no landmark, an unknown normalisation, or what `newton_pinv` refuses.
    """
    if flag(is_causal, "is_causal"):
        raise ValueError("is_causal must be False, got True: softmax-free attention has no causal form")
    over = normalisation(normalise)
    _check(q, v, landmarks, key_mask, landmark_mask)
    scale = q.shape[-1] ** -0.5 if scale is None else positive(scale, "scale")
    dtype = torch.float32
    for tensor in (q, v, landmarks):
        dtype = torch.promote_types(dtype, tensor.dtype)
    with torch.autocast(q.device.type, enabled=False):
        x, y = (_kept(t.to(dtype), mask, 2) for t, mask in ((q, key_mask), (landmarks, landmark_mask)))
        log_p = _kept(_kept(log_gaussian(y, x, scale), landmark_mask, 2, -math.inf), key_mask, 3, -math.inf)
        p = _over_tokens(log_p) if over == "tokens" else log_p.exp()
        a = gaussian(y, y, scale) + positive(ridge, "ridge", zero=True) * torch.eye(y.shape[2], dtype=dtype, device=y.device)
        a = _kept(_kept(a, landmark_mask, 2), landmark_mask, 3)
        if flag(return_residual, "return_residual"):
            inverse, residual = newton_pinv(a, n_iter=n_iter, tol=tol)
        else:
            inverse = pinv(a, n_iter, tol, 0.0)[1].view_as(a)
        inner = p @ _kept(v.to(dtype), key_mask, 2)
        if over == "landmarks":
            weight = _inverse_root(a.sum(-1, keepdim=True))
            inverse = weight * inverse * weight.mT
        out = (p.mT @ (inverse @ inner)).to(v.dtype)
    return (out, residual) if return_residual else out


def normalisation(normalise: bool | str | None) -> str | None:
    """ "landmarks", "tokens" or None for what `softmax_free_attention` takes as `normalise`; ValueError for anything else."""
    if not isinstance(normalise, str | bool | None) or normalise not in _NORMALISE:
        raise ValueError(f"normalise must be one of {_NORMALISE}, got {normalise!r}")
    return "landmarks" if normalise is True else normalise or None


def gaussian(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    """exp(-scale |x_i - y_j|^2 / 2), (..., row, column), of x (..., row, dim) and y (..., column, dim), in their type."""
    return log_gaussian(x, y, scale).exp()


def log_gaussian(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    """-scale |x_i - y_j|^2 / 2, the logarithm of `gaussian`.

    |x|^2 + |y|^2 - 2 x.y loses its digits where tokens lie close together but far from 0: it is computed in float64, from numbers that
    are not rounded by a multiplication before.
    """
    wide = x.dtype if x.device.type == "mps" else torch.float64
    a, b = x.to(wide), y.to(wide)
    squares = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * a @ b.mT
    return (-0.5 * scale * squares.clamp_min(0)).to(x.dtype)


def _over_tokens(log_p: Tensor) -> Tensor:
    """D^-1/2 P with D = diag(P 1), from log P (..., landmark, token). Rows are divided by their sum first: P itself, and all the more the
    derivative of D^-1/2, leave the range of float32 where a landmark is far from all tokens. Rows of -inf become 0."""
    log_sum = log_p.detach().logsumexp(-1, keepdim=True)
    log_sum = log_sum.masked_fill(log_sum == -math.inf, 0.0)
    p = (log_p - log_sum).exp()
    return (0.5 * log_sum).exp() * p * _inverse_root(p.sum(-1, keepdim=True))


def _kept(x: Tensor, mask: Tensor | None, axis: int, other: float = 0.0) -> Tensor:
    """x, but `other` where the mask (batch, n) of the given axis of x is False; never 0 times x."""
    if mask is None:
        return x
    return x.where(mask.view(len(mask), *(mask.shape[1] if i == axis else 1 for i in range(1, x.ndim))), other)


def _inverse_root(x: Tensor) -> Tensor:
    """x^(-1/2), but 0 with zero gradient where x is 0."""
    return x.masked_fill(x == 0, math.inf).rsqrt()


def _check(q: Tensor, v: Tensor, landmarks: Tensor, key_mask: Tensor | None, landmark_mask: Tensor | None) -> None:
    for name, tensor in (("q", q), ("v", v), ("landmarks", landmarks)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 4 or not tensor.is_floating_point():
            raise ValueError(f"{name} must be float (batch, head, time, dim), got {described(tensor)}")
    if v.shape[:3] != q.shape[:3]:
        raise ValueError(f"v must have q's batch, head and time, got v {tuple(v.shape)} and q {tuple(q.shape)}")
    if landmarks.shape[:2] != q.shape[:2] or landmarks.shape[3] != q.shape[3] or 0 in landmarks.shape[2:]:
        raise ValueError(
            f"landmarks must have q's batch, head and dim, and at least one, got landmarks {tuple(landmarks.shape)} and q {tuple(q.shape)}"
        )
    for name, mask, size in (("key_mask", key_mask, q.shape[2]), ("landmark_mask", landmark_mask, landmarks.shape[2])):
        if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (q.shape[0], size)):
            raise ValueError(f"{name} must be bool {(q.shape[0], size)}, got {described(mask)}")
