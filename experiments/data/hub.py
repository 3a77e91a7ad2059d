"""Data sets of the Hugging Face hub, where it can be reached, through the library `datasets`."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.data.files import wanted
from experiments.data.images import image_content
from experiments.data.parts import Content, Part, check_classes, hash_arrays
from experiments.data.tables import complete_parts
from experiments.data.tasks import SCORE, TASKS, Hub

TIMEOUT = 3.0  # seconds for the hub's answer
NEEDS_DATASETS = "the Hugging Face hub needs the library datasets: pip install kernelgas[hf]"


def hub_content(name: str, seed: int) -> Content:
    """Texts or images of a named data set from the hub; a validation part is cut from the training part where there is none.

    Raises
    ------
    FileNotFoundError
        If the name is not in `TASKS` with a place on the hub, or the hub doesn't answer; says which files to place instead.
    """
    hub = TASKS[name].hub if name in TASKS else None
    if hub is None:
        raise FileNotFoundError(f"{name!r} is not known on the Hugging Face hub; {wanted(name)}")
    tables = fetch(name, hub.id, hub.config, hub.parts)
    source = f"{'/'.join(filter(None, (hub.id, hub.config)))} of the Hugging Face hub"
    if hub.columns in (("image",), ("img",)):
        pictures = {part: _pictures(table, hub) for part, table in tables.items()}
        digest = hash_arrays(*(array for part in pictures.values() for array in part))
        return image_content(name, pictures, seed, source, digest)
    texts = {part: _texts(name, table, hub) for part, table in tables.items()}
    digest, scores = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest(), hub.label == SCORE
    parts = complete_parts(name, texts, seed, where=source, scores=scores)
    if not scores:
        check_classes(name, {part: rows.labels for part, rows in parts.items()})
    return Content(name, parts, source, digest, scores)


def fetch(name: str, repository: str, config: str | None, parts: Mapping[str, str]) -> dict[str, Any]:
    """{part: table of the library `datasets`}; FileNotFoundError where the hub can't be reached or doesn't have it."""
    if importlib.util.find_spec("datasets") is None:
        raise ModuleNotFoundError(NEEDS_DATASETS)
    if not offline() and not reachable():
        raise FileNotFoundError(
            f"the Hugging Face hub doesn't answer within {TIMEOUT:g} s (HF_HUB_OFFLINE=1 reads its cache); {wanted(name)}"
        )
    import datasets

    try:
        return {part: datasets.load_dataset(repository, config, split=split) for part, split in parts.items()}
    except (OSError, ValueError) as error:  # among them the library's own: no such data set, nothing in the cache
        raise FileNotFoundError(f"the Hugging Face hub has no {repository!r} for {name!r} ({error}); {wanted(name)}") from error


def offline() -> bool:
    """Whether the library is told to use its cache only."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def reachable() -> bool:
    """Whether the hub answers in time. In a thread, because a search for its address can't be given a limit."""
    answers: list[bool] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(os.environ.get("HF_ENDPOINT", "https://huggingface.co"), timeout=TIMEOUT):
                answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)  # an answer, if not a friendly one
        except OSError:
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return bool(answers)


def _texts(name: str, table: Any, hub: Hub) -> Part:
    """Tuples of texts and their labels, as text, or scores; ValueError where rows are not labelled."""
    labels = list(table[hub.label])
    if hub.label == SCORE:
        values: list[Any] = [float(label) for label in labels]
    elif min(labels) < 0:
        raise ValueError(f"{name!r}: {sum(label < 0 for label in labels)} rows of {hub.id!r} have no label")
    else:
        values = [str(label) for label in labels]
    return Part(list(zip(*(table[column] for column in hub.columns))), values)


def _pictures(table: Any, hub: Hub) -> Part:
    """Grey images and class numbers."""
    images = np.stack([np.asarray(image.convert("L"), np.float32) for image in table[hub.columns[0]]])
    return Part(images, np.asarray(table[hub.label], np.int64))
