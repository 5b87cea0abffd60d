"""How the entries of a plan are divided among loops.

Entries of one shape (as many terms, and the same parts besides) need no loop over their terms,
which are written out. So a stretch of a plan is one loop over blocks of a few entries, all blocks
alike. In chains and grids, all indices of a stretch grow evenly from block to block, and need no
table. What is left, and entries of many terms, is gone through run by run.
"""

import dataclasses

import numpy as np

from limpet.lanes.plans import NONE, RESULT, Plan

MOST_TERMS = 12  # of an entry whose terms are written out
LONGEST_BLOCK = 8  # entries
FEWEST_BLOCKS = 16  # that are worth a loop of their own
MOST_STRETCHES = 16  # about; each is code to be compiled


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """One entry of every block: its indices, block by block."""

    place: np.ndarray
    terms: list[tuple[np.ndarray, np.ndarray]]  # indices of left and right
    start: np.ndarray | None
    scale: np.ndarray | None
    inverse: bool

    @property
    def tables(self) -> int:
        """How many of its indices need one."""
        indices = [self.place, self.start, self.scale, *(k for term in self.terms for k in term)]
        return sum(k is not None and steps(k) is None for k in indices)


def steps(indices: np.ndarray) -> int | None:
    """By how much indices grow from block to block, if evenly."""
    step = np.diff(indices)
    return int(step[0]) if (step == step[0]).all() else None


def divided(plan: Plan) -> list[list[Column] | Plan]:
    """The loops of a plan, in their order: the columns of blocks, or a plan of what is left."""
    entries = _Entries(plan)
    shapes, order = entries.shapes, np.arange(plan.size)
    if not reads_result(plan):  # any order will do
        order = np.argsort(shapes, kind="stable")
    lengths = np.stack([_alike(shapes[order], p) for p in range(1, LONGEST_BLOCK + 1)])
    fewest = max(FEWEST_BLOCKS, plan.size // (MOST_STRETCHES * LONGEST_BLOCK))
    blocks_of = lengths // np.arange(1, LONGEST_BLOCK + 1)[:, None]
    worth = np.any(blocks_of >= fewest, axis=0)
    found, done, k = [], 0, 0
    while k < plan.size:
        if not worth[k]:
            k += 1
            continue
        blocks = _best_blocks(entries, order[k:], lengths[:, k], fewest)
        if done < k:
            found.append(_part(plan, order[done:k]))
        found.append([entries.column(each) for each in blocks.T])
        done = k = k + blocks.size
    return [*found, _part(plan, order[done:])] if done < plan.size else found


def reads_result(plan: Plan) -> bool:
    """Whether entries are made of others, so that their order matters."""
    starts = plan.starts is not None and plan.start == RESULT
    scales = plan.scales is not None and plan.scale == RESULT
    return RESULT in (plan.left, plan.right) or starts or scales


def _alike(shapes: np.ndarray, period: int) -> np.ndarray:
    """How many entries, from each on, have the shapes of those one period before, if written out.

    The first period is counted, too.
    """
    every = np.arange(len(shapes))
    differs = np.ones(len(shapes) + period, bool)
    differs[period : len(shapes)] = shapes[period:] != shapes[:-period]
    differs[: len(shapes)][shapes == NONE] = True
    ends = np.flatnonzero(differs)
    first = ends[np.searchsorted(ends, every + period)]
    long = np.append(np.flatnonzero(shapes == NONE), len(shapes))
    within = np.minimum(first, long[np.searchsorted(long, every)])
    return within - every


def _best_blocks(entries, order, lengths, fewest) -> np.ndarray:
    """The next entries, in rows of one period: the one that needs fewest tables."""
    counts = lengths // np.arange(1, LONGEST_BLOCK + 1)
    sizes = np.where(counts >= fewest, counts * np.arange(1, LONGEST_BLOCK + 1), 0)
    best, least = order[:0].reshape(0, 1), np.inf
    for period in np.flatnonzero(10 * sizes >= 9 * sizes.max()) + 1:
        blocks = order[: sizes[period - 1]].reshape(-1, period)
        tables = sum(entries.column(each).tables for each in blocks.T) / period
        if tables < least:
            best, least = blocks, tables
    return best


class _Entries:
    """The entries of a plan, with their terms one by one."""

    def __init__(self, plan: Plan):
        self.plan = plan
        lengths = plan.runs[:, 2].astype(np.int64)
        within = np.arange(plan.terms) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        self.left, self.right = (
            (np.repeat(plan.runs[:, k], lengths) + within).astype(np.int32) for k in range(2)
        )
        self.first = np.concatenate([[0], np.cumsum(lengths)])[plan.ends]
        terms = np.diff(self.first)
        parts = [
            terms,
            *(table != NONE for table in (plan.starts, plan.scales) if table is not None),
        ]
        if plan.inverses is not None:
            parts.append(plan.inverses)
        shapes = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)[1]
        self.shapes = np.where(terms > MOST_TERMS, NONE, shapes.ravel())

    def column(self, entries: np.ndarray) -> Column:
        """Entries of one shape."""
        plan, first = self.plan, self.first[entries]
        terms = range(int(self.first[entries[0] + 1] - first[0]))

        def part(table):
            if table is None or table[entries[0]] == NONE:
                return None
            return table[entries]

        return Column(
            plan.places[entries],
            [(self.left[first + t], self.right[first + t]) for t in terms],
            part(plan.starts),
            part(plan.scales),
            plan.inverses is not None and bool(plan.inverses[entries[0]]),
        )


def _part(plan: Plan, entries: np.ndarray) -> Plan:
    """The plan of some of the entries."""

    def part(table):
        return None if table is None else table[entries]

    counts = np.diff(plan.ends)[entries]
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    runs = np.arange(ends[-1]) + np.repeat(plan.ends[entries] - ends[:-1], counts)
    return dataclasses.replace(
        plan,
        places=plan.places[entries],
        ends=ends,
        runs=plan.runs[runs],
        starts=part(plan.starts),
        scales=part(plan.scales),
        inverses=part(plan.inverses),
    )
