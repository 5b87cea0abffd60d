"""What a program is: its operations, their parameters and all constants, by value.

Never by how it is printed: that depends on terminals (colours) and settings (constants left out),
and shows where objects are in memory. The same program has the same digest in every process.
"""

import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

# Parameters that do not say what is computed: names, and rules of derivatives, which are part of
# the program where a derivative is taken.
SILENT = {"name", "debug_info", "ctx_mesh", "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"}
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def fingerprint_of(program) -> str:
    """The digest of a program."""
    return _Digests().of(program).hex()


def programs_in(program) -> Iterator[tuple[Any, tuple]]:
    """A program and all programs inside it, each with its constants where it has them."""
    inner = getattr(program, "jaxpr", program)
    yield inner, getattr(program, "consts", ())
    for equation in inner.eqns:
        for part in inner_programs(equation):
            yield from programs_in(part)


def inner_programs(equation) -> Iterator[Any]:
    """The programs that an operation runs."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if _is_program(part):
                yield part


def _is_program(value):
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _hashed(kind: str, *parts: bytes) -> bytes:
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


class _Digests:
    """Digests of values of all kinds; each object is looked at once."""

    def __init__(self):
        self.seen: dict[int, tuple[bytes, Any]] = {}  # by place in memory, and what is kept there

    def of(self, value) -> bytes:
        if isinstance(value, PLAIN):
            return _hashed(type(value).__name__, repr(value).encode())
        if id(value) not in self.seen:
            self.seen[id(value)] = _hashed("again"), value  # for what refers to itself
            self.seen[id(value)] = self._made(value), value
        return self.seen[id(value)][0]

    def _made(self, value):
        if _is_program(value):
            return self._program(value)
        if isinstance(value, np.ndarray | np.generic | jax.Array) or hasattr(value, "__array__"):
            return self._array(value)
        if isinstance(value, np.dtype | type | enum.Enum):
            return _hashed("type", str(value).encode())
        if isinstance(value, dict):
            pairs = sorted((self.of(key), self.of(each)) for key, each in value.items())
            return _hashed("dict", *(part for pair in pairs for part in pair))
        if isinstance(value, set | frozenset):
            return _hashed("set", *sorted(map(self.of, value)))
        if isinstance(value, jax.tree_util.PyTreeDef):
            return _hashed("tree", str(value).encode())
        kind = type(value).__qualname__
        if isinstance(value, tuple | list):
            return _hashed(kind, *map(self.of, value))
        if isinstance(value, slice | range):
            return _hashed(kind, *map(self.of, (value.start, value.stop, value.step)))
        return self._object(kind, value)

    def _object(self, kind, value):
        if isinstance(value, functools.partial):
            return _hashed(kind, *map(self.of, (value.func, value.args, value.keywords)))
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            parts = value.__code__, value.__defaults__, value.__kwdefaults__, cells
            return _hashed(kind, value.__qualname__.encode(), *map(self.of, parts))
        if isinstance(value, types.CodeType):
            return _hashed(kind, value.co_code, *map(self.of, (value.co_consts, value.co_names)))
        if dataclasses.is_dataclass(value):
            fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
            return _hashed(kind, *map(self.of, fields))
        # what else a parameter may be says with its attributes, if it has any, what it is
        return _hashed(kind, self.of(getattr(value, "__dict__", None)))

    def _array(self, value):
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):  # keys of random numbers
            return _hashed(str(value.dtype), self._array(jax.random.key_data(value)))
        array = np.asarray(value)
        return _hashed(f"{array.dtype}{array.shape}", array.tobytes())

    def _program(self, closed):
        program, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
        names: dict[Any, int] = {}

        def named(variables):
            """Variables that are new here: their types, and a number for each."""
            for variable in variables:
                names[variable] = len(names)
            return [self._type(variable.aval) for variable in variables]

        def read(atoms):
            return [
                _hashed("literal", self.of(atom.val), self._type(atom.aval))
                if isinstance(atom, Literal)
                else names[atom].to_bytes(8, "little")
                for atom in atoms
            ]

        parts = [*map(self.of, constants), *named(program.constvars), *named(program.invars)]
        for equation in program.eqns:
            shown = {k: v for k, v in equation.params.items() if k not in SILENT}
            parts += [equation.primitive.name.encode(), self.of(shown)]
            parts += [*read(equation.invars), *named(equation.outvars)]
        return _hashed("program", *parts, *read(program.outvars))

    def _type(self, aval):
        weak = getattr(aval, "weak_type", False)
        kind = _text(aval.dtype) if hasattr(aval, "dtype") else aval
        return f"{kind}{getattr(aval, 'shape', '')}{weak}".encode()


_text = functools.cache(str)  # NumPy takes long to name a type


def uses(names, jaxpr) -> bool:
    """Whether a program has an operation with one of these names."""
    return any(e.primitive.name in names for part, _ in programs_in(jaxpr) for e in part.eqns)
