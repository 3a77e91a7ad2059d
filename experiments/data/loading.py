"""One door to every data set: by name, from a folder, from the Hugging Face hub, or generated."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.data import listops as lists
from experiments.data import pathfinder as paths
from experiments.data.dataset import Dataset
from experiments.data.files import found, named
from experiments.data.hub import hub_content
from experiments.data.images import digits, image_file, images
from experiments.data.listops import ListOps, listops
from experiments.data.pairs import citation_pairs, review_pairs
from experiments.data.parts import Content, shorten
from experiments.data.pathfinder import Pathfinder, pathfinder
from experiments.data.tables import tables
from experiments.data.texts import texts
from particles.arrays import count, flag

KEPT = 8  # data sets that a process keeps for its next `load`


class Generated(NamedTuple):
    """A generated data set: the class of its rules, and the published sizes of its parts."""

    rule: type
    sizes: Mapping[str, int]


GENERATED = {"listops": Generated(ListOps, lists.SIZES), "pathfinder": Generated(Pathfinder, paths.SIZES)}
BUILT_IN = ("digits", *GENERATED)


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
    rule: ListOps | Pathfinder | None = None,
    hub: bool = False,
) -> Dataset:
    """Load a data set. The second call with the same arguments and files returns the first one's; its arrays are read-only.

    Without a folder: scikit-learn's ``digits``, generated ``listops`` or ``pathfinder``. Else the files in ``folder/name`` or in
    ``folder``, called ``named(name, folder)``. `TASKS` lists the named ones; any folder of tables or images works.

    Parameters
    ----------
    seed : of the parts that the files don't give, of the rows that are kept, of what is generated.
    tokeniser : words (default), wordpiece or bytes for texts; patches (default) or pixels for images (pathfinder: pixels). See
        `tokenisers.tokeniser`, `images.images`. What a tokeniser learns, it learns from the training rows that are kept.
    vocab_size, min_count : of the tokenisers of texts.
    max_length : tokens of a text that are read, from its start; None: 40 words, 128 pieces, 1,024 bytes. Of texts only.
    patch : side of a patch; None: 4 (digits: 2). pool : side of blocks of pixels that are averaged first. Of images only.
    max_train, max_validation, max_test : keep about so many rows of a part, class by class; of what is generated, make so many.
    rule : what is generated; None: the published parameters.
    hub : where there is no folder, or no files in it, read the named data set from the Hugging Face hub.

    Raises
    ------
    FileNotFoundError
        Where the folder or its files are missing, and the hub doesn't have them or isn't asked; says which files to place and where they
        come from.
    ValueError
        Where the files can't be understood, or a setting has no meaning for these data.
    """
    name = named(name, folder)
    limits = {"train": max_train, "validation": max_validation, "test": max_test}
    count(seed, "seed", least=0)
    for part, limit in limits.items():
        if limit is not None:
            count(limit, f"max_{part}")
    if rule is not None and not (name in GENERATED and isinstance(rule, GENERATED[name].rule)):
        raise ValueError(f"rule is of {', '.join(sorted(GENERATED))}, each of its own, got {rule!r} for {name!r}")
    text = {"max_length": max_length, "vocab_size": vocab_size, "min_count": min_count}
    options = (tuple(text.items()), (("patch", patch), ("pool", pool)), tuple(limits.items()), rule)
    return _load(name, found(name, folder, flag(hub, "hub"), BUILT_IN), seed, tokeniser, *options)


@functools.lru_cache(maxsize=KEPT)
def _load(name: str, files: Any, seed: int, kind: str | None, text: Any, image: Any, limits: Any, rule: Any) -> Dataset:
    """What `load` returns, once a process."""
    text, image, limits = dict(text), dict(image), dict(limits)
    if files == () and name == "listops":
        _refuse(name, {"tokeniser": kind, **text, **_given(image)})
        return listops(rule or ListOps(), _sizes(name, limits), seed).locked()
    if files == () and name == "pathfinder":
        content = pathfinder(rule or Pathfinder(), _sizes(name, limits), seed)
    else:
        content = shorten(_content(name, files, seed), limits, seed)
    if isinstance(content.parts["train"].items, list):
        _refuse(name, _given(image))
        return texts(content, kind or "words", **text).locked()
    _refuse(name, {key: text[key] for key in ("vocab_size", "min_count")})
    return images(content, kind or ("pixels" if name == "pathfinder" else "patches"), **image).locked()


def _given(image: dict[str, Any]) -> dict[str, Any]:
    """Settings of images that are not their defaults."""
    return {"patch": image["patch"], "pool": None if image["pool"] == 1 else image["pool"]}


def _refuse(name: str, settings: dict[str, Any]) -> None:
    """ValueError for a setting that has no meaning for these data."""
    for key, value in settings.items():
        if value is not None:
            raise ValueError(f"{key} has no meaning for {name!r}, got {value!r}")


def _sizes(name: str, limits: dict[str, int | None]) -> dict[str, int]:
    """How many sequences of each part to make."""
    return {part: limit or GENERATED[name].sizes[part] for part, limit in limits.items()}


def _content(name: str, files: Any, seed: int) -> Content:
    """Rows of a data set before they become tokens."""
    if files == ():
        return digits(seed)
    if files is None:
        content = hub_content(name, seed)
    else:
        content = _read(name, [path for path, _, _ in files], seed)
    return review_pairs(content, seed) if name == "imdb_pairs" else content


def _read(name: str, files: list[Path], seed: int) -> Content:
    """Rows of the files."""
    if name == "aan":
        return citation_pairs(name, files)
    arrays = [path for path in files if path.suffix == ".npz"]
    return image_file(name, arrays, seed) if arrays else tables(name, files, seed)
