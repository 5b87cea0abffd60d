"""How Sphinx builds the site: `make docs`."""

from importlib.metadata import version as version_of

project = "limpet"
author = copyright = "The limpet authors"
version = release = version_of("limpet")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",  # reads numpydoc's sections
]
myst_enable_extensions = ["amsmath", "attrs_inline", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"  # the docstrings say it in words
default_role = "code"
exclude_patterns = ["_build"]

html_theme = "pydata_sphinx_theme"
html_title = f"limpet {version}"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
}
html_sidebars = {"**": []}
html_static_path = ["_static"]
html_css_files = ["limpet.css"]


def escape_bars(_app, _what, _name, _obj, _options, lines):
    """Bars in docstrings are absolute values, which reStructuredText takes for something else."""
    lines[:] = [line if ">>>" in line else line.replace("|", r"\|") for line in lines]


def close_blocks(_app, _name, text):
    """The blank line that ends the output of an example is for doctest alone."""
    text[0] = text[0].replace("\n\n```\n", "\n```\n")


def setup(app):
    """What Sphinx is to call, and when."""
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("source-read", close_blocks)
