"""Numbers that a loop stores and reads again, and arrays that nobody reads any more."""

from collections import defaultdict

from limpet.lanes.code import NAME
from limpet.lanes.loops.access import LOAD, STORE, Access, Addresses
from limpet.lanes.loops.text import Loop, parts


def forwarded(
    lines: list[str], addresses: Addresses, index: str | None, limit: int, step: int
) -> list[str]:
    """The body of a loop, or lines, where what was just stored is not read back."""
    addresses.learn(lines)
    stored: dict[Access, tuple[str, str]] = {}  # what is there, and its type
    same: dict[str, str] = {}
    kept = []
    for line in lines:
        line = NAME.sub(lambda found: same.get(found.group(), found.group()), line)
        accesses = addresses.of_line(line, index, limit, step)
        name, _, text = line.partition(" = ")
        if accesses and accesses[0].writes:
            match = STORE.match(line)
            assert match is not None
            stored = {a: v for a, v in stored.items() if not any(map(a.overlaps_now, accesses))}
            if len(accesses) == 1 and accesses[0].first is not None:
                stored[accesses[0]] = match.group(2), match.group(1)
        elif len(accesses) == 1 and (match := LOAD.match(text)):
            there = [value for a, value in stored.items() if a.is_at(accesses[0])]
            if there and there[0][0].startswith("%") and there[0][1] == match.group(1):
                same[name] = there[0][0]
                continue
        kept.append(line)
    return kept


def without_idle_stores(lines: list[str], sizes: dict[int, int]) -> list[str]:
    """The lines without those that write what no other reads."""
    addresses, read = Addresses(lines, sizes), defaultdict(list)
    all_parts = list(parts(lines))
    for part in all_parts:
        for _, accesses in _accesses(part, addresses):
            for access in accesses:
                if not access.writes:
                    read[access.array].append(access)

    def is_idle(accesses) -> bool:
        return (
            len(accesses) == 1
            and accesses[0].writes
            and accesses[0].array is not None
            and not any(map(accesses[0].overlaps, read[accesses[0].array]))
            and not any(map(accesses[0].overlaps, read[None]))
        )

    kept: list[str] = []
    for part in all_parts:
        needed = [line for line, accesses in _accesses(part, addresses) if not is_idle(accesses)]
        kept += part.with_body(needed) if isinstance(part, Loop) else needed
    return kept


def _accesses(part: str | Loop, addresses: Addresses):
    """The lines of a part, and what each of them touches."""
    if isinstance(part, Loop):
        for line in part.body:
            yield line, addresses.of_line(line, part.index, part.limit, part.step)
    else:
        yield part, addresses.of_line(part)
