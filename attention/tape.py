"""Features of one block of time after another, and their gradients: by autograd for any map, by hand for positive exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from attention.base import log_mean
from attention.blocks import Call
from attention.particle_map import ParticleMap
from particles.features import PositiveExponential, exponent_shift


class Block(NamedTuple):
    """A block's input with the features that it has."""

    x: Tensor
    log_scale: Tensor
    features: Tensor
    role: str


class Given:
    """Features, with their history, of a map that has `tensors` as its parameters and buffers."""

    def __init__(self, call: Call, tensors: dict[str, Tensor]) -> None:
        self.call, self.tensors = call, tensors

    def features(self, x: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `Call.features`."""
        where = {"role": role} if position is None else {"role": role, "position": position}
        return functional_call(self.call.feature_map, self.tensors, (x.to(self.call.dtype) * self.call.root,), where)


class Tape:
    """Computes features, by autograd, and holds on to what their gradient needs: of the last block only, or of all if `keep`.

    Once rewound it gives the kept blocks away, the last one first, and whatever it has no longer is computed again.

    Parameters
    ----------
    call : its feature map may be any module.
    tensors : parameters and buffers of the map by name.
    needs : whether gradients are wanted of queries, of keys and of each tensor.
    """

    def __init__(self, call: Call, tensors: dict[str, Tensor], needs: Sequence[bool], *, keep: bool) -> None:
        self.call, self.keep = call, keep
        self.needs = {"query": needs[0], "key": needs[1]}
        self.tensors = {name: x.detach().requires_grad_(need) for (name, x), need in zip(tensors.items(), needs[2:])}
        self.kept: list[Block] = []
        self.left: list[Block] = []
        self.grads: dict[str, Tensor] = {}

    def rewind(self) -> None:
        """Turn round for a backward pass."""
        self.left, self.kept, self.keep, self.grads = self.kept, [], False, {}

    def features(self, x: Tensor, role: str, position: Tensor | None) -> tuple[Tensor, Tensor]:
        """(log_scale, features) without history, as `Call.features`."""
        if self.left:
            self.block = self.left.pop()
        else:
            self.block = self._block(x.to(self.call.dtype), role, position)
            if self.keep:
                self.kept.append(self.block)
        return self.block.log_scale.detach(), self.block.features.detach()

    def pull(self, d_features: Tensor, d_log: Tensor | None) -> Tensor | None:
        """The gradient in the last block's x, None if it is 0 or unwanted; those in the tensors add to `grads`. Uses d_features up."""
        outputs = [(self.block.features, d_features), (self.block.log_scale, d_log)]
        outputs = [(y, d) for y, d in outputs if y.requires_grad and d is not None]
        wanted = {name: x for name, x in self.tensors.items() if x.requires_grad}
        if self.block.x.requires_grad:
            wanted[""] = self.block.x
        if not outputs or not wanted:
            return None
        ys, ds = zip(*outputs)
        found = torch.autograd.grad(ys, list(wanted.values()), ds, allow_unused=True)
        grads = {name: grad for name, grad in zip(wanted, found) if grad is not None}
        x = grads.pop("", None)
        for name, grad in grads.items():
            self._add(name, grad)
        return x

    def _block(self, x: Tensor, role: str, position: Tensor | None) -> Block:
        with torch.enable_grad():
            x = x.detach().requires_grad_(self.needs[role])
            return Block(x, *Given(self.call, self.tensors).features(x, role, position), role)

    def _add(self, name: str, grad: Tensor) -> None:
        self.grads[name] = self.grads[name] + grad if name in self.grads else grad


class ExponentialTape(Tape):
    """The same numbers for phi(x) = exp(omega.x - |x|^2/2), with fewer passes over memory."""

    @staticmethod
    def suits(call: Call, dim: int) -> bool:
        """Whether the map is such a one, with nothing around it."""
        phi = call.feature_map
        plain = type(phi) is ParticleMap and type(phi.feature) is PositiveExponential and phi.weights is None and phi.mean
        return plain and phi.omega.shape[-1] == dim and not (phi._forward_hooks or phi._forward_pre_hooks)

    def pull(self, d_features: Tensor, d_log: Tensor | None) -> Tensor | None:
        """See `Tape.pull`."""
        x, _, features, role = self.block
        d_phase, root = d_features.mul_(features), self.call.root
        if self.tensors["omega"].requires_grad:
            grad = (d_phase.mT @ x).mul_(root)
            self._add("omega", grad.sum_to_size(1, *self.tensors["omega"].shape)[0])
        if not self.needs[role]:
            return None
        d_x = d_phase @ self.omega
        return d_x if d_log is None else d_x.addcmul_(x, d_log[..., None], value=-(root**2))

    @cached_property
    def omega(self) -> Tensor:
        """For inputs as they come."""
        return self.tensors["omega"].detach().to(self.call.dtype) * self.call.root

    def _block(self, x: Tensor, role: str, position: Tensor | None) -> Block:
        phi = x.detach() @ self.omega.mT
        shift = exponent_shift(phi.amax(-1))
        phi.sub_(shift[..., None]).exp_()
        if role == "key" or not self.call.cancels:
            shift = shift + log_mean(self.omega) - 0.5 * self.call.root**2 * x.detach().square().sum(-1)
        return Block(x, shift, phi, role)
