"""Loops that are made one: the same numbers as one after the other, to the bit, and fewer loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from limpet import lanes
from limpet.lanes import operations
from limpet.lanes.loops import text
from limpet.lanes.loops.access import Addresses
from limpet.lanes.loops.forwarding import forwarded, without_idle_stores
from limpet.lanes.loops.fusion import fused

rng = np.random.default_rng(0)
N = 37  # not a multiple of the turns that sums take at once
POINTS = rng.normal(size=(5, N))


def shifted(x):
    """What a loop reads at other turns than it is written keeps the loops apart."""
    y = jnp.cos(x)
    z = y[1:] * y[:-1]
    return z + jnp.sum(z), y[::-1] + y


def sums_and_entries(x):
    y = x * jnp.sum(x)
    z = y - jnp.max(y)
    return jnp.sum(z**2) * x, y, jnp.sum(y[:-1] * z[1:])


def until_small(x):
    """Cells that lanes keep as they are done, and a concatenation that is longer by one."""
    start = jnp.concatenate([x, jnp.ones(1)])

    def body(carry):
        y, size = carry
        y = y - 0.3 * y * (1 + y[-1] ** 2)
        return y, jnp.sum(y[:-1] ** 2) + 0 * size

    y, size = lax.while_loop(lambda carry: carry[1] > 3.0, body, (start, jnp.sum(x**2)))
    return jnp.where(size > 2.5, y, start), size


def one_of_two(x):
    """An array that is in one of two places."""
    y = lax.cond(x[0] > 0, lambda: x, lambda: jnp.sin(x))
    z = y + x
    return z - jnp.mean(z), y * z


def rows(x):
    y = jnp.outer(x, x[:3])
    return y.sum(axis=1) * x, (y**2).sum(), jnp.cumsum(x + 1) - x


FUNCTIONS = [shifted, sums_and_entries, until_small, one_of_two, rows]


def run(function, points):
    one = jax.ShapeDtypeStruct(points.shape[1:], points.dtype)
    step = lambda _, carry, x: (carry, function(x))  # noqa: E731
    program = lanes.scan(step, (), jnp.zeros(()), one, registers=4)
    return jax.tree.leaves(program((), np.zeros(len(points)), points[:, None])[1])


@pytest.mark.optimized  # what is compiled quickly may round differently
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_fused_loops_do_the_same(function, monkeypatch):
    monkeypatch.setattr(operations, "LARGE", 0)
    together, loops = run(function, POINTS), []

    def apart(lines, *_):
        loops.append(sum(isinstance(part, text.Loop) for part in text.parts(lines)))
        loops.append(sum(isinstance(part, text.Loop) for part in text.parts(fused(lines, *_))))
        return lines

    monkeypatch.setattr(operations, "fused", apart)
    monkeypatch.setattr(operations, "without_idle_stores", lambda lines, _: lines)
    for a, b, c in zip(
        together, run(function, POINTS), jax.tree.leaves(jax.vmap(function)(POINTS)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a[:, 0], c, rtol=1e-12, atol=1e-12)
    assert loops[1] < loops[0]


def loop(number, limit, *body):
    """The lines of a loop; `@` is its index."""
    index = f"%v{number}"
    body = [line.replace("@", index) for line in body]
    return text.written(index, f"%place{number}", limit, 1, body, itertools.count(number + 1))


def entry(name, at, index):
    """The address of an entry of the array that begins at a byte."""
    return [
        f"{name}0 = getelementptr i8, ptr %workspace, i64 {at} ; {at}",
        f"{name} = getelementptr <4 x double>, ptr {name}0, i64 {index}",
    ]


def copy(number, source, to, limit, ahead=0):
    """A loop that copies an array, or what is ahead in it."""
    n, load = f"%v{number}", "load <4 x double>, ptr"
    return loop(
        number,
        limit,
        f"{n}9 = add i64 @, {ahead}",
        *entry(f"{n}1", source, f"{n}9"),
        f"{n}2 = {load} {n}1",
        *entry(f"{n}3", to, "@"),
        f"store <4 x double> {n}2, ptr {n}3",
    )


SIZES = {k * 4096: 4096 for k in range(4)}


def count(lines):
    return sum(isinstance(part, text.Loop) for part in text.parts(lines))


@pytest.mark.parametrize(
    ("second", "loops"),
    [
        (copy(200, 4096, 8192, 100), 1),  # reads what the first wrote at the same turn
        (copy(200, 4096, 8192, 97), 1),  # and the first has some turns left
        (copy(200, 4096, 8192, 50), 2),  # too many
        (copy(200, 4096, 8192, 99, ahead=1), 2),  # what the first writes a turn later
        (copy(200, 8192, 0, 100), 1),  # writes where the first has read
        (copy(200, 8192, 0, 100, ahead=1), 1),
        (copy(200, 8192, 12288, 100), 2),  # nothing in common
    ],
)
def test_what_may_be_one_loop(second, loops):
    lines = [*copy(100, 0, 4096, 100), *second]
    assert count(lines) == 2
    assert count(fused(lines, SIZES, itertools.count(1000))) == loops


def test_a_loop_passes_what_needs_nothing_of_the_other():
    between = [*copy(300, 12288, 12288, 80), "%v900 = fadd double 1.0, 2.0"]
    lines = [*copy(100, 0, 4096, 100), *between, *copy(200, 4096, 8192, 100)]
    assert count(fused(lines, SIZES, itertools.count(1000))) == 2
    needed = [*entry("%v900", 4096, "7"), "%v901 = load <4 x double>, ptr %v900"]
    needed += [*entry("%v902", 8192, "7"), "store <4 x double> %v901, ptr %v902"]
    lines = [*copy(100, 0, 4096, 100), *needed, *copy(200, 4096, 8192, 100)]
    assert count(fused(lines, SIZES, itertools.count(1000))) == 2


def test_arrays_that_nobody_reads_are_not_written():
    last = [*entry("%v900", 8192, "7"), "%v901 = load <4 x double>, ptr %v900"]
    lines = [*copy(100, 0, 4096, 100), *copy(200, 4096, 8192, 100), *last]
    made = without_idle_stores(fused(lines, SIZES, itertools.count(1000)), SIZES)
    assert sum(line.startswith("store <4") for line in made) == 1
    assert sum("load <4" in line for line in made) == 2  # of the first array, and the last line


def test_a_store_in_between_is_not_forgotten():
    lines = [*entry("%v1", 0, "3"), "store <4 x double> %v8, ptr %v1"]
    lines += ["store <4 x double> %v9, ptr %v1", "%v2 = load <4 x double>, ptr %v1"]
    lines += ["%v3 = fadd <4 x double> %v2, %v2"]
    assert forwarded(lines, Addresses([], SIZES), None, 1, 1)[-1] == (
        "%v3 = fadd <4 x double> %v9, %v9"
    )
