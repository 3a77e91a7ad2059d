"""One door to every data set: by name, from a folder, from the Hugging Face hub, or generated."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.data.dataset import Dataset
from experiments.data.files import data_files, named, wanted
from experiments.data.images import digits, image_file, images
from experiments.data.listops import SIZES as LISTOPS_SIZES
from experiments.data.listops import ListOps, listops
from experiments.data.parts import Content, shorten
from experiments.data.tables import tables
from experiments.data.texts import texts
from particles.arrays import count

KEPT = 8  # data sets that a process keeps for its next `load`
BUILT_IN = ("digits", "listops")


def load(
    name: str | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    *,
    tokeniser: str | None = None,
    vocab_size: int | None = None,
    max_length: int | None = None,
    min_count: int | None = None,
    patch: int | None = None,
    pool: int = 1,
    max_train: int | None = None,
    max_validation: int | None = None,
    max_test: int | None = None,
    rule: ListOps | None = None,
) -> Dataset:
    """Load a data set. The second call with the same arguments and files returns the first one's; its arrays are read-only.

    Without a folder: scikit-learn's ``digits`` or generated ``listops``. Else the files in ``folder/name`` or in ``folder``, called
    ``named(name, folder)``. `TASKS` lists the named ones; any folder of tables or images works.

    Parameters
    ----------
    seed : of the parts that the files don't give, of the rows that are kept, of what is generated.
    tokeniser : words (default), wordpiece or bytes for texts; patches (default) or pixels for images. See `tokenisers.tokeniser`,
        `images.images`. What a tokeniser learns, it learns from the training rows that are kept.
    vocab_size, min_count : of the tokenisers of texts.
    max_length : tokens of a text that are read, from its start; None: 40 words, 128 pieces, 1,024 bytes. Of texts only.
    patch : side of a patch; None: 4 (digits: 2). pool : side of blocks of pixels that are averaged first. Of images only.
    max_train, max_validation, max_test : keep about so many rows of a part, class by class; of what is generated, make so many.
    rule : what is generated; None: the published parameters.

    Raises
    ------
    FileNotFoundError
        Where the folder or its files are missing; says which files to place and where they come from.
    ValueError
        Where the files can't be understood, or a setting has no meaning for these data.
    """
    name = named(name, folder)
    limits = {"train": max_train, "validation": max_validation, "test": max_test}
    count(seed, "seed", least=0)
    for part, limit in limits.items():
        if limit is not None:
            count(limit, f"max_{part}")
    if folder is None and name not in BUILT_IN:
        raise FileNotFoundError(f"data set {name!r} needs a folder (only {', '.join(BUILT_IN)} are built in): {wanted(name)}")
    files = () if folder is None else _stamped(data_files(name, Path(folder)))
    text = {"max_length": max_length, "vocab_size": vocab_size, "min_count": min_count}
    options = (tokeniser, tuple(text.items()), (("patch", patch), ("pool", pool)), tuple(limits.items()), rule)
    return _load(name, files, seed, *options)


def _stamped(files: list[Path]) -> tuple[tuple[Path, int, int], ...]:
    """Files with the time and size that change when they do."""
    return tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in files)


@functools.lru_cache(maxsize=KEPT)
def _load(name: str, files: tuple[Any, ...], seed: int, kind: str | None, text: Any, image: Any, limits: Any, rule: Any) -> Dataset:
    """What `load` returns, once a process."""
    if name == "listops" and not files:
        return listops(rule or ListOps(), _sizes(LISTOPS_SIZES, limits), seed).locked()
    content = _content(name, [path for path, _, _ in files], seed)
    content = shorten(content, dict(limits), seed)
    if isinstance(content.parts["train"].items, list):
        return texts(content, kind or "words", **dict(text)).locked()
    return images(content, kind or "patches", **dict(image)).locked()


def _sizes(published: Mapping[str, int], limits: Any) -> dict[str, int]:
    """How many sequences of each part to make."""
    return {part: published[part] if limit is None else limit for part, limit in limits}


def _content(name: str, files: list[Path], seed: int) -> Content:
    """Rows of a data set before they become tokens."""
    if not files:
        return digits(seed)
    arrays = [path for path in files if path.suffix == ".npz"]
    return image_file(name, arrays, seed) if arrays else tables(name, files, seed)
