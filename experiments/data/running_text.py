"""Running text in three parts, from files, tables of reviews, or the Hugging Face hub."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.data.files import wanted
from experiments.data.hub import fetch
from experiments.data.parts import PARTS, hash_files
from experiments.data.tables import PART_NAMES, read_table
from experiments.data.tasks import STREAMS

TEXT_ENDS = (".txt", ".txt.gz", ".tokens", ".tsv", ".tsv.gz")
ARTICLE = re.compile(r"\n(?= = [^=\n](?:[^\n]*[^=\n])? = \n)")  # before the title of an article of WikiText
LINE = re.compile(r"\n")
TRAINED = 0.9  # share that is trained on where a text has to be cut


class Running(NamedTuple):
    """Text of train, validation and test, and where it is from; ``spaced``: words and marks are between spaces already."""

    parts: dict[str, str]
    source: str
    sha256: str
    spaced: bool


def read_text(name: str, files: Sequence[Path]) -> Running:
    """Text files, or tables of reviews, one a line; ValueError where the parts can't be told."""
    spaced, source = name.startswith("wikitext"), ", ".join(path.name for path in files)
    parts = {_part(path): _text(path) for path in files}
    if len(parts) < len(files) or (None in parts and len(files) > 1):
        raise ValueError(f"cannot tell the parts of {name!r} from {[path.name for path in files]}: name them train, valid and test")
    named, note = _completed({str(part): text for part, text in parts.items()}, spaced)
    if set(named) != set(PARTS):
        raise ValueError(f"{name!r} needs a test part and one to train on, got {sorted(named)} in {[str(path) for path in files]}")
    return Running(named, source + note, hash_files(files), spaced)


def hub_text(name: str) -> Running:
    """WikiText, one row a line; FileNotFoundError where the hub doesn't have it or doesn't answer."""
    hub = STREAMS[name].hub if name in STREAMS else None
    if hub is None:
        raise FileNotFoundError(f"{name!r} is not known on the Hugging Face hub; {wanted(name)}")
    tables = fetch(name, hub.id, hub.config, hub.parts)
    parts = {part: "\n".join(row.removesuffix("\n") for row in table["text"]) + "\n" for part, table in tables.items()}
    digest = hashlib.sha256("\0".join(f"{part}\0{parts[part]}" for part in sorted(parts)).encode()).hexdigest()
    parts, note = _completed(parts, spaced=True)
    return Running(parts, f"{hub.id}/{hub.config} of the Hugging Face hub{note}", digest, True)


def _part(path: Path) -> str | None:
    """The part that a file's name tells, such as wiki.valid.tokens."""
    names = [PART_NAMES[word] for word in re.split(r"[^a-z]+", path.name.lower()) if word in PART_NAMES]
    return names[-1] if names else None


def _text(path: Path) -> str:
    """The text of a file; that of a table, one row a line."""
    if path.name.endswith((".tsv", ".tsv.gz")):
        rows = read_table(path)
        if "text" not in rows[0]:
            raise ValueError(f"{str(path)!r} needs a column text, got {sorted(rows[0])}")
        return "\n".join(row["text"] for row in rows) + "\n"
    content = path.read_bytes()
    try:
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {str(path)!r}: {error}") from error


def _completed(parts: dict[str, str], spaced: bool) -> tuple[dict[str, str], str]:
    """Three parts where they can be had, and a note of how.

    A single text is cut 90/5/5 at the ends of lines; one that should train and validate is cut 90/10 by whole articles or lines.
    """
    if len(parts) == 1:
        (text,) = parts.values()
        first, second = (text.find("\n", int(share * len(text))) + 1 for share in (TRAINED, (1 + TRAINED) / 2))
        return dict(zip(PARTS, (text[:first], text[first:second], text[second:]))), ", cut 90/5/5 in order at line ends"
    if len(parts) == 2 and "test" in parts:
        (rest,) = set(parts) - {"test"}
        places = [match.end() for match in (ARTICLE if spaced else LINE).finditer(parts[rest])]
        n, kind = round(TRAINED * len(places)), "articles" if spaced else "lines"
        if not 0 < n < len(places):
            raise ValueError(f"{len(places)} {kind} are too few to be cut into a training and a validation part")
        note = f"; of the {rest} text the first {n} of {len(places)} {kind} train and the others validate"
        place = places[n if spaced else n - 1]  # an article's place is its start, a line's its end
        return {"train": parts[rest][:place], "validation": parts[rest][place:], "test": parts["test"]}, note
    return parts, ""
