"""Pages of measured results: sections of an experiment as Markdown with figures beside it, written into this folder."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.report import Section, Table, machine

HERE = Path(__file__).parent


def page(title: str, lead: str, command: str, images: Mapping[str, str], sections: Iterable[Section], said: Sequence[str] = ()) -> str:
    """The page as Markdown; `images` maps a file in images/ to what it shows, `said` are paragraphs of conclusions put first."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    facts = "\n".join(f"| {key} | {value} |" for key, value in machine().items())
    head = f"# {title}\n\n{lead}\n\nMeasured by `{command}` on {today}, one thread."
    conclusions = ["## What this says", *said] if said else []
    shown = "\n\n".join(f"![{alt}](images/{name})" for name, alt in images.items())
    return "\n\n".join([head, f"| | |\n|---|---|\n{facts}", *conclusions, shown, *map(section_markdown, sections)]) + "\n"


def section_markdown(part: Section) -> str:
    """A section as Markdown, without its pictures."""
    verdicts = "\n".join(f"- {line}" for line in part.verdicts)
    return "\n\n".join([f"## {part.title}", part.text, *map(_table, part.tables), *([verdicts] if verdicts else [])])


def write(name: str, text: str, pictures: Mapping[str, bytes]) -> None:
    """The page `name` and its pictures by file name."""
    (HERE / "images").mkdir(exist_ok=True)
    for file, picture in pictures.items():
        (HERE / "images" / file).write_bytes(picture)
    (HERE / name).write_text(text, encoding="utf-8")


def _table(table: Table) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (table.header, ["---"] * len(table.header), *table.rows)]
    notes = [f"\n{note}" for note in table.notes]
    return "\n".join([f"**{table.title}**\n", *lines, *notes])
