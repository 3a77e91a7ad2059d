"""The attentions that the vision experiment compares, and the pyramids that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from attention.vision import VisionConfig
    from experiments.vision import Config


class Row(NamedTuple):
    """A row: its attention in stages 1 to 3, and what is special about it."""

    attention: str
    landmarks: str = "pool"
    side: int = 0  # landmarks along a side
    normalise: bool = False  # SOFT++
    particles: str = "fixed"
    spread: float = 0.0  # of the first weights; 0: the pyramid's


MAIN = {
    "softmax": Row("softmax"),
    "linformer": Row("linformer"),
    "performer": Row("favor"),
    "nystromformer": Row("nystromformer"),
    "soft": Row("softmax-free"),
    "soft++": Row("softmax-free", normalise=True),
    "performer, learned": Row("favor", particles="learned"),
    "particles": Row("favor", particles="aligned"),
    "particles, shuffled": Row("favor", particles="shuffled"),
    "particles, width alone": Row("favor", particles="width"),
    "flexformer": Row("flexformer", particles="learned"),
    "exponential": Row("exponential", particles="learned"),
}
OURS = ("particles", "performer, learned", "flexformer", "exponential")  # kernels that learn
LINEAR = ("linformer", "performer", "nystromformer", "soft", "soft++")
TUNED = tuple(name for name in MAIN if name not in ("particles, shuffled", "particles, width alone"))
BOTTLENECK = {f"soft, {side}x{side} landmarks": Row("softmax-free", side=side) for side in (2, 3, 8)}
SAMPLING = {f"soft, {name} landmarks": Row("softmax-free", landmarks=name) for name in ("conv", "random", "first")}
NARROW = {  # the released spread
    f"{name}, spread 0.02": MAIN[name]._replace(spread=0.02)
    for name in ("softmax", "performer", "nystromformer", "soft", "soft++", "particles", "flexformer")
}
ROWS = MAIN | BOTTLENECK | SAMPLING | NARROW
NORMS = {"softmax": "softmax", "soft": "plain", "soft++": "SOFT++", "soft over tokens": "over tokens"}  # as `softmax_free_plots` has them
SIZES: dict[str, dict[str, Any]] = {
    "small": {"stem": (2,), "dims": (16, 32, 48, 64), "heads": (1, 1, 2, 2), "depths": (1, 1, 1, 1), "conv": (5, 3, 3, 0), "ff_ratio": 2,
              "spread": 0.05},  # 0.02 in the published widths, four to eight times these, is the same gain of a layer
    "digits": {"stem": (1,), "dims": (16, 32, 48, 64), "heads": (1, 2, 3, 4), "depths": (1, 1, 1, 1), "conv": (3, 3, 3, 0)},
    "tiny": {}, "small-soft": {"depths": (1, 3, 7, 4)}, "large": {"depths": (1, 3, 40, 5)},
    "medium": {"depths": (1, 3, 29, 5), "dims": (64, 128, 288, 512), "heads": (2, 4, 9, 16)},
    "huge": {"depths": (1, 5, 49, 5), "dims": (64, 128, 352, 512), "heads": (2, 4, 11, 16)},
}  # fmt: skip


def model_config(config: Config, row: Row, side: int, channels: int, n_classes: int) -> VisionConfig:
    """The pyramid of a row for images of `side` pixels: equally many landmarks along a side in all three stages, as far as they go."""
    from attention.vision import VisionConfig

    kind, sizes = (row.attention,) * 3 + ("softmax",), SIZES[config.size] | ({"spread": row.spread} if row.spread else {})
    first = VisionConfig(
        n_classes=n_classes, image_size=side, channels=channels, attention=kind, landmarks=row.landmarks, normalise=row.normalise,
        n_features=config.n_features, drop_path=config.drop_path, **sizes,
    )  # fmt: skip
    wanted = row.side or config.landmarks
    strides = tuple(next(s for s in range(1, grid + 1) if -(-grid // s) <= wanted) for grid in first.sides)
    return VisionConfig(**(vars(first) | {"landmark_strides": strides}))
