"""How Sphinx builds the site: `make docs`."""

import re
from importlib.metadata import version as version_of

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

project = "limpet"
author = copyright = "The limpet authors"
version = release = version_of("limpet")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",  # reads numpydoc's sections
]
myst_enable_extensions = ["amsmath", "attrs_inline", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"  # the docstrings say it in words
default_role = "code"
exclude_patterns = ["_build"]

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"limpet {version}"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 9,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
}
html_sidebars = {"**": []}
html_static_path = ["_static"]
html_css_files = ["limpet.css"]


BAR = "&#x0007C;"
FUNCTION = "<m[io][^>]*>(log|exp|det|cos|sin|min)</m[io]>"


def escape_bars(_app, _what, _name, _obj, _options, lines):
    """Bars in docstrings are absolute values, which reStructuredText takes for something else."""
    lines[:] = [line if ">>>" in line else line.replace("|", r"\|") for line in lines]


def close_blocks(_app, _name, text):
    """The blank line that ends the output of an example is for doctest alone."""
    text[0] = text[0].replace("\n\n```\n", "\n```\n")


def mathml(formula, display):
    """A formula in MathML, which browsers show by themselves: no script, and no network."""
    made = convert(formula, display=display)
    if "<mi>&</mi>" in made or "\\" in made:
        raise ValueError(f"latex2mathml does not know this: {formula}")
    # the space around bars and names of functions that LaTeX leaves
    made = re.sub(f"<mo ([^>]*>{BAR}</mo>)", r'<mo lspace="0" rspace="0" \1', made)
    return re.sub(FUNCTION, r'<mo lspace="0.17em" rspace="0.17em">\1</mo>', made)


def write_inline(translator, node):
    """A formula in a line of text."""
    translator.body.append(mathml(node.astext(), "inline"))
    raise SkipNode


def write_block(translator, node):
    """A formula on lines of its own."""
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise SkipNode


def setup(app):
    """What Sphinx is to call, and when."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("source-read", close_blocks)
