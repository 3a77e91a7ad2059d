"""The five tasks of the Long Range Arena as data sets, and the sizes of the models that are trained on them.

The sizes "paper" are those of the benchmark's own configurations (google-research/long-range-arena, lra_benchmarks/*/configs, at
commits 4954d9f and 6d5e5ca): ListOps 6 layers of 512 with 8 heads and 2,048 hidden units; text 4 of 256, 4, 1,024; retrieval 4 of 128, 4,
512; image one of 32, 1, 64; Pathfinder one of 128, 4, 128. Batches of 32 (image 256, Pathfinder 512) sequences; 5,000 steps of ListOps
and retrieval, 20,000 of text, 200 epochs of images; first class token, mean of the tokens for Pathfinder. What differs: their
Pathfinder has queries, keys and values of half the width; their text has 1,000 bytes in the configuration and 4,000 in the paper, which we
take; their learning rate falls as the inverse root of the step, ours along a cosine. Retrieval reads its two documents as one sequence
with a separator, so that attention may compare them; theirs encodes them apart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.data import Dataset, ListOps, Pathfinder, load
from experiments.linear_plan import rehearsed
from experiments.linear_rows import Row, built, model_config

if TYPE_CHECKING:
    from attention.model import Transformer

GENERATED = ("listops", "pathfinder", "digits")  # need no folder
LONGEST = {"listops": 2000, "text": 4000, "retrieval": 8000, "image": 1024, "pathfinder": 1024}  # tokens at the paper's sizes


@dataclass(frozen=True)
class Size:
    """What is read and how large the model is."""

    source: str  # name of the data set
    options: dict[str, Any]  # of `data.load`
    typical: int  # tokens of a sequence, about: for the estimate alone
    n_train: int  # training sequences
    n_test: int  # test sequences
    n_epochs: int
    batch_size: int
    dim: int
    heads: int
    layers: int
    ff: int
    n_features: int  # of a head
    dropout: float = 0.1
    lr: float = 3e-3
    weight_decay: float = 0.01
    pooling: str = "mean"
    vocab_size: int = 259  # for the estimate alone
    n_classes: int = 2  # likewise


_SMALL: dict[str, Any] = {"dim": 32, "heads": 2, "layers": 2, "ff": 64, "n_features": 32}
_ONE: dict[str, Any] = {"dim": 32, "heads": 1, "layers": 1, "ff": 64, "n_features": 32}  # the benchmark's own model of images
_TINY: dict[str, Any] = {"dim": 16, "heads": 2, "layers": 1, "ff": 16, "n_features": 16}
_TREES: dict[str, Any] = {"vocab_size": 17, "n_classes": 10}
_BYTES: dict[str, Any] = {"tokeniser": "bytes", "max_length": 256}
_PIXELS: dict[str, Any] = {"tokeniser": "pixels", "pool": 2}
_LONG: dict[str, Any] = {"pooling": "cls", "weight_decay": 0.1}
_WORDS: dict[str, Any] = {"tokeniser": "words", "max_length": 40, "min_count": 3}
SIZES: dict[str, dict[str, Size]] = {
    "smoke": {
        "listops": Size("listops", {"rule": ListOps(5, 30, 3, 3)}, 15, 100, 60, 2, 32, **_TREES, **_TINY),
        "image": Size("digits", _PIXELS, 16, 100, 60, 2, 32, n_classes=10, **_TINY),
        "pathfinder": Size("pathfinder", _PIXELS | {"pool": 4, "rule": Pathfinder(contour=6)}, 64, 60, 40, 2, 32, **_TINY),
    },
    "cpu": {
        "listops": Size("listops", {"rule": ListOps(20, 100, 5, 5)}, 40, 8000, 2000, 3, 32, **_TREES, **_SMALL),
        "text": Size("imdb", _BYTES, 256, 12_000, 2000, 2, 32, **_SMALL | {"layers": 1}),
        "retrieval": Size("qqp_subset", _WORDS, 25, 8000, 2000, 3, 32, vocab_size=6000, **_SMALL),
        "image": Size("cifar10_grey_subset", _PIXELS, 256, 6000, 2000, 4, 16, n_classes=10, **_ONE),
        "pathfinder": Size("pathfinder", _PIXELS | {"rule": Pathfinder(contour=6)}, 256, 6000, 2000, 2, 32, **_ONE),
    },
    "paper": {
        "listops": Size("listops", {}, 1000, 96_000, 2000, 2, 32, 512, 8, 6, 2048, 128, lr=1.6e-3, **_TREES, **_LONG),
        "text": Size("imdb", _BYTES | {"max_length": 4000}, 1300, 25_000, 25_000, 26, 32, 256, 4, 4, 1024, 128, lr=5.6e-4, **_LONG),
        "retrieval": Size("aan", _BYTES | {"max_length": 8000}, 8000, 147_086, 17_437, 2, 32, 128, 4, 4, 512, 64, lr=5.6e-4, **_LONG),
        "image": Size(
            "cifar10_grey", {"tokeniser": "pixels"}, 1024, 45_000, 10_000, 200, 256, 32, 1, 1, 64, 32, dropout=0.3, lr=5e-4, n_classes=10,
            weight_decay=0.0, pooling="cls",
        ),
        "pathfinder": Size(
            "pathfinder", {"tokeniser": "pixels"}, 1024, 160_000, 20_000, 200, 512, 128, 4, 1, 128, 64, dropout=0.2, lr=1e-3,
            weight_decay=0.0,
        ),
    },
}  # fmt: skip


def size(name: str, task: str) -> Size:
    """The size of a task; ValueError if these sizes lack it."""
    if task not in SIZES[name]:
        raise ValueError(f"tasks must be some of {list(SIZES[name])} with size={name!r}, got {task!r}")
    return SIZES[name][task]


def check(of: Size, folder: str) -> None:
    """FileNotFoundError if the files of a size are not there."""
    from experiments.data.files import placed

    if of.source not in GENERATED:
        placed(of.source, folder)


def data(of: Size, folder: str, *, n_train: int | None = None) -> Dataset:
    """The data of a size, generated or from the folder (by default that of KERNELGAS_DATA); 1,000 validation rows at most."""
    place = None if of.source in GENERATED else folder or os.environ.get("KERNELGAS_DATA")
    limits: dict[str, Any] = {"max_train": n_train or of.n_train, "max_validation": min(1000, of.n_test), "max_test": of.n_test}
    return load(of.source, place, **of.options, **limits)


def model(of: Size, row: Row, seed: int, read: Dataset) -> Transformer:
    """The untrained model of a row on the data that were read."""
    sizes = {name: getattr(of, name) for name in ("dim", "heads", "layers", "ff", "dropout", "pooling", "n_features")}
    return built(row, seed, n_classes=read.n_classes, vocab_size=read.vocab_size, max_length=read.max_length, **sizes)


def cost(of: Size, row: Row) -> float:
    """Operations of one typical sequence forwards."""
    from attention.counts import counts

    return counts(model_config(row, max_length=of.typical, **_known(of)), of.typical)["total"].flops


def _known(of: Size) -> dict[str, Any]:
    """Sizes of a model that are known before any data."""
    names = ("dim", "heads", "layers", "ff", "dropout", "pooling", "n_features", "vocab_size", "n_classes")
    return {name: getattr(of, name) for name in names}


def rehearse(name: str, row: Row, task: str) -> str:
    """Two steps of a row at the full length on one random sequence, in words; nothing is read or written."""
    import torch
    from torch.nn.functional import cross_entropy

    of, longest, generator = SIZES[name][task], LONGEST[task], torch.Generator().manual_seed(0)
    untrained = built(row, 0, max_length=longest, **_known(of))
    tokens = torch.randint(of.vocab_size, (1, longest), generator=generator)
    batch, label = {"tokens": tokens, "key_mask": torch.ones(1, longest, dtype=torch.bool)}, torch.zeros(1, dtype=torch.int64)
    n_steps = of.n_epochs * -(-of.n_train // of.batch_size)
    return rehearsed(task, untrained, lambda: cross_entropy(untrained(batch), label), of, n_steps, longest)
