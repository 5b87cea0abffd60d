"""Loops as they stand in the text of a program."""

import dataclasses
import re
from collections.abc import Iterator

BEGIN = re.compile(r"store i64 0, ptr (%place\d+)")
ENTER = re.compile(r"br label %(top\d+)")
LIMIT = re.compile(r"%v\d+ = icmp slt i64 %v\d+, (\d+)")
STEP = re.compile(r"%v\d+ = add i64 %v\d+, (\d+)")
HEAD = 4  # lines of a loop before its body
FOOT = 5  # and after


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop that has no other inside: its body is done for each index 0, step, ... < limit."""

    lines: list[str]
    index: str
    place: str  # the variable that counts
    limit: int
    step: int

    @property
    def body(self) -> list[str]:
        """What is done at each turn."""
        return self.lines[HEAD:-FOOT]

    def with_body(self, body: list[str]) -> list[str]:
        """Its lines, if another body is in place of its own."""
        return [*self.lines[:HEAD], *body, *self.lines[-FOOT:]]


def is_plain(line: str) -> bool:
    """Whether the line after this one is the next that is run, and no other leads there."""
    return not line.startswith("br ") and not line.endswith(":")


def parts(lines: list[str]) -> Iterator[str | Loop]:
    """The lines of a program, of which some are loops."""
    at = 0
    while at < len(lines):
        part = _loop(lines, at) or lines[at]
        yield part
        at += len(part.lines) if isinstance(part, Loop) else 1


def _loop(lines, at) -> Loop | None:
    """The loop that begins at a line, if one does that has no other inside."""
    begin = BEGIN.fullmatch(lines[at])
    enter = begin and ENTER.fullmatch(lines[at + 1])
    if not begin or not enter or lines[at + 2] != f"{enter.group(1)}:":
        return None
    index, _, text = lines[at + 3].partition(" = ")
    stop = at + HEAD
    while is_plain(lines[stop]):
        stop += 1
    limit, step = LIMIT.fullmatch(lines[stop - 2]), STEP.fullmatch(lines[stop - 3])
    ends = lines[stop].startswith("br i1 ") and f"label %{enter.group(1)}," in lines[stop]
    if not ends or limit is None or step is None or text != f"load i64, ptr {begin.group(1)}":
        return None
    sizes = int(limit.group(1)), int(step.group(1))
    return Loop(lines[at : stop + 2], index, begin.group(1), *sizes)


def written(index: str, place: str, limit: int, step: int, body: list[str], names) -> list[str]:
    """The lines of a loop."""
    top, end = f"top{next(names)}", f"end{next(names)}"
    following, more = f"%v{next(names)}", f"%v{next(names)}"
    return [
        f"store i64 0, ptr {place}",
        f"br label %{top}",
        f"{top}:",
        f"{index} = load i64, ptr {place}",
        *body,
        f"{following} = add i64 {index}, {step}",
        f"{more} = icmp slt i64 {following}, {limit}",
        f"store i64 {following}, ptr {place}",
        f"br i1 {more}, label %{top}, label %{end}",
        f"{end}:",
    ]
