"""Settings of the documentation, built by ``bash ci/docs.sh``. No step needs a network."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import sys
import tomllib
import zlib
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from types import MethodType
from typing import Any

# What the extensions import to document it.
os.environ.setdefault("MPLBACKEND", "agg")

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator

from gpukpca import __version__
from gpukpca.eigen import Solver
from gpukpca.gram import Storage, SymmetricOperator
from gpukpca.kernels import Kernel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
urls = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]

project, author, copyright = "gpukpca", "the gpukpca developers", "2026, the gpukpca developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery", "inventories"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True
smartquotes = False
default_role = "code"

# -- pages -------------------------------------------------------------------------------------------------------------

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
html_theme = "pydata_sphinx_theme"
html_title = f"gpukpca {version}"
# MathJax draws formulas, with its own letters in every browser; one file of it is copied.
html_static_path = ["static", str(files("sphinx-mathjax-offline") / "static" / "mathjax" / "tex-svg.js")]
html_css_files = ["site.css"]
html_favicon = "static/logo.svg"
html_copy_source = html_show_sourcelink = False
html_use_index = html_domain_indices = False  # lists of all names, to which no page links: the search finds names
# Pages without siblings need no list of them.
html_sidebars = {"index": [], "benchmarks": [], "release_notes": []}
mathjax_path = "tex-svg.js"
mathjax3_config = {"options": {"enableMenu": False}}  # whose entries would load other files
toc_object_entries_show_parents = "hide"
copybutton_exclude = ".linenos, .gp, .go"
html_theme_options = {
    "logo": {"text": html_title, "image_light": "static/logo.svg", "image_dark": "static/logo.svg"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "search_bar_text": "Search",
    "icon_links": [{"name": name, "url": url, "icon": "fa-solid fa-link"} for name, url in urls.items()],
}
html_context = {"default_mode": "auto"}  # light or dark, as the system says; without it every first visit logs an error
templates_path = ["templates"]


def write_cell(translator: Any, node: nodes.entry) -> None:
    """Write a cell of a table; where it has two to four columns, with the name of its column for narrow screens."""
    column, group = node.parent.column, node.parent.parent.parent
    HTML5Translator.visit_entry(translator, node)
    heads = [entry.astext() for head in group.findall(nodes.thead) for entry in head.findall(nodes.entry)]
    if len(heads) in (2, 3, 4) and isinstance(node.parent.parent, nodes.tbody) and node.astext():
        label = translator.attval(heads[column])
        translator.body[-1] = translator.body[-1].replace("<td", f'<td data-column="{label}"', 1)


def draw_pictures(app: Any) -> None:
    """Draw the pictures that pages show, before they are read."""
    if app.builder.name == "html":
        runpy.run_path(str(HERE / "pictures.py"))["draw_pages"]()


def link_gallery(app: object, page: str, source: list[str]) -> None:
    """Point links to scripts of the gallery at their pages, not at the scripts; name the version of a citation."""
    source[0] = source[0].replace("version = {VERSION}", f"version = {{{version}}}")
    source[0] = re.sub(r"gallery/(plot_\w+)\.py\)", r"examples/\1.rst)", source[0])
    source[0] = source[0].replace("gallery/GALLERY_HEADER.rst)", "examples/index.rst)")


# -- reference ---------------------------------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# The members of a protocol are described once, on the page of its base class.
autodoc_inherit_docstrings = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
trim_doctest_flags = True
# All checks but these: one sentence may say all (ES01), the type line may state the shape and thereby the meaning
# (PR07, RT03), and methods need no examples or references (EX01, SA01); tests/test_docstrings.py requires both of
# public classes and functions.
numpydoc_validation_checks = {"all", "ES01", "EX01", "PR07", "RT03", "SA01"}
# Warnings, whose constructor `GpuKPCAWarning` documents.
numpydoc_validation_exclude = {r"\.(?!GpuKPCA)\w+Warning$"}
# A docstring of one line names the arguments and the result. A first line that ends in "see `name`" refers to those of
# another method. The fields of a dataclass are its arguments, documented once, as attributes.
ONE_LINE, SEE = r"\A[^\n]*\Z", r"\A[^\n]*; see `[^\n]*\.\n"
numpydoc_validation_overrides = {
    "PR01": {ONE_LINE, SEE, r"\A(?![\s\S]*\nParameters\n)[\s\S]*\nAttributes\n"},
    "RT01": {ONE_LINE, SEE},
}

# Classes whose pages describe the members of all their subclasses.
PROTOCOLS = (Kernel, Solver, Storage, SymmetricOperator)


def skip_member(app: Any, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out what scikit-learn and private classes define, and what overrides a protocol: its class describes it."""
    function = getattr(obj, "fget", None) or obj
    home = str(getattr(function, "__module__", None))
    owner = getattr(sys.modules.get(home), getattr(function, "__qualname__", "").split(".")[0], None)
    page = app.env.docname.rsplit(".", 1)[-1]
    protocols = [base for base in PROTOCOLS if base in getattr(owner, "__mro__", ())]
    described = any(name in vars(base) and page != base.__name__ for base in protocols)
    private = bool(protocols) and owner.__name__.startswith("_") and not isinstance(obj, classmethod | MethodType)
    return True if described or private or home.startswith("sklearn.") else None


def state_defaults(app: object, what: str, name: str, obj: Any, options: object, lines: list[str]) -> None:
    """Add the default of every parameter to its line of the section "Parameters"."""
    try:
        parameters = inspect.signature(obj).parameters
    except (TypeError, ValueError):  # no function, or one without a signature
        return
    heads = [*(i for i, line in enumerate(lines) if set(line) == {"-"}), len(lines)]
    for start, stop in pairwise(heads):
        for i in range(start, stop) if lines[start - 1] in ("Parameters", "Attributes") else ():
            names, separator, kind = lines[i].partition(" : ")
            found = [parameters[one].default for one in names.split(", ") if one in parameters]
            values = [
                f'"{default}"' if isinstance(default, str) else repr(default)
                for default in found
                if default is not inspect.Parameter.empty
            ]
            if separator and values and "default" not in kind and not any("<" in value for value in values):
                word = "default" if len(values) == 1 else "defaults"
                lines[i] = f"{names} : {kind.removesuffix(', optional')}, {word} {', '.join(values)}"


def link_pages(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Link the pages that a docstring names by their files."""
    lines[:] = [re.sub(r"\bdocs/([\w/]+)\.md\b", r":doc:`\g<0> </\1>`", line) for line in lines]


def drop_back_links(app: object, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Leave out links from a source to its page: Sphinx takes one public module for all names of a file."""
    if page.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back"[^>]*>.*?</a>', "", context["body"])


def setup(app: Any) -> None:
    """Connect what this file adds to Sphinx."""
    app.add_node(nodes.entry, override=True, html=(write_cell, HTML5Translator.depart_entry))
    app.connect("builder-inited", draw_pictures)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", state_defaults, priority=400)  # before numpydoc
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("source-read", link_gallery)
    app.connect("html-page-context", drop_back_links)
    app.connect("sphinx-click-process-description", mark_examples)
    app.connect("sphinx-click-process-options", head_groups)


def mark_examples(app: object, ctx: Any, lines: list[str]) -> None:
    """Set the examples of a command as code: lines that begin with the name of the program."""
    lines[:] = [re.sub(r"^(Examples?: )?(gpukpca .+)", r"\1``\2``", line) for line in lines]


def head_groups(app: object, ctx: Any, lines: list[str]) -> None:
    """Head every group of options as ``--help`` does, in whose order they are; set addresses as code, not as links."""
    heads = {options[0].opts[0]: name for name, options in getattr(ctx.command, "groups", {}).items()}
    grouped = []
    for line in lines:
        first = line.removeprefix(".. option:: ").split(" ")[0].rstrip(",")
        grouped += (
            [f".. rubric:: {heads[first]}", "", line] if line.startswith(".. option::") and first in heads else [line]
        )
    lines[:] = [re.sub(r"(tcp://[\w.:]*\w)", r"``\1``", line) for line in grouped]


# -- gallery -----------------------------------------------------------------------------------------------------------


def last_picture(block: object, names: dict[str, Any], conf: dict[str, Any]) -> str:
    """Save the picture of the value that a cell ends with, a Display, and show it as large as a notebook does."""
    values = names["example_globals"]
    show = getattr(values.get("___"), "_repr_png_", None)
    if show is None:
        return ""
    values["___"] = None  # the next cell may end with no value
    path = Path(next(names["image_path_iterator"]))
    picture, size = show()
    path.write_bytes(picture)
    about = Path(names["src_file"]).stem.removeprefix("plot_").replace("_", " ")
    options = {"alt": about, "width": f"{size['width']}px", "class": "sphx-glr-single-img"}
    lines = [f".. image:: /{path.relative_to(conf['src_dir']).as_posix()}"]
    return "\n".join([*lines, *(f"   :{name}: {value}" for name, value in options.items()), "", ""])


# Functions in this file are no names by which a later build could find that they changed.
suppress_warnings = ["config.cache"]
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"plot_",
    "abort_on_example_error": True,
    "doc_module": ("gpukpca",),
    "backreferences_dir": "reference/backreferences",
    "reference_url": {"gpukpca": None},
    "copyfile_regex": "",
    "image_scrapers": ("matplotlib", last_picture),
    "image_srcset": ["2x"],
    "thumbnail_size": (520, 364),
    # Axes.set returns a list.
    "ignore_repr_types": r"matplotlib|gpukpca|NoneType|list",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "min_reported_time": 5,
}

# -- names of other projects -------------------------------------------------------------------------------------------


def inventory(name: str) -> str:
    """Compile the names listed in inventories/NAME.txt into an inventory of Sphinx; return its path."""
    target = HERE / "_build" / "inventories" / f"{name}.inv"
    target.parent.mkdir(parents=True, exist_ok=True)
    head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n# The rest is compressed by zlib.\n"
    # Sphinx puts the name in place of a "$" at the end of an address alone.
    lines = (HERE / "inventories" / f"{name}.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    named = "".join(line.replace("$", line.split()[0]) for line in lines)
    target.write_bytes(head.encode() + zlib.compress(named.encode()))
    return str(target)


SITES = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "scipy": "https://docs.scipy.org/doc/scipy",
    "sklearn": "https://scikit-learn.org/stable",
    "matplotlib": "https://matplotlib.org/stable",
}
intersphinx_mapping = {name: (site, inventory(name)) for name, site in SITES.items()}
