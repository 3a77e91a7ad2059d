"""A directive for the reference: `.. public:: module` and names; without names, all that the module makes public."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.ext import autosummary
from sphinx.util.docutils import SphinxDirective

COLON = "\ue000"  # stands for a colon while napoleon reads
WRAPPED = 100  # characters; what follows a shorter line is a new sentence


def surface(module: ModuleType) -> list[str]:
    """The functions and classes of `module.__all__`; where there is none, the public functions written in the module."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if callable(getattr(module, name))]
    return [
        name for name, item in vars(module).items() if inspect.isfunction(item) and item.__module__ == module.__name__ and name[0] != "_"
    ]


def entry(module: str, path: str) -> str:
    """The directive that documents `path`, which is `name` or `submodule.name`."""
    *inner, name = path.split(".")
    home = ".".join([module, *inner])
    item = getattr(importlib.import_module(home), name)
    return f".. {'autoclass' if isinstance(item, type) else 'autofunction'}:: {home}::{name}"


class Public(SphinxDirective):
    """A table of names with their first lines, then the docstring of each."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        names = " ".join(self.content).split() or surface(module)
        table = [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names)]
        lines = [f".. currentmodule:: {module.__name__}", "", *table, ""]
        for name in names:
            lines += [entry(module.__name__, name), ""]
        return self.parse_text_to_nodes(StringList(lines, source=self.get_source_info()[0]))


def with_notes(lines: list[str]) -> list[str]:
    """Paragraphs after a list of parameters or errors get a heading, and `name : words` is a name and its words, not its type."""
    done: list[str] = []
    listing = False
    for line, before, after in zip(lines, ["", *lines], [*lines[1:], ""]):
        if line and set(after) == {"-"}:
            listing = line in ("Parameters", "Attributes", "Returns", "Raises")
        elif listing and line[:1].strip() and not before.strip() and not after.startswith(" "):
            done += ["Notes", "-----"]
            listing = False
        entry = re.fullmatch(r"([\w, *]+) : (.+)", line) if listing else None
        stop = "." if entry and len(line) < WRAPPED and after.startswith(" ") and line[-1] not in ".,:;" else ""
        done += [entry[1], f"    {entry[2]}{stop}"] if entry else [line]
    return with_sentences(done)


def with_sentences(lines: list[str]) -> list[str]:
    """What is returned, told in several lines from the margin, is one paragraph, no list of types; two empty lines end what is before."""
    if "Returns" not in lines:
        return lines
    start = lines.index("Returns")
    end = next((i for i in range(start + 2, len(lines)) if not lines[i].strip()), len(lines))
    told = lines[start + 2 : end]
    if len(told) < 2 or any(line.startswith(" ") for line in told):
        return lines
    return [*lines[:start], "", "", f":returns: {told[0]}", *(f"    {line}" for line in told[1:]), *lines[end:]]


def escaped(line: str) -> str:
    """Bars, and in descriptions also `**` and `name_`, as text; what stands between backticks, and examples, are left alone."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = line.split("`")
    for i in range(0, len(parts), 2):
        parts[i] = parts[i].replace("|", r"\|")
        if line.startswith(" "):
            parts[i] = re.sub(r"(\w)_(?!\w)", r"\1\\_", parts[i].replace("**", r"\*\*"))
    return "`".join(parts)


def plain_words(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """In docstrings `|x|` is an absolute value and no substitution, and what precedes a colon is no type of a property."""
    lines[:] = [escaped(line) for line in with_notes(lines)]
    if what in ("attribute", "property"):
        lines[:] = [line.replace(":", COLON) for line in lines]


def colons(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]


def nameless(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Fields of a named tuple stand under its attributes; "Alias for field number 0" adds nothing."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def breakable(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Long names in tables, but for the first column, may break after a dot, a colon, a slash or an underscore."""
    entries = [entry for row in doctree.findall(nodes.row) for entry in row.children[1:]]
    for literal in (literal for entry in entries for literal in entry.findall(nodes.literal)):
        for word in list(literal.findall(nodes.Text)):
            pieces = re.findall(r"[^._:/]+[._:/]*|[._:/]+", word)
            parts = [part for piece in pieces for part in (nodes.Text(piece), nodes.raw("", "<wbr>", format="html"))]
            word.parent.replace(word, parts[:-1])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("public", Public)
    app.connect("autodoc-skip-member", nameless)
    app.connect("doctree-resolved", breakable)
    autosummary.WELL_KNOWN_ABBREVIATIONS += ("App.", " .")  # no ends of sentences: App. D, w . x
    app.connect("autodoc-process-docstring", plain_words, priority=400)  # before napoleon, which has 500
    app.connect("autodoc-process-docstring", colons, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
