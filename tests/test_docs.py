"""The site builds without a warning, and says what the tests are like."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import mutants
import pytest
import test_invariance

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [
    "index",
    "first",
    "choosing",
    "partition",
    "machines",
    "method",
    "testing",
    "reproduction",
    "api",
]


LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*')
LOADED_BY_CSS = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//[^\"')]*")


def test_the_site_builds_and_is_whole_without_a_network(tmp_path):
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, DOCS, tmp_path / "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {page: (tmp_path / "html" / f"{page}.html").read_text() for page in PAGES}
    assert not [LOADED.findall(text) for text in pages.values() if LOADED.search(text)]
    for part in (tmp_path / "html").rglob("*"):
        if part.suffix in (".css", ".svg"):
            assert not LOADED_BY_CSS.findall(part.read_text())
    for page in ("index", "choosing", "partition", "method"):
        assert "<math" in pages[page]
        assert not re.search(r"\\[(\[]|\\frac|\\varepsilon", pages[page])
    assert pages["index"].index("&gt;&gt;&gt;") < pages["index"].index("<math")


def test_formulas_that_cannot_be_shown_are_refused():
    conf = runpy.run_path(str(DOCS / "conf.py"))
    assert conf["mathml"](r"|x|", "inline").count('lspace="0"') == 2
    with pytest.raises(ValueError, match="does not know this"):
        conf["mathml"](r"\begin{aligned} a &= b \\ c &= d \end{aligned}", "block")


def test_its_numbers_are_those_of_the_tests():
    page = " ".join((DOCS / "testing.md").read_text().split())
    count = len(mutants.SAS_MUTANTS) + len(mutants.TRAVEL_MUTANTS)
    assert f"in {count} ways" in page
    assert f"There are {len(test_invariance.CASES)} cases" in page
    assert f"{test_invariance.TESTS:,} of them" in page
