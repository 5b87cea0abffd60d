"""Steps of many chains as machine code.

A step of a small problem is a thousand operations on single numbers. XLA does each of them for all
chains before the next, by way of memory; a compiler of loops keeps a few chains in registers from
the first operation to the last, which is five times as fast and takes a tenth of the time to
compile. So the step of
one chain is traced by JAX, its arrays are taken apart into numbers, and each number becomes a
vector of several chains, its lanes, in LLVM's language (`width.py`):

    arrays      an operation on arrays is many on numbers; moving entries about costs nothing, nor
                do entries that are always zero
    loops       a `while` goes on until all lanes are done; lanes that are done keep their values
    branches    both are computed, and one is chosen

Larger problems have arrays in memory, each entry a vector of lanes, and operations are loops over
them (`loops`): programs grow with the number of operations, not of numbers.

`code.py` writes LLVM, and `machine.py` compiles it. Each of JAX's operations has a rule
(`rules.py`): numbers (`elementwise.py`, made of `arithmetic.py` and `functions.py`), `arrays.py`,
`matrices.py`, loops and calls (`control.py`); `operations.py` puts a whole program together.
`primitives.py` has operations of limpet's own, and says what zeros of sparse matrices are;
`identity.py` what makes two programs one.

What has no rule raises `UnsupportedError` and is left to XLA: most library calls, and callbacks. So
is whatever goes wrong inside.
"""

import contextlib
import ctypes
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import llvmlite.binding as llvm
import numpy as np

from limpet.lanes import loops, machine, operations
from limpet.lanes.code import UnsupportedError, locate
from limpet.lanes.elementwise import LIBRARY
from limpet.lanes.identity import fingerprint_of, uses
from limpet.lanes.width import FEW, MANY, in_registers, side_by_side

__all__ = ["UnsupportedError", "is_large", "is_quick", "scan", "zeros"]

# Operations on single numbers that a program may have and be written as such: compiled in a few
# seconds, and faster than loops.
MOST_NUMBERS = 60_000
MESSAGE = 100  # letters of another library's message that are told, for its own say how to go on


def _make(key: str, make: Callable[[], bytes]) -> bytes:
    return make()


def _nothing():
    return None


def scan(
    step: Callable,
    constants,
    carry,
    inputs,
    zero: Callable[[], Any] = _nothing,
    keep: Callable[[str, Callable[[], bytes]], bytes] = _make,
    registers: int | None = None,
    chains: int = MANY,
    compiled: Callable[..., bytes] = machine.compiled,
    quick: bool = False,
) -> Callable:
    """Compile `carry, output = step(constants, carry, input)` for many chains and many turns.

    The arguments are examples, or shapes, for one chain and one turn. The function returned takes
    constants like these, a carry of arrays (chains, ...) and inputs of arrays (chains, turns, ...);
    it returns the last carry and all outputs, like `jax.lax.scan` inside a `jax.vmap`. They are
    written `over` the outputs of an earlier call, if these are given and fit, since fresh memory is
    slow. A chain's results do not depend on how many others there are.

    `zero()`, of the structure of the carry, may tell of entries that are zero now and always: no
    work is done for them. `keep(key, make)` may return the bytes that it kept under this key, or
    else `make()`: they are machine code. With `registers`, all arrays of more entries than that are
    kept in memory, also where the program is small. `chains` is how many there will be, about.
    `compiled` does what `machine.compiled` does, perhaps elsewhere. `quick` is for programs that
    run shortly; all are compiled so where JAX was told to (`is_quick`).
    """
    quick = quick or is_quick()
    program, shapes = jax.make_jaxpr(step, return_shape=True)(constants, carry, inputs)
    count, size = len(jax.tree.leaves(constants)), len(jax.tree.leaves(carry))
    with _refusing():
        function = _loaded(
            _code(program, count, size, carry, zero, keep, registers, chains, compiled, quick)
        )
    variables: list[Any] = program.jaxpr.invars
    types = [variable.aval.dtype for variable in variables]
    outputs, tree = jax.tree.leaves(shapes[1]), jax.tree.structure(shapes)

    def run(constants, carry, inputs, over=None):
        given = jax.tree.leaves((constants, carry, inputs))
        fixed, state, fed = given[:count], given[count : count + size], given[count + size :]
        chains, turns = np.shape(fed[0])[:2]
        fixed = [np.ascontiguousarray(a, t) for a, t in zip(fixed, types, strict=False)]
        # the code knows how far apart chains are, and takes the numbers of one to be in order
        state = [np.array(a, t, order="C") for a, t in zip(state, types[count:], strict=False)]
        fed = [_rows(a, t) for a, t in zip(fed, types[count + size :], strict=True)]
        made = jax.tree.leaves(over)
        if not made or made[0].shape[:2] != (chains, turns):
            made = [np.empty((chains, turns, *a.shape), a.dtype) for a in outputs]
        entries = [_entry(a, 0) for a in fixed] + [_entry(a, 1) for a in state]
        table = np.array([*entries, *(_entry(a, 2) for a in (*fed, *made))], np.int64)
        if missing := function(table.ctypes.data, turns, chains):
            raise MemoryError(
                f"A step of this model needs {missing >> 20} MB of memory, which this machine does"
                " not have to spare. Each worker needs as much: try workers=1, or a smaller model."
            )
        return jax.tree.unflatten(tree, [*state, *made])

    return run


def is_large(step: Callable, constants, carry, inputs) -> bool:
    """Whether the program of a step has too many numbers for registers, so that `scan` has loops.

    One that is sparse may have more.
    """
    return operations.count(jax.make_jaxpr(step)(constants, carry, inputs)) > MOST_NUMBERS


def zeros(function: Callable, *arguments):
    """Which entries of a function's results are zero, whatever arguments like these it is given."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    with _refusing():
        found = operations.zeros(program)
    return jax.tree.unflatten(jax.tree.structure(shapes), found)


def _code(program, count, size, carry, zero, keep, registers, chains, compiled, quick) -> bytes:
    """The machine code of a program: on numbers if these are few, or many are zero; else loops.

    Plans are there to be loops.
    """
    if registers is None and not uses({"limpet_plan"}, program):
        with contextlib.suppress(UnsupportedError):
            masks = _masks(carry, zero())
            sparse = any(mask.ndim > 1 and 2 * mask.sum() > mask.size for mask in masks)
            numbers = operations.count(program)
            if sparse or numbers <= MOST_NUMBERS:
                bits = [np.packbits(mask).tobytes() for mask in masks]
                lanes = in_registers(numbers, chains, quick)
                key = _key(program, quick, count, size, lanes, *bits)
                write = side_by_side(lanes)(operations.written)
                make = functools.partial(write, program, count, size, masks)
                return keep(key, lambda: compiled(make(), quick=quick))
    registers = loops.REGISTERS if registers is None else registers
    most_lanes = MANY if chains > FEW else FEW
    sizes = count, size, registers, most_lanes
    make = functools.partial(operations.written_as_loops, program, *sizes)
    # loops that gain by it are written with several turns at once
    key = _key(program, quick, *sizes)
    return keep(key, lambda: compiled(make(), quick=quick, unroll=False))


def _masks(carry, zero) -> list[np.ndarray]:
    """Which entries of the carry are zero now and always."""
    if zero is None:
        return [np.zeros(np.shape(leaf), bool) for leaf in jax.tree.leaves(carry)]
    masks = jax.tree.leaves(zero)
    if [each.shape for each in masks] != [np.shape(leaf) for leaf in jax.tree.leaves(carry)]:
        raise ValueError("zero is not of the structure of the carry")
    return masks


@contextlib.contextmanager
def _refusing():
    """Whatever goes wrong with a program is a reason to leave it to XLA, and never ends a run."""
    try:
        yield
    except (UnsupportedError, MemoryError):
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        reason = f"a fault of the compiler ({type(error).__name__}: {first[:MESSAGE]})"
        raise UnsupportedError(reason) from error


def _rows(array, dtype):
    """The array with the entries of a chain and a turn side by side; it may repeat itself."""
    array = np.asarray(array, dtype)
    return array if array[0, 0].flags.c_contiguous else np.ascontiguousarray(array)


def _entry(array, axes):
    """An array's address, and its strides by chain and turn where it has them."""
    strides = [stride // array.itemsize for stride in array.strides[:axes]]
    return [array.ctypes.data, *strides, *[0] * (2 - axes)]


def _key(program, quick, *sizes):
    """What machine code depends on, beside the processor: the program and how it is compiled."""
    parts = [llvm.llvm_version_info, quick, *sizes, fingerprint_of(program), _sources()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@functools.cache  # the text that this process runs does not change; for each program, 2 ms
def _sources() -> str:
    """What stands for the compiler's own text."""
    texts = [file.read_text() for file in sorted(Path(__file__).parent.rglob("*.py"))]
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def is_quick() -> bool:
    """Whether JAX was told to optimize little: for programs that run shortly, as those of tests."""
    return bool(jax.config.read("jax_disable_most_optimizations"))


def _loaded(code: bytes):
    """The function in an object file."""
    for name in LIBRARY:
        locate(name)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine.machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    function = prototype(engine.get_function_address("block"))
    # the engine owns the code
    return lambda *arguments, engine=engine: function(*arguments)
