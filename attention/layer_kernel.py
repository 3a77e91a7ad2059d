"""What stands in for softmax inside one attention layer of a pretrained model."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from attention.feature_map import FeatureMap, described
from attention.linear import State, kernel_attention
from attention.naive import visible


class LayerKernel(nn.Module):
    """What stands in for softmax inside one attention layer: a feature map, and what goes with it.

    Parameters
    ----------
    feature_map : the kernel, for as many heads as the layer has queries, as it has keys, or 1 for all.
    normalise : of `kernel_attention`.
    preprocess : an `attention.invariance.Invariance`, or a module called like one: preprocess(q, k, key_mask) with scaled q and k returns
        new ones and the keys' log weights (batch, head, key), logarithms of factors of their kernels. For exact invariances of softmax
        that cannot be folded into the projections (rotary positions come after those).
    softmax_heads : bool (head,), heads that stay softmax.

    Raises
    ------
    ValueError
        On a feature map, normaliser or softmax_heads of the wrong kind.
    """

    softmax_heads: Tensor | None

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        normalise: str | None = "default",
        preprocess: nn.Module | None = None,
        softmax_heads: Tensor | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(feature_map, nn.Module):
            raise ValueError(f"feature_map must be a FeatureMap, got {feature_map!r}")
        if not isinstance(preprocess, nn.Module | None):
            raise ValueError(f"preprocess must be a module or None, got {preprocess!r}")
        if normalise not in ("default", "sum", "rms", "count", None):
            raise ValueError(f"normalise must be 'default', 'sum', 'rms', 'count' or None, got {normalise!r}")
        if softmax_heads is not None:
            if not isinstance(softmax_heads, Tensor) or softmax_heads.dtype != torch.bool or softmax_heads.ndim != 1:
                raise ValueError(f"softmax_heads must be bool (head,), got {described(softmax_heads)}")
            if len(softmax_heads) == 0 or len(softmax_heads) % feature_map.heads:
                raise ValueError(
                    f"softmax_heads must be a multiple of the feature map's {feature_map.heads} heads, got {len(softmax_heads)}"
                )
        self.feature_map, self.normalise, self.preprocess = feature_map, normalise, preprocess
        self.register_buffer("softmax_heads", None if softmax_heads is None else softmax_heads.clone())
        self.memory: Any = None  # of the one call of attention that follows: what `recurrent_cache` remembers of earlier tokens

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        key_mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        state: State | None = None,
        return_state: bool = False,
        dropout: float = 0.0,
        pairs: tuple[Tensor, Tensor] | None = None,
    ) -> Any:
        """Attention of q (batch, head, time, dim) to k, v of as many heads or fewer: (batch, head, time, dim) [, State].

        With a `state` key_mask may cover earlier tokens too. `pairs` are the keys and values of all tokens so far, of the heads that stay
        softmax, where k and v are only the latest (as `softmax_pairs` returns them); key_mask is then as long as they are.

        Raises
        ------
        ValueError
            As `kernel_attention`; with softmax heads and a `state` but no `pairs`.
        """
        if self.softmax_heads is not None and state is not None and pairs is None:
            raise ValueError("pairs must be given with a state where heads stay softmax: a state does not hold their keys and values")
        recent = key_mask if key_mask is None or state is None else key_mask[:, -k.shape[2] :]
        found = self._kernel(
            q, k, v, key_mask=recent, is_causal=is_causal, scale=scale, state=state, return_state=return_state, dropout=dropout
        )
        if self.softmax_heads is None:
            return found
        out, after = found if return_state else (found, None)
        heads = self.softmax_heads.nonzero()[:, 0]
        keys, values = self.softmax_pairs(k, v) if pairs is None else pairs
        mask = visible(q.shape[2], keys.shape[2], is_causal=is_causal, key_mask=key_mask).to(q.device)
        exact = nn.functional.scaled_dot_product_attention(q[:, heads], keys, values, mask, dropout, scale=scale)
        out = out.index_copy(1, heads, exact.to(out.dtype))
        return (out, after) if return_state else out

    def _kernel(self, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None, dropout: float, **how: Any) -> Any:
        """Kernel attention of all heads."""
        how |= {"normalise": self.normalise, "dropout": dropout}
        if self.preprocess is None:
            return kernel_attention(q, k, v, self.feature_map, scale=scale, **how)
        if how["is_causal"] and getattr(self.preprocess, "centre_keys", False):
            raise ValueError("preprocess must have centre_keys=False in a causal layer, whose rows have different keys, got True")
        root = (q.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
        q, k, log_weight = self.preprocess(q * root, k * root, how["key_mask"])
        q, k = torch.cat((q, torch.zeros_like(q[..., :1])), -1), torch.cat((k, log_weight[..., None]), -1)
        v = v.repeat_interleave(k.shape[1] // v.shape[1], 1)
        return kernel_attention(q, k, v, cast(FeatureMap, Tilted(self.feature_map)), scale=1.0, **how)

    def softmax_pairs(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (batch, kv head, time, dim) as each head that stays softmax reads them, (batch, softmax head, time, dim)."""
        if self.softmax_heads is None:
            raise ValueError("softmax_pairs needs softmax_heads, got None")
        heads = self.softmax_heads.nonzero()[:, 0] // (len(self.softmax_heads) // k.shape[1])
        return k[:, heads], v[:, heads]

    def extra_repr(self) -> str:
        """What the printed module says of itself: the normaliser, and the heads that stay softmax."""
        softmax = "" if self.softmax_heads is None else f", softmax_heads={self.softmax_heads.nonzero()[:, 0].tolist()}"
        return f"normalise={self.normalise!r}{softmax}"


class Tilted(nn.Module):
    """A feature map whose log scale is raised by the last coordinate of its input: a factor of each key (or query)."""

    def __init__(self, feature_map: FeatureMap) -> None:
        super().__init__()
        self.feature_map = feature_map

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "feature_map" else getattr(self.feature_map, name)

    def forward(self, x: Tensor, *, role: str = "query", **position: Any) -> tuple[Tensor, Tensor]:
        """(log_scale, features) of x (..., dim + 1): those of x without its last coordinate, which is added to log_scale."""
        log_scale, features = self.feature_map(x[..., :-1], role=role, **position)
        return log_scale + x[..., -1], features
