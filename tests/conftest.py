"""What tests of runs on other workers share."""

import pytest
from elsewhere import OPTIONS, START, make_target

import limpet
from limpet.run import executors


@pytest.fixture
def short_tasks(monkeypatch):
    """Many tasks in a short run: each advances a tile once."""
    monkeypatch.setattr(executors, "SHORTEST", 0.0)
    monkeypatch.setattr(executors, "LONGEST", 0.0)


@pytest.fixture(scope="session")
def by_threads():
    """The run of `elsewhere`, made at home."""
    return limpet.sample(make_target(), START, **OPTIONS)
