"""Pseudo-inverses by matrix products alone: Newton's iteration (Schulz 1933), as softmax-free attention needs them (arXiv 2110.11945).

X <- 2X - X A X from 0.9 * 2 A^T / (|A|_1 |A|_inf), with residual 1 - A X_k = (1 - start)^(2^k). Twenty steps resolve eigenvalues down to
about |A|_1 / 300 and fade out smaller ones, so X is a smooth function of A even where A^+ is not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attention.base import described
from particles.arrays import count, positive


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
    matrices, inverse = pinv(a, n_iter, tol, ridge)
    with torch.no_grad():
        wide = matrices.to(a.dtype if a.device.type == "mps" else torch.float64)
        residual = _residual(wide, wide @ inverse.to(wide.dtype), _largest(wide)).to(a.dtype)
    return inverse.view(*a.shape[:-2], a.shape[-1], a.shape[-2]), residual.view(a.shape[:-2])


def pinv(a: Tensor, n_iter: int, tol: float | None, ridge: float) -> tuple[Tensor, Tensor]:
    """`newton_pinv` without a residual: the matrices with their ridge, (matrix, row, column), and their inverses (matrix, column, row)."""
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
