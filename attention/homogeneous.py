"""Feature maps that grow like a power of x: the identity, cosFormer's rectified map and PolaFormer's powers.

Their papers have no frequencies. Here they act on omega.x, and omega starts as a frozen identity: released, it is a learned projection.
The scale of a token is its largest feature, so a token of zeros has scale 1 and features 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attention.base import FeatureMap, Particles, described, projected
from particles.arrays import count, positive

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Identity(FeatureMap):
    """phi = omega x: the kernel q.k itself, a signed control."""

    @property
    def signed(self) -> bool:
        """True: q.k has either sign."""
        return True

    def _features(self, x: Tensor, omega: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        return _scaled(projected(x, omega)[..., None, :])


class CosFormer(FeatureMap):
    """relu(omega x) times (cos, sin) of pi position/(2 horizon) (cosFormer, arXiv 2202.08791, eq. 10).

    The kernel is relu(q).relu(k) cos(pi (i - j)/(2 horizon)), positive up to the horizon.

    Parameters
    ----------
    name, particles : see `FeatureMap`.
    horizon : positions 0 to horizon - 1 are allowed; the paper takes the longest sequence.
    """

    width = 2
    positional = True

    def __init__(self, name: str, particles: Particles, *, horizon: int = 4096) -> None:
        super().__init__(name, particles)
        self.horizon = count(horizon, "horizon")

    def _features(self, x: Tensor, omega: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        angle = 0.5 * math.pi / self.horizon * self._checked(position, x).to(x.dtype)
        log_scale, phi = _scaled(projected(x, omega).relu()[..., None, :])
        wave = torch.stack((angle.cos(), angle.sin()), -1)
        return log_scale, phi * (wave if wave.ndim == 2 else wave[:, None])[..., None]

    def _checked(self, position: Tensor | None, x: Tensor) -> Tensor:
        """Integers (time,) or (batch, time) within the horizon; ValueError otherwise (RuntimeError in compiled code)."""
        shapes = ((x.shape[2],), (x.shape[0], x.shape[2]))
        if not isinstance(position, Tensor) or position.dtype not in _INTEGERS or position.shape not in shapes:
            raise ValueError(f"position must be integers of shape {shapes[0]} or {shapes[1]}, got {described(position)}")
        position = position.long()  # narrower types would wrap the horizon around
        inside = ((position >= 0) & (position < self.horizon)).all()
        if torch.compiler.is_compiling():
            torch._assert_async(inside, f"position must be in 0 to {self.horizon - 1} (horizon)")
        elif not inside:
            raise ValueError(f"position must be in 0 to {self.horizon - 1} (horizon), got {int(position.min())} to {int(position.max())}")
        return position


class PolaFormer(FeatureMap):
    """Powers of the positive and of the negative part, kept apart (PolaFormer, arXiv 2501.15061).

    With z = omega x, z+ = relu(z)^p, z- = relu(-z)^p and powers p = 1 + alpha sigmoid(power), learned for each head and coordinate:
    phi(k) = (k+, k-), phi(q) = (q+ + g q-, q- + g q+): pairs of one sign give q+ k+ + q- k-, pairs of opposite signs g (q+ k- + q- k+).
    In the paper the two streams read different halves of the values and a learned gate of the tokens weighs them; a kernel has one
    stream, and here g = exp(log_opposite), learned for each head, is what the gate is to it. PolaFormer's depthwise convolution of the
    values and its positional encoding belong to the layer, not to the map.

    Parameters
    ----------
    name, particles : see `FeatureMap`.
    alpha : powers lie between 1 and 1 + alpha (4 in the authors' code); they start in the middle.
    opposite : first g, positive; ours.
    """

    width = 2

    def __init__(self, name: str, particles: Particles, *, alpha: float = 4.0, opposite: float = 0.5) -> None:
        super().__init__(name, particles)
        self.alpha = positive(alpha, "alpha")
        zeros = self.omega.detach().new_zeros
        self.power = nn.Parameter(zeros(self.omega.shape[:2]))
        self.log_opposite = nn.Parameter(zeros(self.heads) + math.log(positive(opposite, "opposite")))

    def _features(self, x: Tensor, omega: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        z = projected(x, omega)
        log = z.abs().where(z != 0, 1).log() * (1 + self.alpha * self.power.to(z.dtype).sigmoid())[:, None]
        log = log.masked_fill(z == 0, -math.inf)
        top = log.detach().amax(-1)
        top = top.masked_fill(top == -math.inf, 0.0)
        size = (log - top[..., None]).exp()
        parts = torch.stack((size.masked_fill(z < 0, 0), size.masked_fill(z > 0, 0)), -2)  # NaN stays NaN
        if role == "query":
            parts = parts + self.log_opposite.to(z.dtype).exp()[:, None, None, None] * parts.flip(-2)
        return top, parts


def _scaled(value: Tensor) -> tuple[Tensor, Tensor]:
    """(log of the largest size, value divided by it) over the last two axes; (0, 0) where all are 0."""
    top = value.detach().abs().amax((-2, -1))
    top = top.where(top > 0, 1.0)
    return top.log(), value / top[..., None, None]
