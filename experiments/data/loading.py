"""One door to every data set: by name, from a folder."""

from __future__ import annotations

from pathlib import Path

from experiments.data.dataset import Dataset
from experiments.data.files import WANTED, data_files, named
from experiments.data.images import digits, pixels
from experiments.data.parts import shorten
from experiments.data.texts import texts


def load(
    name: str | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    *,
    max_length: int = 40,
    min_count: int = 2,
    max_train: int | None = None,
) -> Dataset:
    """Load scikit-learn's digits without a folder, else the files in ``folder/name`` or in ``folder``, called ``named(name, folder)``.

    ``seed`` makes the parts that the files don't give (and the ``max_train`` rows that are kept, class by class, when given);
    ``max_length`` and ``min_count`` (of a word in the training part) concern texts only. Raises FileNotFoundError where the folder or its
    files are missing, ValueError where they can't be understood; both say which files to place.
    """
    name = named(name, folder)
    if folder is None:
        if name != "digits":
            raise FileNotFoundError(f"data set {name!r} needs a folder (only 'digits' is built in): {WANTED}")
        data = digits(seed)
    else:
        files = data_files(name, Path(folder))
        arrays = [path for path in files if path.suffix == ".npz"]
        data = pixels(name, arrays, seed) if arrays else texts(name, files, seed, max_length=max_length, min_count=min_count)
    return data if max_train is None else shorten(data, max_train, seed)
