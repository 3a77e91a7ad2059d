"""A floor under the denominators of kernels that stand for exp(q.k) but may turn negative, such as Nystrom's.

By Jensen the true denominator, with log weights s_j of the keys, is at least
    Z_i = sum_j exp(q_i.k_j + s_j) >= n exp(q_i.mean_j k_j + mean_j s_j),
a bound that costs linear time, also causally with running means. A denominator below it is raised to it.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention.base import FeatureMap
from attention.layer_kernel import LayerKernel, Tilted
from attention.linear import kernel_attention


class FlooredKernel(LayerKernel):
    """A `LayerKernel` whose denominators are at least Jensen's bound. It has no state, which would need the mean of all keys.

    A row is 0 where both underflow: where no key comes within the type's range of the largest product of features that could have been.
    """

    def log_floor(
        self,
        q: Float[Tensor, "batch head query dim"],
        k: Float[Tensor, "batch head key dim"],
        log_weight: Float[Tensor, "batch head key"],
        key_mask: Bool[Tensor, "batch key"] | None,
        is_causal: bool,
    ) -> Float[Tensor, "batch head query"]:
        """log n + q_i.mean_j k_j + mean_j s_j over the keys that a query sees; 0 for a query without one."""
        keys = torch.cat((k, log_weight[..., None], torch.ones_like(k[..., :1])), -1)
        if key_mask is not None:
            keys = keys.where(key_mask[:, None, :, None], 0)
        total = keys.cumsum(2)[:, :, k.shape[2] - q.shape[2] :] if is_causal else keys.sum(2, keepdim=True)
        n = total[..., -1].clamp(min=1)
        mean = total[..., :-1] / n[..., None]
        return (q * mean[..., :-1]).sum(-1) + mean[..., -1] + n.log()

    def _kernel(self, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None, dropout: float, **how: Any) -> Any:
        if dropout or how.pop("state") is not None or how.pop("return_state"):
            raise ValueError("a floored kernel takes no dropout and has no state, got one of them")
        root = (q.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
        q, k = q * root, k.repeat_interleave(q.shape[1] // k.shape[1], 1) * root
        v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        log_weight = torch.zeros_like(k[..., 0])
        if self.preprocess is not None:
            q, k, log_weight = self.preprocess(q, k, how["key_mask"])
        log_query, top = self.feature_map(q, role="query")[0], self._top(k, log_weight, how["key_mask"], how["is_causal"], q.shape[2])
        floor = (self.log_floor(q, k, log_weight, how["key_mask"], how["is_causal"]) - log_query - top).exp()
        q, k = torch.cat((q, -(log_query + top)[..., None]), -1), torch.cat((k, log_weight[..., None]), -1)
        v = torch.cat((v, torch.ones_like(v[..., :1])), -1)
        found = kernel_attention(q, k, v, cast(FeatureMap, Tilted(self.feature_map)), scale=1.0, normalise=None, **how)
        total = torch.maximum(found[..., -1:], floor[..., None].to(found.dtype))
        return found[..., :-1] / total.where(total > 0, math.inf)

    def _top(self, k: Tensor, log_weight: Tensor, key_mask: Tensor | None, is_causal: bool, n_queries: int) -> Tensor:
        """The largest log scale among the keys that a query sees, relative to which sums are of size 1; 0 without a key."""
        log_key = self.feature_map(k, role="key")[0] + log_weight
        if key_mask is not None:
            log_key = log_key.masked_fill(~key_mask[:, None], -math.inf)
        top = log_key.cummax(-1).values[..., log_key.shape[-1] - n_queries :] if is_causal else log_key.amax(-1, keepdim=True)
        return top.where(top > -math.inf, 0).detach()
