"""What lines read and write in memory, as far as it can be told from their text."""

import dataclasses
import math
import re

WORKSPACE, GIVEN = "%workspace", "given"  # two memories that have nothing in common
POINTER = re.compile(r"getelementptr (<\d+ x \w+>|\w+), ptr (\S+), i64 (\S+)")
SUM = re.compile(r"(add|mul|sub) i64 (\S+), (\S+)")
LOAD = re.compile(r"load (<\d+ x \w+>|\w+), ptr ([%@]\w+)(, !invariant\.load !0)?")
STORE = re.compile(r"store (<\d+ x \w+>|\w+) .*, ptr (%\w+)")
BYTES = {"double": 8, "float": 4, "ptr": 8}


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """Bytes that are read or written: at turn k of a loop those from `first + slope k` on."""

    memory: str
    low: float  # all that are, in all turns
    high: float
    writes: bool
    first: int | None = None  # None: not the same from turn to turn in any way that is known
    slope: int = 0
    size: int = 0
    step: int = 1  # turns that the loop takes at once

    def meets(self, other: "Access") -> bool:
        """Whether the order of the two matters."""
        return (self.writes or other.writes) and self._overlaps(other)

    def shares(self, other: "Access") -> bool:
        """Whether both touch the same bytes."""
        return self.memory == WORKSPACE and self._overlaps(other)

    def _overlaps(self, other: "Access") -> bool:
        return self.memory == other.memory and self.low < other.high and other.low < self.high

    def keeps_apart(self, other: "Access", step: int) -> bool:
        """Whether turns of two loops, `step` at once, touch nothing that others of them change."""
        if not self.meets(other):
            return True
        if self.first is None or other.first is None or self.slope != other.slope:
            return False
        (a, b), (c, d) = self._ends(step), other._ends(step)
        return max(b - c, d - a) <= abs(self.slope) * step

    def _ends(self, step) -> tuple[int, int]:
        """Where the bytes of so many turns begin and end."""
        last = self.first + self.slope * (step - self.step)
        return min(self.first, last), max(self.first, last) + self.size


Accesses = tuple[Access, ...]


def size_of(kind: str) -> int:
    """The bytes of one of LLVM's types."""
    if kind.startswith("<"):
        count, word = kind[1:-1].split(" x ")
        return max(1, int(count) * size_of(word))
    return BYTES[kind] if kind in BYTES else max(1, int(kind[1:]) // 8)


class Addresses:
    """Where the addresses of a program lead."""

    def __init__(self, lines: list[str], sizes: dict[int, int]):
        self.sizes = sizes
        self.made = dict(line.split(" = ", 1) for line in lines if " = " in line)

    def of(self, lines: list[str], index: str | None, limit: int, step: int) -> Accesses:
        """What lines touch in the turns of a loop, each once."""
        found = {}
        for line in lines:
            access = self._access(line, index, limit, step)
            if access is not None:
                found[access] = None
        return tuple(found)

    def _access(self, line, index, limit, step) -> Access | None:
        text = line.partition(" = ")[2] or line
        store = STORE.match(text)
        match = store or LOAD.match(text)
        if match is None or match.group(2).startswith(("%place", "@")):
            return None
        if not store and match.group(3):
            return None
        memory, part, place = self._pointer(match.group(2), index)
        if memory != WORKSPACE:
            return None if memory.startswith("@") else Access(GIVEN, 0, 1, bool(store))
        size = size_of(match.group(1))
        if place is None:
            low, high = (0, math.inf) if part is None else (part, part + self.sizes[part])
            return Access(memory, low, high, bool(store))
        first, slope = place
        ends = first, first + slope * (limit - 1)
        return Access(memory, min(ends), max(ends) + size, bool(store), first, slope, size, step)

    def _pointer(self, name, index):
        """The memory, the part of it where the address begins, and its bytes as a line in k."""
        text = self.made.get(name, "")
        match = POINTER.fullmatch(text)
        if match is None:
            return name, None, (0, 0)
        kind, base, place = match.groups()
        memory, part, before = self._pointer(base, index)
        if memory == WORKSPACE and part is None and place.isdigit():
            return memory, int(place), (int(place), 0)
        by = self._index(place, index)
        if by is None or before is None:
            return memory, (None if by is None and self._may_leave(place, index) else part), None
        size = size_of(kind)
        return memory, part, (before[0] + size * by[0], before[1] + size * by[1])

    def _index(self, name, index) -> tuple[int, int] | None:
        """An index as a + b k."""
        if name == index:
            return 0, 1
        if name.lstrip("-").isdigit():
            return int(name), 0
        match = SUM.fullmatch(self.made.get(name, ""))
        if match is None:
            return None
        how, *parts = match.groups()
        a, b = (self._index(part, index) for part in parts)
        if a is None or b is None:
            return None
        if how != "mul":
            sign = 1 if how == "add" else -1
            return a[0] + sign * b[0], a[1] + sign * b[1]
        if a[1] and b[1]:
            return None
        return a[0] * b[0], a[0] * b[1] + a[1] * b[0]

    def _may_leave(self, name, index) -> bool:
        """Whether an index may lead out of the part of memory that it is counted in."""
        text = self.made.get(name, "")
        if text.startswith("load i64, ptr %place"):
            return True
        match = SUM.fullmatch(text)
        return match is not None and any(self._may_leave(part, index) for part in match.groups()[1:])
