"""Rotary position embedding (Su et al., arXiv 2104.09864, eq. 13-16): it acts on queries and keys before the feature map.

Pair i of the coordinates is turned by the angle position * base^(-2i/n), n the number of rotated coordinates. Rotations keep lengths, and
q.k then depends on positions only through their difference; so does a kernel of q.k or of |q - k| (softmax, Gaussian), while the *finite*
features of such a kernel see rotated vectors that their particles were not turned with, and are relative only in expectation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attention.feature_map import described
from particles.arrays import count, flag, positive


def rotary(
    x: Tensor,
    position: Tensor,
    base: float = 10_000.0,
    *,
    rotated: int | None = None,
    interleaved: bool = False,
) -> Tensor:
    """x (batch, head, time, dim) turned by its position, in x's type; angles are float64, the product float32 at least.

    Parameters
    ----------
    position : (time,) or (batch, time), integers; with a recurrent state they go on from `state.position`.
    base : longest wavelength over 2 pi, in tokens.
    rotated : how many of the first coordinates take part (even), all by default; the rest pass through.
    interleaved : pairs are (0, 1), (2, 3), ... (the paper) instead of (0, n/2), (1, n/2 + 1), ... (GPT-NeoX, Llama). The two differ by a
        permutation of the coordinates, so weights trained with one need the same one.

    Raises
    ------
    ValueError
        On an x that is not float (batch, head, time, dim), a position that does not fit it, a base that is not positive, or an odd or too
        large number of rotated coordinates.
    """
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
        raise ValueError(f"x must be float (batch, head, time, dim), got {described(x)}")
    n = x.shape[-1] if rotated is None else count(rotated, "rotated")
    if n % 2 or n > x.shape[-1]:
        raise ValueError(f"rotated must be even and at most {x.shape[-1]}, got {n}")
    _check_position(position, x)
    dtype = torch.promote_types(x.dtype, torch.float32)
    wide = dtype if x.device.type == "mps" else torch.float64  # angles of late tokens need its digits; mps has none
    frequency = positive(base, "base") ** -(torch.arange(0, n, 2, dtype=wide, device=x.device) / n)
    angle = position[..., None].to(wide) * frequency
    angle = angle if position.ndim == 1 else angle[:, None]
    turned = _turn(x[..., :n].to(dtype), angle.cos().to(dtype), angle.sin().to(dtype), flag(interleaved, "interleaved")).to(x.dtype)
    return turned if n == x.shape[-1] else torch.cat((turned, x[..., n:]), -1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    pair = a * cos - b * sin, a * sin + b * cos
    return torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)


def _check_position(position: Tensor, x: Tensor) -> None:
    fits = isinstance(position, Tensor) and position.shape in ((x.shape[2],), (x.shape[0], x.shape[2]))
    if not fits or position.is_floating_point() or position.is_complex() or position.dtype == torch.bool:
        raise ValueError(f"position must hold integers, (time,) or (batch, time) of x {tuple(x.shape)}, got {described(position)}")
