"""Points as users write them (a vector, or any pytree of arrays) and as limpet computes with them.

Everything below the public functions sees vectors of doubles; a `Layout` goes back and forth.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limpet.errors import InputError, real_array

# what is read from a file, so that nothing absurd is built: far beyond any point that is sampled
DEEPEST, MOST_AXES, LONGEST_AXIS = 50, 32, 2**31


class Layout(NamedTuple):
    """The shape of one point: what a vector of its numbers must be cut into."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, point):
        """The layout of one point; `x` is the name of a plain vector."""
        leaves, tree = jax.tree_util.tree_flatten_with_path(point)
        shapes = tuple(_shape(leaf) for _, leaf in leaves)
        names = tuple(
            jax.tree_util.keystr(path, simple=True, separator="_") or "x" for path, _ in leaves
        )
        return cls(tree, shapes, names)

    @classmethod
    def from_json(cls, structure):
        """The layout that `to_json` wrote."""
        layout = cls.of(_read_structure(structure))
        _check_names("layout", layout)
        return layout

    def to_json(self):
        """The layout as JSON; dicts, lists and tuples are all that it can write."""
        leaves = [np.zeros(shape) for shape in self.shapes]
        return _write_structure(jax.tree.unflatten(self.tree, leaves))

    def __str__(self):
        pairs = zip(self.names, self.shapes, strict=True)
        return ", ".join(f"{name}: {shape}" for name, shape in pairs)

    @property
    def axes(self):
        """The names of each variable's own axes."""
        return tuple(map(axes_of, self.names, self.shapes))

    @property
    def size(self):
        """How many numbers a point has."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def widths(self) -> tuple[int, ...]:
        """The length of the last axis, where all variables have one and the same."""
        last = {shape[-1] if len(shape) > 1 else 0 for shape in self.shapes}
        return tuple(last) if len(last) == 1 and 0 not in last else ()

    @property
    def is_vector(self):
        """Whether a point is already the vector of its numbers."""
        return jax.tree_util.treedef_is_leaf(self.tree) and len(self.shapes[0]) == 1

    def vector(self, point):
        """All numbers of a point in one vector."""
        return jnp.concatenate([jnp.ravel(jnp.asarray(a, float)) for a in jax.tree.leaves(point)])

    def point(self, vector):
        """The point that a vector stands for."""
        return jax.tree.unflatten(self.tree, self.pieces(vector))

    def pieces(self, vectors):
        """The arrays of a point, cut out of the last axis of `vectors`."""
        cuts = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = (jnp if isinstance(vectors, jax.Array) else np).split(vectors, cuts, axis=-1)
        return [
            part.reshape(part.shape[:-1] + shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]


def _shape(leaf):
    return leaf.shape if isinstance(leaf, _Leaf) else np.shape(leaf)


def axes_of(name, shape):
    """The names of a variable's own axes, unless a user has others."""
    if len(shape) == 1:
        return (f"{name}_dim",)
    return tuple(f"{name}_dim_{i}" for i in range(len(shape)))


def as_point(given):
    """A point as a pytree of arrays; a list of numbers stands for an array."""
    return jax.tree.map(jnp.asarray, given, is_leaf=_is_numbers)


def read_points(name, given):
    """One point or a batch of points as `(layout, vectors)`, with one row a point.

    A vector or a pytree is one point; a two-dimensional array, or a list of points, is a batch.
    """
    if _is_tree(name, given):
        layout, vectors = _read_trees(name, [given])
    elif isinstance(given, list) and len(given) and _is_tree(name, given[0]):
        layout, vectors = _read_trees(name, given)
    else:
        array = _doubles(name, given)
        if array.ndim not in (1, 2):
            raise InputError(
                f"{name} has shape {array.shape}: expected one vector, shape (n,), or a batch of"
                " vectors, shape (points, n). A point that is itself a matrix goes into a dict,"
                f' {name}={{"positions": matrix}}.'
            )
        vectors = np.atleast_2d(array)
        layout = Layout.of(np.zeros(vectors.shape[1]))
    if not vectors.size:
        raise InputError(f"{name}={given!r} is empty: expected at least one point.")
    if not np.isfinite(vectors).all():
        row, column = np.argwhere(~np.isfinite(vectors))[0]
        raise InputError(
            f"{name} is not finite: number {column} of point {row} is {vectors[row, column]}."
        )
    return layout, vectors


def _write_structure(node):
    if type(node) is dict and all(isinstance(name, str) for name in node):
        return {"dict": {name: _write_structure(part) for name, part in node.items()}}
    if type(node) in (list, tuple):
        return {type(node).__name__: [_write_structure(part) for part in node]}
    if isinstance(node, np.ndarray):
        return {"array": list(node.shape)}
    raise InputError(
        f"start has a part of type {type(node).__name__}, which a store cannot hold: expected"
        " arrays in dicts (with names that are strings), lists or tuples."
    )


def _read_structure(structure, depth=0):
    """The point that a structure is of; its arrays take no memory."""
    one = type(structure) is dict and len(structure) == 1 and depth <= DEEPEST
    ((kind, inside),) = structure.items() if one else ((None, None),)
    if kind == "dict" and type(inside) is dict:
        return {name: _read_structure(part, depth + 1) for name, part in inside.items()}
    if kind in ("list", "tuple") and type(inside) is list:
        parts = [_read_structure(part, depth + 1) for part in inside]
        return parts if kind == "list" else tuple(parts)
    if kind == "array" and type(inside) is list and len(inside) <= MOST_AXES:
        sizes = [size for size in inside if type(size) is int and 0 <= size <= LONGEST_AXIS]
        if sizes == inside:
            return _Leaf(inside)
    raise InputError(
        f"{str(structure)[:80]!r}: expected arrays with their shapes, in dicts, lists or tuples."
    )


class _Leaf:
    """An array of which only the shape is known."""

    def __init__(self, shape):
        self.shape = tuple(shape)


def _is_tree(name, given):
    try:
        leaf = jax.tree_util.treedef_is_leaf(jax.tree.structure(given))
    except ValueError:
        raise InputError(f"{name}={given!r}: expected names of one kind, all strings.") from None
    return not leaf and not isinstance(given, list) and not _is_numbers(given)


def _is_numbers(given):
    """Whether this is a list or tuple of numbers, which stands for an array."""
    return type(given) in (list, tuple) and all(np.ndim(a) == 0 for a in jax.tree.leaves(given))


def _is_array(given):
    return given is None or _is_numbers(given)


def _read_trees(name, points):
    points = [
        jax.tree_util.tree_map_with_path(
            lambda path, leaf: _doubles(name + jax.tree_util.keystr(path), leaf),
            point,
            is_leaf=_is_array,
        )
        for point in points
    ]
    layout = Layout.of(points[0])
    _check_names(name, layout)
    for k, point in enumerate(points):
        if Layout.of(point) != layout:
            raise InputError(
                f"{name}: point {k} has {Layout.of(point)}, point 0 has"
                f" {layout}: expected the same names and shapes in every point."
            )
    return layout, np.stack([np.asarray(layout.vector(point)) for point in points])


def _check_names(name, layout):
    """Refuse names that the result could not have."""
    taken = ["chain", "draw", *(axis for axes in layout.axes for axis in axes)]
    for variable in layout.names:
        usable = variable.isprintable() and "/" not in variable
        if not usable or variable in taken or layout.names.count(variable) > 1:
            raise InputError(
                f"{name} has a variable called {variable!r}: expected names that differ from each"
                " other, from 'chain', 'draw' and the variables' own axes, without a '/' or"
                " characters that cannot be printed."
            )


def _doubles(name, given):
    return real_array(
        name,
        given,
        "real numbers, as a vector, a batch of vectors of one length, or a pytree (dict) of arrays",
    )
