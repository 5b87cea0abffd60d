"""The rooms of the house: each imports only from those above it, and no file is too long."""

import ast
from pathlib import Path

import pytest

import limpet

HOUSE = Path(limpet.__file__).parent
LONGEST = 400  # lines of a file
# a module or package, and those on its line, import from lines above, or from itself
ROOMS = [
    ["errors", "lanes"],
    ["sparse"],
    ["shapes"],
    ["layout", "engine"],
    ["coordinates"],
    ["target_checks", "frame", "derivatives"],
    ["symmetries"],
    ["target"],
    ["strata_checks"],
    ["strata"],
    ["geometry", "models"],
    ["kernels"],
    ["run"],
    ["draws"],
    ["report"],
    ["session", "arguments", "stored"],
    ["sampling", "handover"],
    ["partition", "jobs"],
    ["paper"],
    ["api"],
    ["__init__"],
    ["cli"],
    ["__main__"],
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(HOUSE.rglob("*.py"))


def rooms_imported(file):
    """The rooms that a file imports from, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "limpet":
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [name.name for name in node.names]
        elif isinstance(node, ast.Import):
            yield from ["__init__" for name in node.names if name.name == "limpet"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HOUSE)))
def test_imports_come_from_above(file):
    room = file.relative_to(HOUSE).parts[0].removesuffix(".py")
    below = [
        other
        for other in rooms_imported(file)
        if other != room and LEVEL.get(other, LEVEL["errors"]) >= LEVEL[room]
    ]
    assert not below


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HOUSE)))
def test_a_file_can_be_read_at_one_sitting(file):
    text = file.read_text("utf-8")
    assert len(text.splitlines()) <= LONGEST
    assert ast.get_docstring(ast.parse(text))
