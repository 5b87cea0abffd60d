"""More data than unknowns: how a slide's time grows with the data, and small noise beside NUTS.

    python -m bench.inverse --json out.json

Slides are those of linear data of ten unknowns, by turns. Beside NUTS, everything is included, as
in `bench.nuts`: an equation in time with four unknowns and 20 data, which leave one direction
loose, or none.
"""

from bench.timing import pin

pin()

import functools

from bench import growth, nuts
from bench.timing import measure_and_write, ratio

FEW, MANY = 10, 1_000  # data
TURNS = 15
SIGMAS = (0.01, 0.001, 0.0001)
SECONDS = 300.0  # for one run


def slides():
    """The time of a slide with many data, in units of that with few."""
    kind = growth.KINDS["data"]
    few, many = (
        functools.partial(growth.seconds_of_a_step, *growth.program_of(kind, m)[:2])
        for m in (FEW, MANY)
    )
    return ratio(many, few, TURNS)


def measure():
    """Both."""
    found = {"slides": slides(), "nuts": []}
    print(f"a slide with {MANY} data: {found['slides']['median']:.3g} x that with {FEW}")
    for record in nuts.measure(nuts.INVERSE, SIGMAS, SECONDS):
        found["nuts"].append(record)
        print(nuts.line(record), flush=True)
    return found


if __name__ == "__main__":
    measure_and_write(__doc__, measure)
