"""What lines read and write in memory, as far as it can be told from their text."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable

WORKSPACE = "%workspace"
POINTER = re.compile(r"getelementptr (<\d+ x \w+>|\w+), ptr (\S+), i64 (\S+)(?: ; (\d+))?")
SUM = re.compile(r"(add|mul|sub) i64 (\S+), (\S+)")
LOAD = re.compile(r"load (?:volatile )?(<\d+ x \w+>|\w+), ptr ([%@]\w+)(, !invariant\.load !0)?")
STORE = re.compile(r"store (<\d+ x \w+>|\w+) (.*), ptr (%\w+)")
SET = re.compile(r"store i64 (\S+), ptr (%place\d+)")
BYTES = {"double": 8, "float": 4, "ptr": 8}


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """Bytes that are read or written: at turn k of a loop those from `first + slope k` on."""

    memory: str
    low: float  # all that are, in all turns
    high: float
    writes: bool
    array: str | None = None  # whose they are, if that is known
    first: int | None = None  # None: not known
    slope: int = 0
    size: int = 0
    step: int = 1  # turns that the loop takes at once

    def meets(self, other: "Access") -> bool:
        """Whether the order of the two matters."""
        return (self.writes or other.writes) and self.overlaps(other)

    def overlaps(self, other: "Access") -> bool:
        """Whether both touch the same bytes, in any turns."""
        return self.memory == other.memory and self.low < other.high and other.low < self.high

    def overlaps_now(self, other: "Access") -> bool:
        """Whether both touch the same bytes in one turn, as far as is known."""
        if self.first is None or other.first is None or self.slope != other.slope:
            return self.overlaps(other)
        return self.first < other.first + other.size and other.first < self.first + self.size

    def is_at(self, other: "Access") -> bool:
        """Whether both are known to touch the same bytes in each turn."""
        where = self.first, self.slope, self.size
        return self.first is not None and where == (other.first, other.slope, other.size)

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
        assert self.first is not None
        last = self.first + self.slope * (step - self.step)
        return min(self.first, last), max(self.first, last) + self.size


Accesses = tuple[Access, ...]
# of an address: the memory, the parts of it that it may be in, whose they are, and its bytes, which
# are a + b k at turn k, with each a that is possible
Place = tuple[str, frozenset[int], str | None, tuple[frozenset[int], int] | None]


def size_of(kind: str) -> int:
    """The bytes of one of LLVM's types."""
    if kind.startswith("<"):
        count, word = kind[1:-1].split(" x ")
        return int(count) * size_of(word)
    return BYTES[kind] if kind in BYTES else max(1, int(kind[1:]) // 8)


class Addresses:
    """Where the addresses of a program lead."""

    def __init__(self, lines: Iterable[str], sizes: dict[int, int]):
        self.sizes = sizes  # of the parts of the workspace, by where they begin
        self.made: dict[str, str] = {}
        self.choices: dict[str, set] = defaultdict(set)  # what variables are set to
        self.learn(lines)

    def learn(self, lines: Iterable[str]):
        """Take up what further lines tell."""
        for line in lines:
            name, computes, text = line.partition(" = ")
            if computes:
                self.made[name] = text
            elif match := SET.fullmatch(line):
                self.choices[match.group(2)].add(_whole(match.group(1)))

    def of(self, lines: Iterable[str], index: str | None, limit: int, step: int) -> Accesses:
        """What lines touch in the turns of a loop, each once."""
        found = (a for line in lines for a in self.of_line(line, index, limit, step))
        return tuple(dict.fromkeys(found))

    def of_line(self, line, index: str | None = None, limit: int = 1, step: int = 1) -> Accesses:
        """What a line touches in the turns of a loop; several where it is one of these."""
        text = line.partition(" = ")[2] or line
        store = STORE.match(text)
        match = store or LOAD.match(text)
        if match is None or (not store and match.group(3)):
            return ()
        name, kind = match.group(3 if store else 2), match.group(1)
        if name.startswith(("%place", "@")):
            return ()
        memory, parts, array, place = self._pointer(name, index)
        if memory.startswith("@"):
            return ()
        if memory != WORKSPACE:
            return (Access("given", 0, 1, bool(store)),)
        size = size_of(kind)
        firsts, slope = place or (parts, 0)
        array = array if len(firsts) == 1 else None
        if place is None:
            ends = ((part, part + self.sizes[part]) for part in parts)
            return tuple(Access(memory, *each, bool(store), array) for each in ends)
        last = slope * ((limit - 1) // step * step)
        return tuple(
            Access(
                memory,
                first + min(0, last),
                first + max(0, last) + size,
                bool(store),
                array,
                first,
                slope,
                size,
                step,
            )
            for first in firsts
        )

    def _pointer(self, name, index) -> Place:
        match = POINTER.fullmatch(self.made.get(name, ""))
        if match is None:
            return name, frozenset(), None, (frozenset({0}), 0)
        kind, base, place, array = match.groups()
        if base == WORKSPACE:
            return base, frozenset({int(place)}), array, (frozenset({int(place)}), 0)
        memory, parts, array, before = self._pointer(base, index)
        by = self._index(place, index)
        if by is None or before is None:
            return memory, self._parts(parts, size_of(kind), place), array, None
        size = size_of(kind)
        firsts = frozenset(a + size * b for a in before[0] for b in by[0])
        return memory, parts, array, (firsts, before[1] + size * by[1])

    def _index(self, name, index) -> tuple[frozenset[int], int] | None:
        """An index as a + b k."""
        if name == index:
            return frozenset({0}), 1
        if (number := _whole(name)) is not None:
            return frozenset({number}), 0
        text = self.made.get(name, "")
        if text.startswith("load i64, ptr %place"):
            choices = self.choices[text.rpartition(" ")[2]]
            return None if None in choices else (frozenset(choices), 0)
        match = SUM.fullmatch(text)
        if match is None:
            return None
        how, *parts = match.groups()
        a, b = (self._index(part, index) for part in parts)
        if a is None or b is None:
            return None
        (a, k), (b, j) = a, b
        if how == "mul":
            if len(a) > 1 or len(b) > 1 or (k and j):
                return None
            (a,), (b,) = a, b
            return frozenset({a * b}), a * j + b * k
        sign = 1 if how == "add" else -1
        return frozenset(x + sign * y for x in a for y in b), k + sign * j

    def _parts(self, parts: frozenset[int], size: int, name: str) -> frozenset[int]:
        """The parts of memory that an index leads to, which is counted from where these begin."""
        return frozenset(part + size * entry for part in parts for entry in self._begins(name))

    def _begins(self, name) -> frozenset[int]:
        """Where the arrays begin that an index is in one of, but for that the beginning."""
        text = self.made.get(name, "")
        if text.startswith("load i64, ptr %place"):
            choices = self.choices[text.rpartition(" ")[2]]
            return frozenset({0}) if None in choices else frozenset(choices)
        match = SUM.fullmatch(text)
        if match is None or match.group(1) != "add":
            return frozenset({0})
        a, b = map(self._begins, match.groups()[1:])
        return frozenset(x + y for x in a for y in b)


def _whole(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None
