"""A directive for the gallery: `.. gallery::` shows a card for every notebook, with its question and its last picture."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTH = 520  # pixels of a picture


def pictures(notebook: Any) -> list[str]:
    """The PNG outputs, base64, in order."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]


def thumbnail(png: str) -> str:
    """The picture `WIDTH` pixels wide on white, as an address."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA")
    paper = Image.new("RGBA", picture.size, "white")
    paper.alpha_composite(picture)
    small = paper.convert("RGB").resize((WIDTH, round(WIDTH * picture.height / picture.width)), Image.Resampling.LANCZOS)
    small.save(file := io.BytesIO(), "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def words(notebook: Any) -> tuple[str, str]:
    """The title, and the first paragraph under it: plain text, formulas as MathJax finds them."""
    title, *paragraphs = re.split(r"\n\s*\n", notebook.cells[0].source.strip())
    title, *rest = title.splitlines()
    first = " ".join(rest) or " ".join((paragraphs or [""])[0].splitlines())
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", re.sub(r"[*`]", "", first))
    return title.lstrip("# "), re.sub(r"\$([^$]+)\$", r"\\(\1\\)", plain)


def card(path: Path) -> str:
    notebook = nbformat.read(path, as_version=4)
    title, question = words(notebook)
    drawn = pictures(notebook)
    image = f'<img alt="" src="{thumbnail(drawn[-1])}">' if drawn else ""
    text = f"<strong>{html.escape(title)}</strong><span>{html.escape(question)}</span>"
    return f'<a class="card" href="notebooks/{path.stem}.html">{image}{text}</a>'


class Gallery(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        paths = sorted((Path(self.env.srcdir) / "notebooks").glob("*.ipynb"))
        for path in paths:
            self.env.note_dependency(str(path))
        return [nodes.raw("", f'<div class="cards math notranslate nohighlight">{"".join(map(card, paths))}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("gallery", Gallery)
    app.set_html_assets_policy("always")  # MathJax also on this page, whose formulas Sphinx does not see
    return {"parallel_read_safe": True, "parallel_write_safe": True}
