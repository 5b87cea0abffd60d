"""The shapes of arrays, by what they are: n numbers of a point, m constraints."""

from jaxtyping import Array, Float

from limpet.sparse.normals import SparseFactor, SparseMatrix, SparseNormals

Vector = Float[Array, " n"]
Values = Float[Array, " m"]
Normals = Float[Array, "n m"] | SparseNormals  # gradients of the constraints, one a column
Square = Float[Array, "m m"] | SparseMatrix
Factor = Float[Array, "m m"] | SparseFactor
Randoms = Float[Array, " k"]  # that a move of a user is given
Half = Float[Array, " half"]  # between two substitutions: as long as what is factored
