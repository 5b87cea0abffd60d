"""What `make bench` runs still runs: every part that needs no further package, at tiny sizes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
PARTS = """
import jax
import numpy as np
from bench import __main__ as everything
from bench import anatomy, bonds, growth, inverse, kernels, nuts, problems, runs, soak, speed
from bench import startup, steady, turns
import limpet
from limpet.paper import two_spheres

for shape in (bonds.chain, bonds.ring, bonds.star, bonds.network):
    for order in (None, 1):
        target, x = shape(40, 0.01, order)
        G = jax.jacobian(target.q)(x)
        assert G.shape == ({"ring": 40, "network": 80}.get(shape.__name__, 39), 117)
        assert np.linalg.matrix_rank(G) == len(G), shape
        assert np.abs(target.q(x)).max() < 1e-12

assert speed.limpets_rate(4, steps=2_000) > 0
assert min(steady.rates(two_spheres, limpet.SAS(), 1e4, draws=50)) > 0
anatomy.STEPS, anatomy.REPEATS, anatomy.limpets = 8, 1, lambda *_: speed.limpets(4, 2_000)
assert min(anatomy.measure().values()) > -np.inf
assert runs.sample(20, chains=4).attrs["seconds"] > 0
growth.AWAY = growth.TURN_SECONDS = 0
for kind, size in {"chain": 4, "equation": 3}.items():
    assert growth.timed(growth.KINDS[kind], size)["seconds"]["median"] > 0
nuts.PROBLEMS["tiny"] = lambda eps: problems.sphere(3, eps)
assert nuts.run("limpet", "tiny", 0.1, 0)["ess"] > 0
target, x = problems.lotka_volterra(20, 0.01)
q = [turns.solve(np.array([at]).T, 20)[0][:, 0] for at in (x + 0.1, x)]
assert np.allclose(q[0] - q[1], target.q(x + 0.1), rtol=1e-10)
assert 0 <= turns.share_apart(20, draws=2)[0] < 1
growth.KINDS["data"] = growth.KINDS["data"]._replace(make=lambda m, eps: problems.linear(m, eps, 2))
inverse.MANY, inverse.TURNS = 11, 2
assert inverse.slides()["median"] > 0
for problem, make in nuts.INVERSE.items():
    target, x = make(0.01)
    G = jax.jacobian(target.q)(x)
    assert G.shape == (problems.DATA, 4)
    loose = np.linalg.svd(G)[1][-1] < 1e-12
    assert loose == (problem == "one direction loose")
few = kernels.PROBLEMS["trimer"]._replace(chains=4, warmup=50, draws=20)
assert kernels.measured(limpet.Lifted(), few, 0.1, 0.0)["ess_per_second"] > 0
"""


def run(*arguments):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=HOME, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_part_runs():
    run("-c", PARTS)  # in a process of its own, for parts keep to one core


@pytest.mark.slow
def test_figures_and_verdicts_of_what_was_measured(tmp_path):
    shutil.copytree(HOME / "docs" / "speed", tmp_path, dirs_exist_ok=True)
    for figure in tmp_path.glob("*.png"):
        figure.unlink()
    run("-c", "from bench.__main__ import main; main()", "--output", tmp_path, "--only", "")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("name", "arguments"), [("yardstick", (20, 4, 2e4, 1)), ("chain", (2, 5, 0.4, 1))]
)
def test_yardsticks(name, arguments, tmp_path):
    source, program = HOME / "bench" / f"{name}.cpp", tmp_path / name
    subprocess.run(["g++", "-std=c++17", "-O1", source, "-o", program], check=True)
    done = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True)
    assert json.loads(done.stdout)["seconds"] >= 0
