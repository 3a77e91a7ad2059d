"""Files of a data set in a folder, and what to place there when there are none."""

from __future__ import annotations

from pathlib import Path

WANTED = (
    "a text folder needs *.tsv or *.tsv.gz files with the columns label and sentence (or text); "
    "a pixel folder one .npz with x_train, y_train, x_test, y_test"
)


def named(name: str | None, folder: str | Path | None) -> str:
    """The name of a data set: the one that is given, else the folder's own, else "digits"."""
    return name or ("digits" if folder is None else Path(folder).resolve().name)


def data_files(name: str, folder: Path) -> list[Path]:
    """The .tsv, .tsv.gz or .npz files of ``folder/name`` or of ``folder``; FileNotFoundError names what was looked for."""
    if not folder.is_dir():
        raise FileNotFoundError(f"data folder {str(folder)!r} does not exist; {WANTED}")
    for place in (folder / name, folder):
        files = sorted(path for path in place.glob("*") if path.name.endswith((".tsv", ".tsv.gz", ".npz")))
        if files:
            return files
    inner = sorted(path.name for path in folder.iterdir() if path.is_dir())
    hint = f"; folders inside it: {', '.join(inner)}" if inner else ""
    raise FileNotFoundError(f"no data files for {name!r} in {str(folder)!r}{hint}; {WANTED}")
