"""The site builds without a warning, and says what the tests are like."""

import subprocess
import sys
from pathlib import Path

import mutants
import test_invariance

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ["index", "first", "choosing", "partition", "method", "testing", "reproduction", "api"]


def test_the_site_builds(tmp_path):
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "doctrees"]
    command = [sys.executable, "-m", "sphinx", *options, DOCS, tmp_path / "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / "html" / f"{page}.html").is_file() for page in PAGES)


def test_its_numbers_are_those_of_the_tests():
    page = " ".join((DOCS / "testing.md").read_text().split())
    count = len(mutants.SAS_MUTANTS) + len(mutants.TRAVEL_MUTANTS)
    assert f"in {count} ways" in page
    assert f"There are {len(test_invariance.CASES)} cases" in page
    assert f"{test_invariance.TESTS:,} of them" in page
