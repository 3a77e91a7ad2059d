"""Files of a data set in a folder, and what to place there when there are none."""

from __future__ import annotations

import os
from pathlib import Path

from experiments.data.tasks import STREAMS, TASKS, Task

WANTED = (
    "a text folder needs *.tsv or *.tsv.gz files with the columns label and sentence (or text); "
    "a pixel folder one .npz with x_train, y_train, x_test, y_test"
)
ENDS = (".tsv", ".tsv.gz", ".npz")
KNOWN = {**STREAMS, **TASKS}


def named(name: str | None, folder: str | Path | None) -> str:
    """The name of a data set: the one that is given, else the folder's own, else "digits"."""
    return name or ("digits" if folder is None else Path(folder).resolve().name)


def wanted(name: str) -> str:
    """What to place, where, and where it comes from, in words."""
    task = KNOWN.get(name)
    if task is None:
        return WANTED
    return f"{name} needs {task.layout}, from {task.origin}; in general {WANTED}"


def _or_hub(name: str) -> str:
    """What else the loaders can do, which no command has an option for."""
    task = KNOWN.get(name)
    return f"; in Python, hub=True reads {task.hub.id} from the Hugging Face hub" if task and task.hub else ""


def data_files(name: str, folder: Path, ends: tuple[str, ...] = ENDS) -> list[Path]:
    """The data files of ``folder/name`` (or another folder that the task may have) or of ``folder`` itself, sorted.

    A task that names its files gets these only, and a text of `STREAMS` in a folder of another name only files of its own name: any other
    text would do as well. Raises FileNotFoundError that says what to place and where it comes from.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"data folder {str(folder)!r} does not exist; {wanted(name)}")
    task = KNOWN.get(name, Task())
    loose = name not in STREAMS or folder.resolve().name in (name, *task.folders)
    for place in (folder / name, *(folder / other for other in task.folders), folder):
        files = sorted(path for path in place.glob("*") if path.name.endswith(ends))
        if task.files or (place == folder and not loose):
            files = [path for path in files if stem(path) in (task.files or (name,))]
        if files and len(files) >= len(task.files):
            return files
    inner = sorted(path.name for path in folder.iterdir() if path.is_dir())
    hint = f"; folders inside it: {', '.join(inner)}" if inner else ""
    raise FileNotFoundError(f"no data files for {name!r} in {str(folder)!r}{hint}; {wanted(name)}")


def placed(name: str, folder: str, ends: tuple[str, ...] = ENDS) -> list[Path]:
    """`data_files` of `folder`, or of the one that KERNELGAS_DATA names if it is "". FileNotFoundError says what to place."""
    root = folder or os.environ.get("KERNELGAS_DATA", "")
    if not root:
        raise FileNotFoundError(f"data must be a folder with {name} (or KERNELGAS_DATA name one); {wanted(name)}")
    return data_files(name, Path(root), ends)


def found(
    name: str, folder: str | Path | None, hub: bool, built_in: tuple[str, ...] = (), ends: tuple[str, ...] = ENDS
) -> tuple[tuple[Path, int, int], ...] | None:
    """``data_files``, each with the time and size that change when it does; None: to be read from the hub; (): built in."""
    if folder is not None:
        try:
            return tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in data_files(name, Path(folder), ends))
        except FileNotFoundError as error:
            if not hub:
                raise FileNotFoundError(f"{error}{_or_hub(name)}") from None
    if hub:
        return None
    if name not in built_in:
        known = f" (only {', '.join(built_in)} are built in)" if built_in else ""
        raise FileNotFoundError(f"data set {name!r} needs a folder{known}: {wanted(name)}{_or_hub(name)}")
    return ()


def stem(path: Path) -> str:
    """The name without its endings: train of train.tsv.gz."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]
