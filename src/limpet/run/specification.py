"""What a run is: one frozen object, and the JSON that a store keeps of it.

Whoever can write a file can write JSON, so nothing in it is taken on trust: `from_json` looks at
every type, range and size before anything is allocated, and a checksum tells of any change.
"""

import dataclasses
import functools
import hashlib
import json
import math
from typing import Any

from limpet.coordinates import LONGEST_TEXT, Coordinates
from limpet.errors import InputError
from limpet.kernels import Move
from limpet.layout import Layout
from limpet.run import tile
from limpet.run.goal import Goal
from limpet.run.quantities import draw_bytes

FORMAT = 11
MOST = 2**63 - 1  # what an array of whole numbers holds
MOST_CHAINS = 2**24  # beyond any machine; tiles are counted one by one
MOST_NUMBERS = 2**31  # of a point
DEEPEST = 4  # lists in lists of a parameter
CHUNK_BYTES = 2**22  # of a tile's chunk: large enough for a disk, small enough to rewrite often
ALL_CHUNKS = 2**29  # bytes of the chunks that all tiles together are filling
LONGEST_CHUNK = 4096  # draws
RESERVED = (".", "..", "zarr.json")
CHANGING = ("draws", "goal", "checksum")  # entries that may be others when a run goes on


class SpecificationError(Exception):
    """A description that cannot be: which entry, its value, what was expected."""


@dataclasses.dataclass(frozen=True)
class RunSpecification:
    """What was asked for, of which sampler, and how it is laid out.

    `draws` and `goal` alone may change.
    """

    run: str  # random: no other run has it
    chains: int
    draws: int
    warmup: int | None  # steps; None where warm-up ends by itself
    scale: Any  # "learn", None, or the numbers given
    thin: int
    keep_surface: bool
    seed: int
    kernel: str
    fields: dict[str, Any]  # of the kernel, as it was given
    parameters: dict[str, Any]  # the same, defaults filled in
    moves: tuple[str, ...]
    sizes: tuple[str, ...]  # parameters that warm-up tunes
    width: int  # chains of a tile
    chunk: int  # draws of a chunk
    constraints: int
    layout: Layout
    target: dict[str, Any] | None  # what it is recognised by; only a store needs it
    limpet_version: str
    jax_version: str
    coordinates: Coordinates  # what a user calls axes and places along them
    goal: Goal | None = None  # until when there are to be more draws, if that was said

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of draws."""
        return ("posterior", "surface") if self.keep_surface else ("posterior",)

    @property
    def ladder(self) -> list[Any]:
        """The eps of the rungs that chains have, if they have a ladder."""
        return self.parameters.get("ladder") or []

    @property
    def pairs(self) -> int:
        """How many rungs have one below them."""
        return max(0, len(self.ladder) - 1)

    @property
    def tiles(self) -> int:
        """How many tiles the chains fill."""
        return -(-self.chains // self.width)

    def chains_of(self, tile: int) -> range:
        """The chains of a tile; the last one may have fewer."""
        first = tile * self.width
        return range(first, min(first + self.width, self.chains))

    def rows_of(self, tile: int) -> slice:
        """The starts of a tile, among those of all; the last one may have spare ones."""
        return slice(tile * self.width, (tile + 1) * self.width)

    @functools.cached_property
    def key(self) -> bytes:
        """What binds files to this run: a digest of all that never changes."""
        return _digest({k: v for k, v in self.to_json().items() if k not in CHANGING})

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON, with a checksum."""
        entries = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        entries |= {"format": FORMAT, "layout": self.layout.to_json()}
        entries |= {"coordinates": self.coordinates.to_json()}
        if not self.coordinates:
            del entries["coordinates"]  # stores of before there were any have none
        if self.goal is None:
            del entries["goal"]  # the same
        entries = json.loads(json.dumps(entries))  # tuples are lists
        return entries | {"checksum": _digest(entries).hex()}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> "RunSpecification":
        """What `to_json` wrote; anything else is refused."""
        entries = dict(given)
        checksum = entries.pop("checksum", None)
        known = {f.name for f in dataclasses.fields(cls)} | {"format"}
        if different := (entries.keys() ^ known) - {"coordinates", "goal"}:
            odd = ", ".join(repr(name)[:LONGEST_TEXT] for name in sorted(different))
            raise SpecificationError(f"{odd}: missing, or not known")
        plain = {name: check(name, entries[name]) for name, check in CHECKS.items()}
        layout = _layout(entries["layout"])
        named = _coordinates(layout, entries)
        self = cls(**plain, layout=layout, coordinates=named, goal=_goal(entries))
        _check_together(self)
        if checksum != _digest(entries).hex():
            raise SpecificationError("its checksum does not fit: something in it was changed")
        return self


def chunk_length(layout: Layout, chains: int, width: int) -> int:
    """Draws of a chunk, so that a tile's chunk has about four megabytes."""
    tiles = -(-chains // width)
    fitting = min(CHUNK_BYTES, ALL_CHUNKS // tiles) // (width * draw_bytes(layout.size))
    return max(1, min(fitting, LONGEST_CHUNK))


def check_names(layout: Layout):
    """Refuse names of variables that cannot be names of folders."""
    for name in layout.names:
        if not name.isprintable() or name in RESERVED or len(name) > LONGEST_TEXT or "/" in name:
            raise InputError(
                f"start has a variable called {name!r}, which a store cannot hold: expected"
                " a printable name that a folder can have."
            )


def _digest(entries) -> bytes:
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def _wrong(name, value, expected):
    return SpecificationError(f"{name} is {repr(value)[:LONGEST_TEXT]}: expected {expected}")


def _whole(least, most=MOST):
    def check(name, value):
        if type(value) is not int or not least <= value <= most:
            raise _wrong(name, value, f"a whole number from {least} to {most}")
        return value

    return check


def _or_none(check):
    return lambda name, value: None if value is None else check(name, value)


def _flag(name, value):
    if type(value) is not bool:
        raise _wrong(name, value, "true or false")
    return value


def _text(name, value):
    if type(value) is not str or not value.isprintable() or len(value) > LONGEST_TEXT:
        raise _wrong(name, value, "printable text")
    return value


def _identifier(name, value):
    if not _text(name, value).isidentifier():
        raise _wrong(name, value, "the name of a class")
    return value


def _hexadecimal(name, value):
    if len(_text(name, value)) != 32 or not set(value) <= set("0123456789abcdef"):
        raise _wrong(name, value, "32 hexadecimal digits")
    return value


def _texts(name, value):
    if type(value) is not list:
        raise _wrong(name, value, "a list of names")
    return tuple(_text(name, part) for part in value)


def _value(name, value, depth=0):
    """A number, a word, nothing, or lists of these."""
    if type(value) is list and depth < DEEPEST:
        return [_value(name, part, depth + 1) for part in value]
    if type(value) is str:
        return _text(name, value)
    if value is not None and type(value) not in (bool, int, float):
        raise _wrong(name, value, "a number, text or a list of these")
    return value


def _values(name, value):
    if type(value) is not dict:
        raise _wrong(name, value, "names with their values")
    return {_text(name, key): _value(f"{name}: {key}", part) for key, part in value.items()}


def _reals(name, value):
    if type(value) is not list or not all(
        type(part) in (int, float) and math.isfinite(part) for part in value
    ):
        raise _wrong(name, value, "a list of finite numbers")
    return value


def _target(name, value):
    """How a target is recognised: its eps, values at a few points, digests of its programs."""
    if type(value) is not dict or value.keys() != {"eps", "values", "programs"}:
        raise _wrong(name, value, "eps, values and programs")
    eps = value["eps"]
    _reals(f"{name}: eps", eps if type(eps) is list else [eps])
    for part in ("values", "programs"):
        _values(f"{name}: {part}", value[part])
    for what, numbers in value["values"].items():
        _reals(f"{name}: {what}", numbers)
    return value


def _layout(structure):
    try:
        layout = Layout.from_json(structure)
        check_names(layout)
    except InputError as error:
        raise SpecificationError(f"layout: {str(error).rstrip('.')}") from None
    if not 1 <= layout.size <= MOST_NUMBERS:
        raise _wrong("layout", layout.size, f"1 to {MOST_NUMBERS} numbers")
    return layout


def _coordinates(layout, entries):
    if "coordinates" not in entries:
        return Coordinates()
    try:
        return Coordinates.from_json(layout, entries["coordinates"])
    except InputError as error:
        raise SpecificationError(f"coordinates: {str(error).rstrip('.')}") from None


def _goal(entries):
    if "goal" not in entries:
        return None
    given = entries["goal"]
    if type(given) is not list or len(given) != len(Goal._fields):
        raise _wrong("goal", given, "an effective sample size and a number of draws")
    return Goal(*(_whole(1)("goal", number) for number in given))


CHECKS = {
    "run": _hexadecimal,
    "chains": _whole(1, MOST_CHAINS),
    "draws": _whole(1),
    "warmup": _or_none(_whole(0)),
    "scale": _value,
    "thin": _whole(1),
    "keep_surface": _flag,
    "seed": _whole(0),
    "kernel": _identifier,
    "fields": _values,
    "parameters": _values,
    "moves": _texts,
    "sizes": _texts,
    "width": _whole(1),
    "chunk": _whole(1, LONGEST_CHUNK),
    "constraints": _whole(0, MOST_NUMBERS),
    "target": _target,
    "limpet_version": _text,
    "jax_version": _text,
}


def _check_together(run: RunSpecification):
    """Refuse entries that do not fit each other."""
    if run.width != tile.width_for(run.chains):
        raise _wrong("width", run.width, f"{tile.width_for(run.chains)} chains to a tile")
    if unknown := set(run.moves) - {move.name.lower() for move in Move}:
        raise _wrong("moves", sorted(unknown), "moves that this limpet has")
    for name in run.sizes:
        if type(run.parameters.get(name)) not in (int, float):
            raise _wrong("sizes", name, "the name of a number among the parameters")
    if run.chunk > 1 and run.chunk * run.width * draw_bytes(run.layout.size) > CHUNK_BYTES:
        raise _wrong("chunk", run.chunk, f"draws that fit {CHUNK_BYTES} bytes, or one")
    if run.draws * run.thin > MOST:
        raise _wrong("draws", run.draws, f"at most {MOST // run.thin}, of which thin={run.thin}")
