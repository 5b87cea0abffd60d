"""Loops over the same entries, made one.

Each operation on large arrays is a loop of its own when it is written. Where two of them go over the
same entries, and neither needs all of the other first, one loop can do the work of both: it reads an
entry once, and what the first computes is at hand for the second. In problems whose arrays are
larger than a cache, the time of a step is that of these passes over memory.

A loop is moved up to an earlier one, past lines and loops that need nothing of that. What it reads
and writes decides: both may touch the same memory only at the same turn. Sums take several turns at
once; a loop that joins them does so too, and turns that are left over follow one by one.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator

from limpet.lanes.code import NAME
from limpet.lanes.loops.access import Access, Accesses, Addresses

LEFT_OVER = 8  # turns that one of the loops may have beyond those of the other
FARTHEST = 12  # loops up to which one may be moved, counted from the last
LONGEST = 400  # lines of a loop's turn

BEGIN = re.compile(r"store i64 0, ptr (%place\d+)")
ENTER = re.compile(r"br label %(top\d+)")
LIMIT = re.compile(r"(%v\d+) = icmp slt i64 %v\d+, (\d+)")
STEP = re.compile(r"%v\d+ = add i64 %v\d+, (\d+)")
VARIABLE = re.compile(r"(?:load|store) [^%]*?(?:%v\d+)?[^%]*ptr (%place\d+)")
HEAD, FOOT = 4, 5  # lines of a loop before and after its body


@dataclasses.dataclass
class Item:
    """A line, or loops that are one."""

    lines: list[str]
    accesses: Accesses
    makes: set[str] = dataclasses.field(default_factory=set)
    needs: set[str] = dataclasses.field(default_factory=set)
    gets: set[str] = dataclasses.field(default_factory=set)  # variables
    puts: set[str] = dataclasses.field(default_factory=set)
    members: list["Member"] = dataclasses.field(default_factory=list)

    def join(self, other: "Item"):
        """Take up what another does."""
        self.lines = self.lines + other.lines
        self.accesses = self.accesses + other.accesses
        for name in ("makes", "needs", "gets", "puts"):
            setattr(self, name, getattr(self, name) | getattr(other, name))
        self.members = self.members + other.members

    def waits_for(self, other: "Item") -> bool:
        """Whether it must stay behind another that is before it."""
        return self._needs_numbers_of(other) or any(
            a.meets(b) for a in self.accesses for b in other.accesses
        )

    def _needs_numbers_of(self, other: "Item") -> bool:
        return not (
            self.needs.isdisjoint(other.makes)
            and self.puts.isdisjoint(other.gets | other.puts)
            and self.gets.isdisjoint(other.puts)
        )

    def may_join(self, other: "Item") -> bool:
        """Whether a loop, before which there is nothing left but another, can be one with that."""
        step = max(member.step for member in (*self.members, *other.members))
        limits = [member.limit for member in (*self.members, *other.members)]
        return (
            {member.step for member in (*self.members, *other.members)} <= {1, step}
            and max(limits) - _whole(limits, step) <= LEFT_OVER < min(limits)
            and not self._needs_numbers_of(other)
            and any(a.shares(b) for a in self.accesses for b in other.accesses)
            and all(a.keeps_apart(b, step) for a in self.accesses for b in other.accesses)
        )


@dataclasses.dataclass
class Member:
    """A loop as it was written."""

    body: list[str]
    index: str
    place: str
    limit: int
    step: int


def _whole(limits, step) -> int:
    return min(limits) // step * step


def fused(lines: list[str], sizes: dict[int, int], names: Iterator[int]) -> list[str]:
    """The lines of a program with fewer loops; `sizes` are those of parts of the workspace."""
    addresses = Addresses(lines, sizes)
    uses = Counter(name for line in lines for name in set(NAME.findall(line)))
    written: list[str] = []
    block: list[Item] = []

    def end_block():
        for item in _together(block):
            written.extend(_text(item, names) if len(item.members) > 1 else item.lines)
        block.clear()

    at = 0
    while at < len(lines):
        loop = _loop(lines, at, addresses, uses)
        if loop is not None:
            block.append(loop)
        elif _is_plain(lines, at):
            block.append(_line(lines[at], addresses))
        else:
            end_block()
            written.append(lines[at])
        at += len(loop.lines) if loop else 1
    end_block()
    return written


def _is_plain(lines, at) -> bool:
    return not lines[at].startswith("br ") and not lines[at].endswith(":")


def _line(line: str, addresses: Addresses) -> Item:
    item = Item([line], addresses.of([line], None, 1, 1))
    _add(item, line)
    return item


def _add(item: Item, line: str):
    """What a line needs and makes."""
    name, computes, rest = line.partition(" = ")
    names = set(NAME.findall(rest if computes else line))
    places = {each for each in names if each.startswith("%place")}
    item.needs |= names - places
    if computes:
        item.makes.add(name)
        item.gets |= places
    else:
        item.puts |= places


def _loop(lines, at, addresses, uses) -> Item | None:
    """The loop that begins at a line, if one does that has no other inside."""
    begin = BEGIN.fullmatch(lines[at])
    enter = begin and at + 1 < len(lines) and ENTER.fullmatch(lines[at + 1])
    if not enter:
        return None
    top = enter.group(1)
    if lines[at + 2] != f"{top}:" or f"load i64, ptr {begin.group(1)}" not in lines[at + 3]:
        return None
    stop = at + HEAD
    while _is_plain(lines, stop):
        stop += 1
    if not lines[stop].startswith("br i1 ") or f"label %{top}," not in lines[stop]:
        return None
    limit, step = LIMIT.fullmatch(lines[stop - 2]), STEP.fullmatch(lines[stop - 3])
    if limit is None or step is None:
        return None
    body = lines[at + HEAD : stop - 3]
    index, last, by = lines[at + 3].split(" = ")[0], int(limit.group(2)), int(step.group(1))
    whole = lines[at : stop + 2]
    item = Item(whole, addresses.of(body, index, last, by))
    for line in body:
        _add(item, line)
    inside = Counter(name for line in whole for name in set(NAME.findall(line)))
    private = all(uses[name] == inside[name] for name in item.makes)
    item.needs -= item.makes | {index}
    if private and len(body) <= LONGEST and last % by == 0:
        item.members.append(Member(body, index, begin.group(1), last, by))
    item.puts.add(begin.group(1))
    return item


def _together(items: list[Item]) -> list[Item]:
    """The items of a block, loops joined to earlier ones."""
    done: list[Item] = []
    for item in items:
        if not item.members or not _joined(done, item):
            done.append(item)
    return done


def _joined(done: list[Item], item: Item) -> bool:
    """Join a loop to one of those before it, if that can be."""
    behind: list[Item] = []  # of these, what must stay behind the loop that is looked at
    tried = 0
    for at in range(len(done) - 1, -1, -1):
        host = done[at]
        if not host.members:
            continue
        tried += 1
        if tried > FARTHEST:
            return False
        before, behind = _parted(host, done[at + 1 :])
        if any(item.waits_for(other) for other in behind):
            if item.waits_for(host):
                return False
            continue
        if item.may_join(host):
            host.join(item)
            done[at:] = [*before, host, *behind]
            return True
        if item.waits_for(host):
            return False
    return False


def _parted(host: Item, after: list[Item]) -> tuple[list[Item], list[Item]]:
    """What need not stay behind a loop, and what must."""
    before: list[Item] = []
    behind: list[Item] = []
    all_of_it = dataclasses.replace(host)
    for item in after:
        if item.waits_for(all_of_it):
            behind.append(item)
            all_of_it.join(item)
        else:
            before.append(item)
    return before, behind


def _text(item: Item, names: Iterator[int]) -> list[str]:
    """The lines of loops that are one."""
    step = max(member.step for member in item.members)
    limit = _whole([member.limit for member in item.members], step)
    top, end, index = (f"{word}{next(names)}" for word in ("top", "end", "%v"))
    place = item.members[0].place
    following, more = f"%v{next(names)}", f"%v{next(names)}"
    lines = [f"store i64 0, ptr {place}", f"br label %{top}", f"{top}:"]
    lines.append(f"{index} = load i64, ptr {place}")
    for member in item.members:
        for turn in range(0, step, member.step):
            at = index
            if turn:
                at = f"%v{next(names)}"
                lines.append(f"{at} = add i64 {index}, {turn}")
            lines += _turn(member, at, names)
    lines += [
        f"{following} = add i64 {index}, {step}",
        f"{more} = icmp slt i64 {following}, {limit}",
        f"store i64 {following}, ptr {place}",
        f"br i1 {more}, label %{top}, label %{end}",
        f"{end}:",
    ]
    for member in item.members:
        for turn in range(limit, member.limit, member.step):
            lines += _turn(member, str(turn), names)
    return lines


def _turn(member: Member, index: str, names: Iterator[int]) -> list[str]:
    """The body of a loop at an index, its numbers named anew."""
    new = {member.index: index}
    for line in member.body:
        name, computes, _ = line.partition(" = ")
        if computes:
            new[name] = f"%v{next(names)}"
    rename: Callable = lambda found: new.get(found.group(), found.group())  # noqa: E731
    return [NAME.sub(rename, line) for line in member.body]
