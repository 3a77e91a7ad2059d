"""Attention with a Gaussian kernel, no softmax and linear time: SOFT and SOFT++ (arXiv 2110.11945, 2207.03341).

With tokens x and landmarks y, both multiplied by scale^(1/2), and K(a, b) = exp(-|a - b|^2 / 2):
    P = K(y, x) (landmark, token),  A = K(y, y) (landmark, landmark),  S^ = P^T A^+ P,  out = S^ v.
S^ is the Nystrom approximation of S = K(x, x): S - S^ is positive semi-definite, and 0 in the rows of landmarks that are tokens. Queries
are keys (one projection makes both), so that S is symmetric, with ones on its diagonal and no row sums divided out.

A^+ comes from Newton's iteration (Schulz 1933) started at 0.9 * 2 A^T / (|A|_1 |A|_inf), with residual 1 - A X_k = (1 - start)^(2^k).
Twenty steps resolve eigenvalues down to about |A|_1 / 300 and fade out smaller ones, so X is a smooth function of A even where A^+ is not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attention.feature_map import described
from particles.arrays import count, flag, positive

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
    """S^ v of the module's formulas, in O(time * landmark). Any float types, strides and devices; the output has v's type.

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
            inverse = _pinv(a, n_iter, tol, 0.0)[1].view_as(a)
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


def newton_pinv(a: Tensor, *, n_iter: int, tol: float | None = None, ridge: float = 0.0) -> tuple[Tensor, Tensor]:
    """Pseudo-inverse of each matrix by X <- 2X - X A X, and what is left to do: (inverse, residual). Matrix products only.

    Parameters
    ----------
    a : (..., row, column) float32 or float64. Symmetric for attention, but nothing here needs it.
    n_iter : steps. Eigenvalue l of a symmetric matrix becomes (1 - (1 - 1.8 l^2/|A|_1^2)^(2^n_iter)) / l: condition c needs about
        2 log2(c |A|_1/|A|_2) + 3 steps.
    tol : each matrix stops as soon as its residual is at most tol. Steps are always undone that double the least residual so far, which
        rounding does in the null space of a singular matrix after more than -log2(eps) of them.
    ridge : added to the diagonal first (square matrices); the residual is then that of the matrix with the ridge.

    Returns
    -------
    inverse (..., column, row), and residual (...): |A X A - A|_F over a lower bound of |A|_2, so an upper bound of the spectral
    |A X A - A|_2 / |A|_2, computed in float64 from the inverse as returned, without gradient. A zero matrix has inverse and residual 0.

    The gradient is that of the pseudo-inverse, -X^T G X^T + (1 - A X) G^T X X^T + X^T X G^T (1 - X A) (Golub and Pereyra 1973), which for
    an inverse is its first term, wherever 1 - A X is a projector to sqrt(eps). A Gram matrix changes its rank only to second order, so it
    holds for coincident landmarks too. Elsewhere eigenvalues are unresolved, X is no pseudo-inverse, and the steps themselves are repeated
    and differentiated. Singular values may be equal. Under torch.compile the steps are differentiated everywhere, unless they stop by
    themselves: with a tol, or with an n_iter beyond -log2(eps).

    Raises
    ------
    ValueError
        On an a that is not (..., row, column) in float32 or float64, and on arguments out of range.
    """
    matrices, inverse = _pinv(a, n_iter, tol, ridge)
    with torch.no_grad():
        wide = matrices.to(a.dtype if a.device.type == "mps" else torch.float64)
        residual = _residual(wide, wide @ inverse.to(wide.dtype), _largest(wide)).to(a.dtype)
    return inverse.view(*a.shape[:-2], a.shape[-1], a.shape[-2]), residual.view(a.shape[:-2])


def _pinv(a: Tensor, n_iter: int, tol: float | None, ridge: float) -> tuple[Tensor, Tensor]:
    """The matrices with their ridge, (matrix, row, column), and their inverses."""
    if not isinstance(a, Tensor) or a.ndim < 2 or a.dtype not in (torch.float32, torch.float64) or 0 in a.shape[-2:]:
        raise ValueError(f"a must be float32 or float64 (..., row, column), none of the two 0, got {described(a)}")
    n_iter, tol = count(n_iter, "n_iter", least=0), None if tol is None else positive(tol, "tol", zero=True)
    a = a.reshape(-1, *a.shape[-2:]) if a.numel() else a.flatten(0, -3)
    if positive(ridge, "ridge", zero=True):
        if a.shape[-1] != a.shape[-2]:
            raise ValueError(f"ridge needs square matrices, got {ridge!r} and a of shape {tuple(a.shape)}")
        a = a + ridge * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    if not torch.compiler.is_compiling():
        return a, _NewtonPinv.apply(a, n_iter, tol)
    if _stops(a, n_iter, tol):  # what depends on numbers that came out cannot be traced
        return a, torch.compiler.disable(_NewtonPinv.apply)(a, n_iter, tol)
    return a, _steps(a, n_iter)  # the same numbers, with the gradient of the steps


class _NewtonPinv(torch.autograd.Function):
    """a (matrix, row, column) -> X (matrix, column, row); the gradient is the one described in `newton_pinv`."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, n_iter: int, tol: float | None) -> Tensor:
        steps = torch.full_like(a[:, 0, 0], n_iter, dtype=torch.int64)
        x = _stopped(a, steps, tol) if _stops(a, n_iter, tol) else _steps(a, n_iter)
        ctx.save_for_backward(a, x, steps)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        a, x, steps = ctx.saved_tensors
        with torch.autocast(a.device.type, enabled=False):
            rest = _minus(a @ x)
            limit = math.sqrt(torch.finfo(a.dtype).eps)
            unresolved = (rest @ rest - rest).flatten(1).norm(dim=1) > limit
            total = torch.zeros_like(a) if bool(unresolved.all()) else _golub_pereyra(a, x, grad, rest)
            if bool(unresolved.any()):
                index = unresolved.nonzero()[:, 0]
                total = total.index_copy(0, index, _through_steps(a[index], steps[index], grad[index]))
        return total, None, None


def _golub_pereyra(a: Tensor, x: Tensor, grad: Tensor, rest: Tensor) -> Tensor:
    """Gradient of the pseudo-inverse x of a with rest = 1 - a x, for changes of a that keep its rank."""
    g, xt = grad.mT, x.mT
    return -xt @ grad @ xt + rest @ g @ (x @ xt) + (xt @ x) @ g @ _minus(x @ a)


def _through_steps(a: Tensor, steps: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the iterate itself, its start included, by automatic differentiation of repeated steps."""
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        a = a if twice and a.requires_grad else a.detach().requires_grad_()
        return torch.autograd.grad(_steps(a, int(steps.max()), steps), a, grad, create_graph=twice)[0]


def _start(a: Tensor) -> Tensor:
    """0.9 * 2 a^T / (|a|_1 |a|_inf): for symmetric a the 0.9 * 2 a / |a|_1^2 of the paper. |a|_1 |a|_inf >= |a|_2^2."""
    size = a.abs()
    one, infinity = size.sum(-2).amax(-1)[:, None, None], size.sum(-1).amax(-1)[:, None, None]
    return (a / one.masked_fill(one == 0, 1.0) * (1.8 / infinity.masked_fill(infinity == 0, 1.0))).mT


def _steps(a: Tensor, n_iter: int, steps: Tensor | None = None) -> Tensor:
    """Newton's steps from the start; matrix i takes the first steps[i] of them, or all."""
    x = _start(a)
    for k in range(n_iter):
        new = torch.baddbmm(x, x, a @ x, beta=2, alpha=-1)
        x = new if steps is None else new.where(k < steps[:, None, None], x)
    return x


def _stopped(a: Tensor, steps: Tensor, tol: float | None) -> Tensor:
    """The first iterate with residual at most tol, or else the best; `steps` is overwritten with the steps it took.

    Better is a residual below 3/4 of the least so far (slowly resolved eigenvalues give 0.71 a step): meanwhile rounding errors grow in a
    null space, which the residual does not see.
    """
    x, largest, n_iter = _start(a), _largest(a), int(steps.max()) if len(steps) else 0
    target = -1.0 if tol is None else tol
    best, least = x, torch.full_like(largest, math.inf)
    going = torch.ones_like(largest, dtype=torch.bool)
    for k in range(n_iter + 1):
        ax = a @ x
        residual = _residual(a, ax, largest)
        better = going & ((residual < 0.75 * least) | (residual <= target))
        best, least = x.where(better[:, None, None], best), residual.where(better, least)
        steps.masked_fill_(better, k)
        going = going & (residual <= 2 * least) & (residual > target)
        if k == n_iter or not bool(going.any()):
            return best
        x = torch.baddbmm(x, x, ax, beta=2, alpha=-1)
    return best


def _stops(a: Tensor, n_iter: int, tol: float | None) -> bool:
    """Whether residuals have to be watched: for a tolerance, or for rounding errors in a null space, which each step doubles and more than
    -log2(eps) of them can bring to the size of the matrix."""
    return tol is not None or n_iter > -math.log2(torch.finfo(a.dtype).eps)


def _residual(a: Tensor, ax: Tensor, largest: Tensor) -> Tensor:
    """|A X A - A|_F / largest, (matrix,); 0 for a zero matrix."""
    return ((ax @ a - a) / largest.masked_fill(largest == 0, 1.0)[:, None, None]).flatten(1).norm(dim=1)


def _largest(a: Tensor) -> Tensor:
    """A lower bound of |A|_2, (matrix,): three power steps from the longest row, and so at least its length."""
    size = a.abs().amax((1, 2))
    a = a / size.masked_fill(size == 0, 1.0)[:, None, None]  # squares stay in range
    longest = a.norm(dim=-1).argmax(-1)
    v = a.gather(1, longest[:, None, None].expand(-1, 1, a.shape[-1])).mT
    for _ in range(3):
        v = a.mT @ (a @ torch.nn.functional.normalize(v, dim=1))
    return size * (a @ torch.nn.functional.normalize(v, dim=1)).norm(dim=1)[:, 0]


def _minus(product: Tensor) -> Tensor:
    """1 - product."""
    return torch.eye(product.shape[-1], dtype=product.dtype, device=product.device) - product


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
