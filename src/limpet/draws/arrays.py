"""The arrays of a store: chunks of one tile's chains and some draws, a file each.

A file is what zarr calls a shard of one chunk: the numbers, limpet's tag, and the index that tells
other readers where the numbers are. They pass over the tag; limpet refuses a chunk whose tag does
not fit run, array, place and numbers. It never reads the arrays' own zarr.json, which others need:
all sizes follow from the specification.
"""

import dataclasses
import json
import math
import struct

import google_crc32c
import numpy as np

from limpet.draws.home import TAG_BYTES, DamagedError, Home, tag
from limpet.run.quantities import FILLS, POINT_TYPE, STATS
from limpet.run.specification import RunSpecification

TAIL = TAG_BYTES + 16 + 4  # tag, index (where the numbers are), checksum of the index


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """One array of a store; `name` is its folder."""

    name: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there are no numbers to keep."""
        return 0 in self.chunk_shape

    def place(self, tile: int, k: int) -> str:
        """The file of a tile's k-th chunk."""
        rest = (0,) * (len(self.shape) - 2)
        return f"{self.name}/c.{'.'.join(map(str, (tile, k, *rest)))}"

    def file(self, key: bytes, tile: int, k: int, part: np.ndarray) -> tuple[str, tuple]:
        """What to write for a chunk: its place, and the parts of the file.

        `part` has the tile's chains; the file has room for the widest tile.
        """
        place = self.place(tile, k)
        numbers = np.ascontiguousarray(part, self.dtype)
        if len(numbers) < self.chunk_shape[0]:
            whole = np.full(self.chunk_shape, FILLS[self.dtype], self.dtype)
            whole[: len(numbers)] = numbers
            numbers = whole
        numbers = numbers.reshape(-1).view(np.uint8).data
        index = struct.pack("<QQ", 0, numbers.nbytes)
        return place, (numbers, tag(key, place, numbers) + index + _checksum(index))

    def read(self, home: Home, key: bytes, tile: int, k: int) -> np.ndarray:
        """A chunk, whole; refused if it is not the one that was written there."""
        place = self.place(tile, k)
        size = math.prod(self.chunk_shape) * np.dtype(self.dtype).itemsize
        contents = home.read(place, size=size + TAIL)
        numbers, tail = memoryview(contents)[:size], memoryview(contents)[size:]
        index = struct.pack("<QQ", 0, size)
        if tail != tag(key, place, numbers) + index + _checksum(index):
            raise DamagedError(f"{place!r} is damaged, or of another place or run")
        return np.frombuffer(numbers, self.dtype).reshape(self.chunk_shape)

    def metadata(self) -> bytes:
        """Its zarr.json, for other readers."""
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        chunk = [max(size, 1) for size in self.chunk_shape]
        fill = FILLS[self.dtype]
        sharding = {
            "chunk_shape": chunk,
            "codecs": [little],
            "index_codecs": [little, {"name": "crc32c"}],
            "index_location": "end",
        }
        return _json(
            {
                "zarr_format": 3,
                "node_type": "array",
                "shape": self.shape,
                "data_type": np.dtype(self.dtype).name,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
                "fill_value": "NaN" if np.isnan(fill) else fill,
                "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
                "attributes": {},
                "dimension_names": self.axes,
            }
        )


def draw_arrays(run: RunSpecification) -> dict[tuple[str, str], StoredArray]:
    """The arrays of draws, by group and name."""
    arrays = {}
    of_axes = run.coordinates.axes(run.layout)
    of_points = zip(run.layout.names, run.layout.shapes, of_axes, strict=True)
    variables = [(name, shape, axes, POINT_TYPE) for name, shape, axes in of_points]
    contents = {group: variables for group in run.groups}
    contents["sample_stats"] = [(name, (), (), stat.dtype) for name, stat in STATS.items()]
    for group, kinds in contents.items():
        for name, shape, axes, dtype in kinds:
            arrays[group, name] = StoredArray(
                f"{group}/{name}",
                (run.chains, run.draws, *shape),
                (run.width, run.chunk, *shape),
                dtype,
                ("chain", "draw", *axes),
            )
    return arrays


def start_array(run: RunSpecification) -> StoredArray:
    """Where the chains began, with the spare chains of the last tile; one chunk."""
    shape = (run.tiles * run.width, run.layout.size)
    return StoredArray("limpet/start", shape, shape, "<f8", ("chain", "number"))


def group_metadata(attributes: dict | None = None) -> bytes:
    """The zarr.json of a group."""
    return _json({"zarr_format": 3, "node_type": "group", "attributes": attributes or {}})


def missing(read: np.ndarray) -> np.ndarray:
    """Where a chunk has no draw."""
    return read < 0 if read.dtype.kind == "i" else np.isnan(read)


def _checksum(index):
    return struct.pack("<I", google_crc32c.value(index))


def _json(entries) -> bytes:
    return json.dumps(entries, indent=2).encode()
