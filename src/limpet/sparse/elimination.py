"""In which order a sparse Gram matrix is eliminated, and where its factor has entries."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

MORE_ORDERS = 7  # tried where they may pay; each takes 30 ms for 1,000 bonds of a network
# Products of a factor for each of its entries: with more, minimum degree is tried again with the
# constraints in other orders, for it has many choices. On a network of 1,000 bonds, the best of 8
# has 7 to 13 % fewer products than the first.
MANY_PRODUCTS = 3


def best_order(gram: sp.csr_matrix) -> np.ndarray:
    """An order of the constraints in which the factor of their Gram matrix has few products.

    Minimum degree and reverse Cuthill-McKee are both tried: networks want the first, and what is
    nearly a chain may want the second.
    """
    orders = [np.asarray(reverse_cuthill_mckee(gram, symmetric_mode=True)), _minimum_degree(gram)]
    factors = [factor_rows(gram, order) for order in orders]
    best = int(np.argmin([sum(map(len, rows)) for rows in factors]))
    order, least = orders[best], count_products(factors[best])
    if least > MANY_PRODUCTS * sum(map(len, factors[best])):
        rng = np.random.default_rng(0)
        for _ in range(MORE_ORDERS):
            other = rng.permutation(len(order))
            other = other[_minimum_degree(sp.csr_matrix(gram[other][:, other]))]
            products = count_products(factor_rows(gram, other))
            if products < least:
                order, least = other, products
    return order


def count_products(rows: list[np.ndarray]) -> int:
    """How many products of two entries a factor is made of, given the columns of each row."""
    below = np.bincount(np.concatenate(rows), minlength=len(rows)) - 1
    return int(np.sum(below * (below + 1) // 2))


def _minimum_degree(gram: sp.csr_matrix) -> np.ndarray:
    """SuperLU's order, which it makes of the pattern alone."""
    from scipy.sparse.linalg import splu  # slow to import, and wanted here only

    m = len(gram.indptr) - 1
    pattern = sp.csc_matrix((np.ones(gram.nnz), gram.indices, gram.indptr), (m, m))
    found = splu(
        pattern + sp.identity(m, format="csc") * m,  # no row is exchanged
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    order = np.empty(m, int)
    order[found.perm_c] = np.arange(m)
    return order


def factor_rows(gram: sp.csr_matrix, order: np.ndarray) -> list[np.ndarray]:
    """The columns of the factor's entries, row by row, the diagonal last, in the order given.

    A row has the entries of the Gram matrix's row, and what lies between these and the row on the
    elimination tree: each column's parent is the first row below it with an entry there.
    """
    m = len(order)
    position = np.empty(m, int)
    position[order] = np.arange(m)
    parent, seen = np.full(m, -1), np.full(m, -1)
    rows = []
    for row in range(m):
        there = gram.indices[gram.indptr[order[row]] : gram.indptr[order[row] + 1]]
        columns: list[int] = [row]
        seen[row] = row
        for column in position[there].tolist():
            while column < row and seen[column] != row:
                if parent[column] < 0:
                    parent[column] = row
                columns.append(column)
                seen[column] = row
                column = int(parent[column])
        rows.append(np.sort(np.array(columns)))
    return rows
