"""Draw docs/gallery/two_moons.png: runs the code of the page beside it."""

import doctest
from pathlib import Path

import matplotlib.pyplot as plt

SEA = "#2b7a9b"


def main():
    """The posterior of both parameters, and one of its pieces from near."""
    page = Path(__file__).with_name("two_moons.md").read_text()
    names: dict = {}
    exec(doctest.script_from_examples(page), names)
    theta = names["theta"].values
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
    left.scatter(*theta[:, ::10].reshape(-1, 2).T, s=2, color=SEA, alpha=0.3, linewidths=0)
    left.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal", xlabel="theta 1", ylabel="theta 2")
    near = theta[theta.sum(axis=-1) > 0]
    right.scatter(*near[::3].T, s=2, color=SEA, alpha=0.2, linewidths=0)
    right.set(aspect="equal", xlabel="theta 1", ylabel="theta 2")
    figure.savefig(Path(__file__).with_name("two_moons.png"), dpi=120)


if __name__ == "__main__":
    main()
