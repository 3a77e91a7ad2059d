"""Sphinx: `make docs` builds pages, reference and the gallery of committed notebooks, without network."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

project = "kernelgas"
author = copyright = "The kernelgas developers"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "myst_nb",
    "sphinx_copybutton",
    "reference",
    "gallery",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "kernelgas"
html_static_path = ["style"]
html_css_files = ["pages.css"]

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_param = napoleon_use_rtype = False  # types are shapes: words, not names to link
napoleon_attr_annotations = False
napoleon_custom_sections = [("Attributes", "params_style")]
default_role = "code"  # `x` in a docstring
smartquotes_action = "D"  # dashes only: "labels" is code
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the notebooks are committed with their outputs
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]  # no kernel runs here: show the picture
nb_ipywidgets_js = {}
nb_merge_streams = True  # one block for what a cell prints

# Sphinx reads below this folder only: the notebooks are copied, times of change included
shutil.rmtree(DOCS / "notebooks", ignore_errors=True)
shutil.copytree(DOCS.parent / "notebooks", DOCS / "notebooks", ignore=shutil.ignore_patterns(".*"))

# MathJax in one file that loads no other: formulas are drawn without network
(_mathjax,) = find_spec("sphinx-mathjax-offline").submodule_search_locations
html_static_path.append(f"{_mathjax}/static/mathjax/tex-svg-full.js")
mathjax_path = "tex-svg-full.js"
