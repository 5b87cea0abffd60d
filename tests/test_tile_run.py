"""A tile's run: complete in itself, wherever it is advanced, and however it is cut up."""

import pickle
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet import sampling
from limpet.coordinates import Coordinates
from limpet.layout import read_points
from limpet.run import tile
from limpet.run.clock import PHASES
from limpet.run.quantities import POINT
from limpet.run.tile_run import TileRun

# Advances the tile whose bytes come in until this step, and gives back its bytes and its draws.
WORKER = """
import pickle, sys
from limpet.run import tile
from limpet.run.tile_run import TileRun

tile.blocks_at_once = lambda width, block: 3
run = TileRun.from_bytes(sys.stdin.buffer.read())
until, draws = int(sys.argv[1]), []
assert not run.done
while run.step < until and not run.done:
    draws.append(run.advance())
sys.stdout.buffer.write(pickle.dumps((run.to_bytes(), draws)))
"""
RUNS = {  # a kernel, its index of a tile, and what is asked for
    "lifted": (limpet.Lifted(), 0, {"chains": 5, "draws": 700, "warmup": 500, "thin": 1}),
    "learning": (limpet.Lifted(), 0, {"chains": 21, "draws": 700, "warmup": None, "thin": 1}),
    "sas": (
        limpet.SAS(),
        1,
        {"chains": 131, "draws": 150, "warmup": 500, "thin": 3, "keep_surface": True},
    ),
}


@pytest.fixture(autouse=True)
def block_by_block(monkeypatch):
    monkeypatch.setattr(tile, "blocks_at_once", lambda width, block: 1)


def begin(kernel, index, asked):
    """A tile of a run on a cylinder that is a hundred times as long as it is wide, at its start."""
    target = limpet.Target(
        lambda x: jnp.array([x[0] ** 2 + x[1] ** 2 - 1]),
        0.05,
        log_density=lambda x: -(x[0] ** 2) - (x[2] / 100) ** 2,
    )
    layout, _ = read_points("start", [1.0, 0.0, 0.0])
    target = target.freeze(jnp.array([1.0, 0.0, 0.0]))
    asked = {"keep_surface": False, "seed": 7, "scale": "learn"} | asked
    specification = sampling._specify(kernel, target, layout, Coordinates(), **asked)
    angle = np.linspace(0.0, 6.0, specification.width)
    starts = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    return TileRun(specification, kernel, target, index, starts)


def advance(run, until):
    """Advance a tile here, block by block; its draws."""
    draws = []
    while run.step < until:
        draws.append(run.advance())
    return draws


def put(run, every):
    """All draws that were asked for, as arrays by group and name."""
    asked, n = run.specification.draws, run.starts.shape[1]
    arrays = {}
    for blocks in every:
        for group, draws in blocks.items():
            wanted = draws.where(draws.draw < asked)
            for name, numbers in wanted.numbers.items():
                shape = (len(run.chains), asked, *((n,) if name == POINT else ()))
                array = arrays.setdefault((group, name), np.full(shape, -np.inf))
                array[wanted.chain, wanted.draw] = numbers
    return arrays


@pytest.mark.parametrize(
    "kind", ["learning", "sas", pytest.param("lifted", marks=pytest.mark.slow)]
)
def test_a_tile_is_the_same_wherever_it_is_advanced(kind):
    """By four processes in turn, through bytes only; from warm-up, and while it draws."""
    run = begin(*RUNS[kind])
    packed, away = run.to_bytes(), []
    for until in (130, 400, 800, 10**9):
        worker = [sys.executable, "-c", WORKER, str(until)]
        answer = subprocess.run(worker, input=packed, capture_output=True, check=True).stdout
        packed, draws = pickle.loads(answer)
        away += draws
    arrived = TileRun.from_bytes(packed)
    assert arrived.done

    home = advance(run, arrived.step)  # cut up otherwise
    ours, theirs = put(run, home), put(arrived, away)
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        assert np.isfinite(array).all()
        np.testing.assert_array_equal(array, theirs[key])
    ours, theirs = run.snapshot(), arrived.snapshot()
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - PHASES.keys():
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    first, last = run.first_and_last()
    # in one frame, with points of the user's: on the cylinder, whose gradient is as long everywhere
    assert np.abs(np.hypot(*last.x.T[:2]) - 1).max() < 0.3
    lengths = [np.median(np.linalg.norm(state.normals, axis=(1, 2))) for state in (first, last)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.2)
    scale = run.warmup.shape.frame.scale
    assert kind == "sas" or scale.max() > 10 * scale.min()  # it learned while it travelled
    assert not np.array_equal(run.warmup.tuner.centres, np.zeros(len(run.warmup.tuner.centres)))


def test_a_tile_goes_on_from_its_snapshot_and_leaves_it_alone():
    run = begin(*RUNS["lifted"])
    advance(run, 640)
    snapshot = run.snapshot()
    before = {name: array.copy() for name, array in snapshot.items()}
    first = advance(run, 1_000)
    run.restore(snapshot)
    again = advance(run, 1_000)
    np.testing.assert_array_equal(
        put(run, first)["posterior", "step"], put(run, again)["posterior", "step"]
    )
    for name, array in snapshot.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
