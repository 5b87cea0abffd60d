"""Factors by supernodes, against NumPy's algebra and against the plans they stand in for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_sparse

from limpet import lanes
from limpet.lanes.plans import compute
from limpet.lanes.supernodes import WIDEST, supernodes_of
from limpet.sparse import elimination, tables
from limpet.sparse.dependence import dependence
from limpet.sparse.elimination import best_order, count_products
from limpet.sparse.normals import SparseNormals
from limpet.sparse.tables import Structure

pytestmark = pytest.mark.optimized


@pytest.fixture
def always(monkeypatch):
    """Every factor is made by supernodes."""
    monkeypatch.setattr(tables, "MANY_PRODUCTS", -1)


def structure_of(pairs):
    involved = dependence(test_sparse.bond_lengths(pairs), jnp.zeros(3 * (pairs.max() + 1))).tocoo()
    return Structure(involved.col.astype(int), involved.row.astype(int), *involved.shape[::-1])


@pytest.mark.parametrize("beads", [2, 7, 38, 61])
@pytest.mark.parametrize("kind", test_sparse.KINDS[1:])
def test_algebra(always, kind, beads):
    """Odd sizes, bonds in random order; one bond alone, too."""
    rng = np.random.default_rng(beads)
    if beads == 2:
        kind = "chain"
    structure = structure_of(test_sparse.bonds(kind, beads, rng))
    assert structure.factor.supernodes is not None
    assert test_sparse.algebra_error(structure, rng, compile=1) < 1


def test_pieces_that_do_not_hang_together(always):
    rng = np.random.default_rng(5)
    parts = [test_sparse.bonds(kind, 13, rng) for kind in ("network", "star", "ring")]
    pairs = rng.permutation(np.concatenate([part + 13 * k for k, part in enumerate(parts)]))
    assert test_sparse.algebra_error(structure_of(pairs), rng, compile=16) < 1


def test_wide_supernodes_are_parted(always):
    """Of bonds that share a bead, the Gram matrix is full: one supernode, in several parts."""
    pairs = np.array([(0, k) for k in range(1, 3 * WIDEST + 6)])
    structure = structure_of(pairs)
    found = structure.factor.supernodes
    assert found is not None
    assert found.nodes[:, 1].tolist() == [WIDEST] * 3 + [5]
    assert test_sparse.algebra_error(structure, np.random.default_rng(3), compile=16) < 1


def compiled(function, *given):
    """A function of arrays, compiled with all of them in memory, for a few chains."""
    program = lanes.scan(
        lambda _, carry, given: (carry, function(*given)),
        (),
        jnp.zeros(()),
        tuple(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in given),
        registers=1,
    )
    rows = tuple(np.broadcast_to(part, (3, 1, *part.shape)) for part in given)
    return jax.tree.map(lambda leaf: leaf[2, 0], program((), np.zeros(3), rows)[1])


def test_a_bond_twice_has_no_factor(always):
    """Two bonds between the same beads: their Gram matrix is singular, and that shows."""
    pairs = np.array([(k, k + 1) for k in range(20)] + [(0, 9), (7, 8)])
    structure = structure_of(pairs)
    x = np.random.default_rng(2).normal(size=structure.n)
    normals = jax.jacobian(test_sparse.bond_lengths(pairs))(x)
    entries = np.asarray(normals[structure.constraints, structure.unknowns])
    diagonal = compiled(lambda g: SparseNormals(g, structure).factor().diagonal, entries)
    K = np.asarray(normals @ normals.T)
    assert not np.min(np.nan_to_num(diagonal)) ** 2 > 1e-12 * np.max(K)


def test_the_matrix_is_not_changed(always):
    """It is made where it is factored only if nothing else reads it."""
    rng = np.random.default_rng(4)
    structure = structure_of(test_sparse.bonds("network", 40, rng))
    g = rng.normal(size=structure.size)

    def both(g):
        gram = compute(structure.gram, g)
        factor = compute(structure.factor, gram)
        return gram, factor, compute(structure.factor, 2 * gram)

    found, expected = compiled(both, g), jax.jit(both)(g)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)


def test_many_products_are_made_by_supernodes():
    rng = np.random.default_rng(6)
    hub = structure_of(np.array([(0, k) for k in range(1, 50)]))
    chain = structure_of(test_sparse.bonds("chain", 50, rng))
    for structure, wanted in ((hub, True), (chain, False)):
        for plan in (structure.factor, structure.elimination_of_any):
            assert (plan.supernodes is not None) == wanted
    assert hub.factor != dataclasses.replace(hub.factor, supernodes=None)


def broken(found, table):
    """Supernodes with one thing wrong."""
    value = getattr(found, table).copy()
    if table == "nodes":
        value[np.argmax(value[:, 1]), 1] -= 1  # a column less
    elif table == "rows":
        value[len(value) // 2] += 1
    else:  # what is taken from one entry is taken from another
        inside = np.flatnonzero(value < found.size)
        value[inside[len(inside) // 2]] = value[inside[0]]
    return dataclasses.replace(found, **{table: value})


@pytest.mark.parametrize("table", ["nodes", "rows", "targets"])
@pytest.mark.parametrize("plan", ["factor", "elimination_of_any"])
def test_mutants_are_caught(always, plan, table):
    rng = np.random.default_rng(11)
    structure = structure_of(test_sparse.bonds("network", 30, rng))
    whole = getattr(structure, plan)
    mutant = dataclasses.replace(whole, supernodes=broken(whole.supernodes, table))
    structure.__dict__[plan] = mutant
    structure.lifted.__dict__["factor"] = Structure.factor.func(structure.lifted)
    assert not test_sparse.algebra_error(structure, rng, compile=1) < 1


def test_orders_are_tried_where_there_are_many_products(monkeypatch):
    rng = np.random.default_rng(1)
    gram = structure_of(test_sparse.bonds("network", 150, rng))._gram
    best = count_products(elimination.factor_rows(gram, best_order(gram)))
    monkeypatch.setattr(elimination, "MORE_ORDERS", 0)
    first = count_products(elimination.factor_rows(gram, best_order(gram)))
    assert best <= first
    np.testing.assert_array_equal(best_order(gram), best_order(gram))


def test_products_are_counted():
    rng = np.random.default_rng(8)
    structure = structure_of(test_sparse.bonds("network", 40, rng))
    terms = count_products(structure._rows)
    assert terms == structure.factor.terms
    found = supernodes_of(structure._rows, both=False)
    assert found.nodes[:, 1].sum() == structure.m
