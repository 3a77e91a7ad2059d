"""Nystromformer: softmax attention through landmarks of queries and of keys (Xiong et al. 2021, arXiv 2102.03902).

With the landmarks q~ and k~, means of segments of the queries and of the keys, and softmax over rows,
    F = softmax(scale q k~^T), A = softmax(scale q~ k~^T), B = softmax(scale q~ k^T), out = F A^+ B v,
in O(time * landmark). The landmarks come from `attention.landmarks`. A^+ is that of `attention.newton`, whose steps are of second order;
the paper takes six steps of third order to the same inverse. Its depthwise convolution of the values belongs to the layer around this.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from attention.feature_map import described
from attention.newton import pinv
from particles.arrays import positive


def nystromformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    landmarks_q: Tensor,
    landmarks_k: Tensor,
    *,
    scale: float | None = None,
    n_iter: int = 20,
    key_mask: Tensor | None = None,
    landmark_mask: Tensor | None = None,
) -> Float[Tensor, "batch head query value"]:
    """F A^+ B v in float32 at least; the output has v's type.

    Parameters
    ----------
    q, k, v : float (batch, head, query, dim), (batch, head, time, dim), (batch, head, time, value).
    landmarks_q, landmarks_k : (batch, head, landmark, dim) in the units of q and k.
    scale : factor of the products, dim**-0.5 if None.
    n_iter : steps of `newton_pinv`.
    key_mask, landmark_mask : bool (batch, time) and (batch, landmark), True = a token, or a landmark with at least one token. A masked key
        changes nothing; each row needs at least one of both.

    Raises
    ------
    ValueError
        On shapes or masks that do not fit, or what `newton_pinv` refuses.
    """
    _check(q, k, v, landmarks_q, landmarks_k, key_mask, landmark_mask)
    root = (q.shape[-1] ** -0.5 if scale is None else positive(scale, "scale")) ** 0.5
    dtype = torch.float32
    for tensor in (q, k, v):
        dtype = torch.promote_types(dtype, tensor.dtype)
    with torch.autocast(q.device.type, enabled=False):
        x, y, x_mean, y_mean = (root * part.to(dtype) for part in (q, k, landmarks_q, landmarks_k))
        inner = _rows(x_mean, y, key_mask) @ (v.to(dtype) if key_mask is None else v.to(dtype).where(key_mask[:, None, :, None], 0.0))
        a = _rows(x_mean, y_mean, landmark_mask)
        if landmark_mask is not None:
            a = a.where(landmark_mask[:, None, :, None], 0.0)
        inverse = pinv(a, n_iter, None, 0.0)[1].view_as(a)
        return (_rows(x, y_mean, landmark_mask) @ (inverse @ inner)).to(v.dtype)


def naive_nystromformer_attention(
    q: Float[Tensor, "query dim"], k: Float[Tensor, "time dim"], v: Float[Tensor, "time value"], n_landmarks: int
) -> Float[Tensor, "query value"]:
    """The definition for one head in float64, with the exact pseudo-inverse and means of `n_landmarks` equal segments. Slow on purpose."""
    q, k = q.double() * q.shape[-1] ** -0.25, k.double() * k.shape[-1] ** -0.25
    x_mean, y_mean = (torch.stack([part.mean(0) for part in tokens.chunk(n_landmarks)]) for tokens in (q, k))
    f, a, b = ((x @ y.mT).softmax(-1) for x, y in ((q, y_mean), (x_mean, y_mean), (x_mean, k)))
    return f @ torch.linalg.pinv(a) @ b @ v.double()


def _rows(x: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(x y^T) over the y that the mask keeps, with 0 for the others."""
    scores = x @ y.mT
    return (scores if mask is None else scores.masked_fill(~mask[:, None, None], -torch.inf)).softmax(-1)


def _check(
    q: Tensor, k: Tensor, v: Tensor, landmarks_q: Tensor, landmarks_k: Tensor, key_mask: Tensor | None, landmark_mask: Tensor | None
) -> None:
    named = {"q": q, "k": k, "v": v, "landmarks_q": landmarks_q, "landmarks_k": landmarks_k}
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor) or tensor.ndim != 4 or not tensor.is_floating_point():
            raise ValueError(f"{name} must be float (batch, head, time, dim), got {described(tensor)}")
        if tensor.shape[:2] != q.shape[:2] or (name != "v" and tensor.shape[3] != q.shape[3]):
            raise ValueError(f"{name} must have q's batch, head and dim, {tuple(q.shape)}, got {tuple(tensor.shape)}")
    if k.shape[2] != v.shape[2] or k.shape[2] == 0:
        raise ValueError(f"v must have k's time, at least 1, got v {tuple(v.shape)} and k {tuple(k.shape)}")
    if landmarks_q.shape != landmarks_k.shape or landmarks_q.shape[2] == 0:
        raise ValueError(f"landmarks_k must have the shape of landmarks_q, {tuple(landmarks_q.shape)}, got {tuple(landmarks_k.shape)}")
    for name, mask, size in (("key_mask", key_mask, k.shape[2]), ("landmark_mask", landmark_mask, landmarks_q.shape[2])):
        if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (q.shape[0], size)):
            raise ValueError(f"{name} must be bool {(q.shape[0], size)}, got {described(mask)}")
