"""Loops over the same entries, made one.

Each operation on large arrays is a loop of its own when it is written. Where two of them go over
the same entries, and neither needs all of the other first, one loop can do the work of both: it
reads an entry once, and what the first computes is at hand for the second. In problems whose arrays
are larger than a cache, the time of a step is that of these passes over memory.

A loop is moved up to an earlier one, past lines and loops that need nothing of that. What it reads
and writes decides: both may touch the same memory only at the same turn. Sums take several turns at
once; a loop that joins them does so too, and turns that are left over follow one by one.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator

from limpet.lanes.code import NAME
from limpet.lanes.loops.access import Accesses, Addresses
from limpet.lanes.loops.forwarding import forwarded
from limpet.lanes.loops.text import Loop, is_plain, parts, written

LEFT_OVER = 8  # turns that one of the loops may have beyond those of the other
FARTHEST = 12  # loops up to which one may be moved, counted from the last
LONGEST = 400  # lines of a loop's turn


@dataclasses.dataclass(slots=True)
class Item:
    """A line, or loops that are one."""

    lines: list[str]
    accesses: Accesses
    makes: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    gets: frozenset[str] = frozenset()  # variables
    puts: frozenset[str] = frozenset()
    loops: tuple[Loop, ...] = ()

    def join(self, other: "Item"):
        """Take up what another does."""
        self.lines = self.lines + other.lines
        self.accesses = self.accesses + other.accesses
        for name in ("makes", "needs", "gets", "puts"):
            setattr(self, name, getattr(self, name) | getattr(other, name))
        self.loops = self.loops + other.loops

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
        step = max(loop.step for loop in (*self.loops, *other.loops))
        limits = [loop.limit for loop in (*self.loops, *other.loops)]
        return (
            {loop.step for loop in (*self.loops, *other.loops)} <= {1, step}
            and max(limits) - _whole(limits, step) <= LEFT_OVER < min(limits)
            and not self._needs_numbers_of(other)
            and any(a.overlaps(b) for a in self.accesses for b in other.accesses)
            and all(a.keeps_apart(b, step) for a in self.accesses for b in other.accesses)
        )


def _whole(limits, step) -> int:
    return min(limits) // step * step


def fused(lines: list[str], sizes: dict[int, int], names: Iterator[int]) -> list[str]:
    """The lines of a program with fewer loops; `sizes` are those of parts of the workspace."""
    addresses = Addresses(lines, sizes)
    uses = Counter(name for line in lines for name in set(NAME.findall(line)))
    kept: list[str] = []
    block: list[Item] = []

    def end_block():
        for item in _together(block):
            kept.extend(_text(item, addresses, names) if len(item.loops) > 1 else item.lines)
        block.clear()

    for part in parts(lines):
        if isinstance(part, Loop):
            block.append(_loop(part, addresses, uses))
        elif is_plain(part):
            block.append(_line(part, addresses))
        else:
            end_block()
            kept.append(part)
    end_block()
    return kept


def _line(line: str, addresses: Addresses | None) -> Item:
    name, computes, rest = line.partition(" = ")
    names = frozenset(NAME.findall(rest if computes else line))
    places = frozenset(each for each in names if each.startswith("%place"))
    makes = frozenset({name} if computes else ())
    gets, puts = (places, frozenset()) if computes else (frozenset(), places)
    accesses = addresses.of_line(line) if addresses else ()
    return Item([line], accesses, makes, names - places, gets, puts)


def _loop(loop: Loop, addresses: Addresses, uses: Counter) -> Item:
    lines = [_line(line, None) for line in loop.body]
    makes, needs, gets, puts = (
        frozenset().union(*(getattr(line, name) for line in lines))
        for name in ("makes", "needs", "gets", "puts")
    )
    inside = Counter(name for line in loop.lines for name in set(NAME.findall(line)))
    private = all(uses[name] == inside[name] for name in makes)
    joins = private and len(loop.body) <= LONGEST and loop.limit % loop.step == 0
    return Item(
        loop.lines,
        addresses.of(loop.body, loop.index, loop.limit, loop.step),
        makes,
        needs - makes - {loop.index},
        gets,
        puts | {loop.place},
        (loop,) if joins else (),
    )


def _together(items: list[Item]) -> list[Item]:
    """The items of a block, loops joined to earlier ones."""
    done: list[Item] = []
    for item in items:
        if not item.loops or not _joined(done, item):
            done.append(item)
    return done


def _joined(done: list[Item], item: Item) -> bool:
    """Join a loop to one of those before it, if that can be."""
    behind: list[Item] = []  # of these, what must stay behind the loop that is looked at
    tried = 0
    for at in range(len(done) - 1, -1, -1):
        host = done[at]
        if not host.loops:
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
            done[at:] = before
            if not _joined(done, host):
                done.append(host)
            done += behind
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


def _text(item: Item, addresses: Addresses, names: Iterator[int]) -> list[str]:
    """The lines of loops that are one."""
    step = max(loop.step for loop in item.loops)
    limit = _whole([loop.limit for loop in item.loops], step)
    index, body = f"%v{next(names)}", []
    for loop in item.loops:
        for turn in range(0, step, loop.step):
            at = f"%v{next(names)}" if turn else index
            body += [f"{at} = add i64 {index}, {turn}"] if turn else []
            body += _turn(loop, at, names)
    left = [
        line
        for loop in item.loops
        for turn in range(limit, loop.limit, loop.step)
        for line in _turn(loop, str(turn), names)
    ]
    body = forwarded(body, addresses, index, limit, step)
    loop = written(index, item.loops[0].place, limit, step, body, names)
    return [*loop, *forwarded(left, addresses, None, 1, 1)]


def _turn(loop: Loop, index: str, names: Iterator[int]) -> list[str]:
    """The body of a loop at an index, its numbers named anew."""
    new = {loop.index: index}
    for line in loop.body:
        name, computes, _ = line.partition(" = ")
        if computes:
            new[name] = f"%v{next(names)}"
    return [NAME.sub(lambda found: new.get(found.group(), found.group()), x) for x in loop.body]
