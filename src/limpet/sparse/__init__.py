"""Constraints that involve few unknowns each: bonds, sensors, equations of a grid.

    dependence.py  which unknowns a constraint involves, read off its program
    colours.py     normals from a few derivatives: constraints without a common unknown share one
    elimination.py the order in which Gram matrices are eliminated, and where their factors fill
    tables.py      plans (`limpet.lanes.plans`) for all algebra of normals with one structure
    normals.py     normals, Gram matrices and factors of which only entries are kept

Cost and memory go with the entries of the factor: of bonds in a chain, with their number.
"""
