"""A vision transformer in the layout of SOFT (arXiv 2110.11945): four stages on grids of halving sides, attention chosen stage by stage.

    image -> [patch embedding -> positions -> blocks] x 4 -> norm of the class token -> logits

Patches are embedded by overlapping 3 x 3 convolutions with batch norm and ReLU. Stages 1 to 3 have post-norm blocks, softmax-free attention
in O(tokens), and a depthwise convolution of the values added to its output. The last grid is small: ordinary softmax in pre-norm blocks,
with a class token in front. All of this as released; `soft` gives the published sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attention.feature_map import described
from attention.grid_attention import GRID_ATTENTION, LANDMARKS, GridAttention
from attention.seeds import seed_from, seeded
from attention.softmax_free import normalisation
from particles.arrays import count, positive, real

_SIZES: dict[
    str, dict[str, Any]
] = {  # published table, whose 24 M parameters of "small" belong to these depths (released code: 1, 3, 20, 4)
    "tiny": {"depths": (1, 2, 3, 2)},
    "small": {"depths": (1, 3, 7, 4)},
    "medium": {"depths": (1, 3, 29, 5), "dims": (64, 128, 288, 512), "heads": (2, 4, 9, 16)},
    "large": {"depths": (1, 3, 40, 5)},
    "huge": {"depths": (1, 5, 49, 5), "dims": (64, 128, 352, 512), "heads": (2, 4, 11, 16)},
    "digits": {  # 8 x 8 grey images on a CPU: grids of 8, 4, 2 and 1 tokens a side
        "n_classes": 10,
        "image_size": 8,
        "channels": 1,
        "stem": (1,),
        "dims": (16, 32, 48, 64),
        "heads": (1, 2, 3, 4),
        "depths": (1, 1, 1, 1),
        "landmark_strides": (2, 2, 1, 1),
        "conv": (3, 3, 3, 0),
        "drop_path": 0.0,
    },
}


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    """Sizes of a `VisionTransformer`, one entry a stage where there are four; checked at construction.

    Parameters
    ----------
    n_classes, image_size, channels : of the images (batch, channels, image_size, image_size).
    stem : strides of the convolutions of the first patch embedding, all but the last with 32 channels. The later embeddings halve the side.
    dims, heads, depths : channels, heads and blocks. dims are multiples of heads.
    attention : "softmax-free" (one projection is queries and keys), "softmax", "nystromformer", "linformer", or a name that
        `attention.feature_map` knows.
    landmarks : of the softmax-free stages: "conv", "pool", "random" or "first" (as many as the others give).
    landmark_strides : side of a landmark's window, in tokens. With the class token, landmarks come from the grid alone.
    conv : side of the depthwise convolution of the values, odd; 0 for none. One filter a head, shared by the head's channels.
    ff_ratio : hidden units of the feed-forward part, in units of dim.
    drop_path : probability of leaving out a residual branch in the last block; linear in depth from 0.
    n_iter, ridge, normalise : of `softmax_free_attention`.
    n_features : of the feature maps, a head.
    spread : standard deviation of the first weights of linear maps. The released 0.02 makes attention almost uniform at first, and in a
        narrow network for long.

    Raises
    ------
    ValueError
        Naming the field and the value received.
    """

    n_classes: int = 1000
    image_size: int = 224
    channels: int = 3
    stem: tuple[int, ...] = (2, 1, 2)
    dims: tuple[int, ...] = (64, 128, 320, 512)
    heads: tuple[int, ...] = (2, 4, 10, 16)
    depths: tuple[int, ...] = (1, 2, 3, 2)
    attention: tuple[str, ...] = ("softmax-free", "softmax-free", "softmax-free", "softmax")
    landmarks: str = "conv"
    landmark_strides: tuple[int, ...] = (8, 4, 2, 1)
    conv: tuple[int, ...] = (9, 5, 3, 0)
    ff_ratio: int = 4
    drop_path: float = 0.1
    n_iter: int = 20
    ridge: float = 0.0
    normalise: bool | str | None = True
    n_features: int = 64
    spread: float = 0.02

    def __post_init__(self) -> None:
        for name in ("n_classes", "image_size", "channels", "ff_ratio", "n_features"):
            count(getattr(self, name), name)
        for name in ("dims", "heads", "depths", "landmark_strides", "conv", "attention"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or len(value) != 4:
                raise ValueError(f"{name} must be a tuple of four, got {value!r}")
            for entry in value if name != "attention" else ():
                count(entry, name, least=0 if name == "conv" else 1)
        if not isinstance(self.stem, tuple) or not self.stem:
            raise ValueError(f"stem must be a tuple of strides, got {self.stem!r}")
        for stride in self.stem:
            count(stride, "stem")
        if any(dim % heads for dim, heads in zip(self.dims, self.heads)):
            raise ValueError(f"dims must be multiples of heads, got {self.dims} and {self.heads}")
        if any(side and side % 2 == 0 for side in self.conv):
            raise ValueError(f"conv must be odd or 0, got {self.conv}")
        for entry in self.attention:
            if entry not in GRID_ATTENTION:
                raise ValueError(f"attention must be from {GRID_ATTENTION}, got {entry!r}")
        if self.landmarks not in LANDMARKS:
            raise ValueError(f"landmarks must be one of {LANDMARKS}, got {self.landmarks!r}")
        count(self.n_iter, "n_iter", least=0)
        positive(self.ridge, "ridge", zero=True)
        positive(self.spread, "spread")
        normalisation(self.normalise)
        if not 0 <= real(self.drop_path, "drop_path") < 1:
            raise ValueError(f"drop_path must be in [0, 1), got {self.drop_path!r}")

    @property
    def sides(self) -> tuple[int, ...]:
        """Tokens along a side of the grid of each stage."""
        side = self.image_size
        for stride in self.stem:
            side = -(-side // stride)
        sides = [side]
        for _ in range(3):
            sides.append(-(-sides[-1] // 2))
        return tuple(sides)


def soft(size: str, **changes: Any) -> VisionConfig:
    """The sizes "tiny", "small", "medium", "large" and "huge" of the published table, or "digits" for 8 x 8 grey images, with changes.

    ValueError on another name.
    """
    if not isinstance(size, str) or size not in _SIZES:
        raise ValueError(f"size must be one of {sorted(_SIZES)}, got {size!r}")
    return VisionConfig(**(_SIZES[size] | changes))


class VisionTransformer(nn.Module):
    """Images (batch, channels, side, side) to logits (batch, n_classes).

    Parameters
    ----------
    config : VisionConfig.
    rng : int, numpy Generator or torch Generator
        Seed of the initial weights and particles. torch's global generator is left as it was; drop-path and random landmarks of training
        use it.
    """

    def __init__(self, config: VisionConfig, *, rng: Any = 0) -> None:
        super().__init__()
        if not isinstance(config, VisionConfig):
            raise ValueError(f"config must be a VisionConfig, got {config!r}")
        self.config = config
        with seeded(seed_from(rng)):
            self.stages = nn.ModuleList([Stage(config, i) for i in range(4)])
            self.norm = nn.LayerNorm(config.dims[-1])
            self.head = nn.Linear(config.dims[-1], config.n_classes)
            self.apply(partial(_initialise, config.spread))

    def forward(self, images: Tensor) -> Float[Tensor, "batch class"]:
        """ValueError unless the images have the configured channels and sides."""
        expected = (self.config.channels, self.config.image_size, self.config.image_size)
        if not isinstance(images, Tensor) or tuple(images.shape[1:]) != expected or not images.is_floating_point():
            raise ValueError(f"images must be float (batch, {', '.join(map(str, expected))}), got {described(images)}")
        x = images
        for stage in self.stages:
            x = stage(x)
        return self.head(self.norm(x))


class Stage(nn.Module):
    """Patch embedding, positions and blocks: (batch, channel, side, side) to a smaller grid; the last stage to its class token."""

    def __init__(self, config: VisionConfig, i: int) -> None:
        super().__init__()
        dim, self.side = config.dims[i], config.sides[i]
        channels, strides = (config.channels, config.stem) if i == 0 else (config.dims[i - 1], (2,))
        self.embed = _embedding(channels, dim, strides)
        self.class_token = nn.Parameter(0.02 * torch.randn(dim)) if i == 3 else None
        self.positions = nn.Parameter(0.02 * torch.randn(self.side**2 + (i == 3), dim))
        before, total = sum(config.depths[:i]), sum(config.depths)
        drops = [config.drop_path * (before + j) / max(total - 1, 1) for j in range(config.depths[i])]
        self.blocks = nn.ModuleList([Block(config, i, drop) for drop in drops])

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, channel, height, width); the patches are embedded, then pass the stage's blocks."""
        x = self.embed(x).flatten(2).mT
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(len(x), 1, -1), x), 1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        return x[:, 0] if self.class_token is not None else x.mT.unflatten(2, (self.side, self.side))


class Block(nn.Module):
    """norm(x + attention(x)), norm(x + ff(x)); in the last stage x + attention(norm x), x + ff(norm x)."""

    def __init__(self, config: VisionConfig, i: int, drop: float) -> None:
        super().__init__()
        dim = config.dims[i]
        self.pre_norm, self.drop = i == 3, drop
        self.attention = GridAttention(config, i)
        self.ff = nn.Sequential(nn.Linear(dim, config.ff_ratio * dim), nn.GELU(approximate="tanh"), nn.Linear(config.ff_ratio * dim, dim))
        self.norm_attention, self.norm_ff = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, dim) to the same."""
        for norm, part in ((self.norm_attention, self.attention), (self.norm_ff, self.ff)):
            x = x + self._dropped(part(norm(x))) if self.pre_norm else norm(x + self._dropped(part(x)))
        return x

    def _dropped(self, x: Tensor) -> Tensor:
        """Drop path: in training the branch is left out of some sequences and scaled up in the others (Huang et al. 2016)."""
        if not self.training or self.drop == 0:
            return x
        return x * x.new_empty(len(x), 1, 1).bernoulli_(1 - self.drop) / (1 - self.drop)


def _embedding(channels: int, dim: int, strides: tuple[int, ...]) -> nn.Sequential:
    """3 x 3 convolutions with batch norm and ReLU, 32 channels in between."""
    layers: list[nn.Module] = []
    for j, stride in enumerate(strides):
        out = dim if j == len(strides) - 1 else 32
        layers += [nn.Conv2d(channels, out, 3, stride=stride, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        channels = out
    return nn.Sequential(*layers)


def _initialise(spread: float, module: nn.Module) -> None:
    """As released: small weights of the linear maps, no offsets. (A landmark convolution keeps its own start.)"""
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.trunc_normal_(module.weight, std=spread)
        nn.init.zeros_(module.bias)
