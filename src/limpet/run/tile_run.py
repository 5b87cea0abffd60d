"""One tile's way through a run: warm-up, then draws, a few blocks at a time.

A tile's run is complete in itself. Any process that has the target can advance it, and its snapshot
says all that there is to know of it but the draws, which leave it as they are made.
"""

import pickle
import time

import jax
import numpy as np

from limpet.engine import of_rows
from limpet.frame import to_coordinates
from limpet.geometry.bonds import bonds_of
from limpet.kernels import noise
from limpet.kernels.base import Kernel
from limpet.kernels.states import State
from limpet.run import tile
from limpet.run.clock import PHASES
from limpet.run.collect import Collector
from limpet.run.online import OnlineDiagnostics, last_r_hat, mixing
from limpet.run.quantities import POINT, WITH_STATS, Draws
from limpet.run.shape import Shape
from limpet.run.specification import RunSpecification
from limpet.run.standing import Standing
from limpet.run.warmup import Warmup
from limpet.strata import Strata
from limpet.target import Target

PATIENCE = 10_000  # draws that a chain should have made, but made none, before it counts as stuck
LOOK = 0.2  # seconds between two looks at a run, so what an advance should take at most
LEARN = "learn"  # the scale of a run that warm-up finds
LONGEST = 200_000  # steps without a draw after which a chain counts as stuck in any case


class TileRun:
    """A tile that is under way."""

    def __init__(
        self,
        specification: RunSpecification,
        kernel: Kernel,
        target: Target,
        index: int,
        starts: np.ndarray,
    ):
        """The tile with this index of a run, at the starts of its own chains.

        `starts` has a row for each chain of a whole tile, spare ones of the last included.
        """
        self.specification, self.kernel, self.target = specification, kernel, target
        self.index, self.starts = index, np.asarray(starts)
        width, n = self.starts.shape
        crowded = specification.constraints >= n
        self.bonds, shape = self._bonds_and_shape()
        given = kernel.parameters(target)
        self.warmup = Warmup(kernel, given, self.starts, specification.warmup, crowded, shape)
        self.framed = self._in_frame()
        self.states = self._states_at(self.starts)
        self.first_states = jax.tree.map(np.asarray, self.states)
        self.generators = noise.generators(specification.seed, index, width)
        self.collector = Collector(specification, index)
        self.online = self._new_online()
        self.block = tile.block_for(n)
        self.patience = min(PATIENCE / kernel.draw_share(), LONGEST)  # steps without a draw
        self.step, self.program, self.trace = 0, None, None
        self.pace = LOOK  # seconds that a block takes
        self.times = dict.fromkeys(PHASES, 0.0)  # wall-clock, of all sessions
        self.since = time.perf_counter()  # when the time not yet accounted for began

    def _bonds_and_shape(self):
        """In which coordinates chains move, and what warm-up may learn of them."""
        run, n = self.specification, self.starts.shape[1]
        given = None if run.scale in (None, LEARN) else np.array(run.scale)
        learns = run.scale == LEARN and run.warmup != 0 and self.kernel.learns_frames
        bonds = bonds_of(self.target, self.starts, run.layout.widths) if learns else None
        may_be_full = bonds is None and self.target.colouring is None
        return bonds, Shape(n, learns, may_be_full, given)

    def _in_frame(self) -> Target:
        """The target as a function of what chains move in."""
        shape = self.warmup.shape
        if not shape.learns and shape.frame.is_plain:
            return self.target
        return self.target.in_frame(shape.frame, self.bonds)

    def _states_at(self, points: np.ndarray):
        """States at points of the user's."""
        states = tile.first_states(self.kernel, self.framed, self.framed.coordinates(points))
        # Rounding goes with the user's numbers, also where these are far from the frame's centre.
        frame = self.warmup.shape.frame._replace(centre=0.0)
        forest = None if self.bonds is None else self.bonds.forest
        reach = np.linalg.norm(to_coordinates(frame, forest, points), axis=1)
        return states._replace(reach=np.maximum(states.reach, reach))

    @property
    def chains(self) -> range:
        """Its chains, by their numbers in the run."""
        return self.specification.chains_of(self.index)

    def compile(self):
        """Compile its steps, or find what was compiled before; `advance` does it if need be."""
        if self.program is None:
            scales = self.warmup.scales(self.step, self.block)
            carry = self.states, self.generators
            self.program = tile.compile_steps(self.kernel, self.framed, carry, scales)
        return self.program

    def count_from(self, now: float, start: float, compile: float):
        """From now on count warm-up and draws; so many seconds went to the phases before."""
        self.times["start_seconds"] += start
        self.times["compile_seconds"] += compile
        self.since = now

    def extend(self, specification: RunSpecification):
        """Go on for a run that is to have another number of draws."""
        self.specification = specification
        self.collector.extend(specification.draws)

    @property
    def drawing(self) -> bool:
        """Whether warm-up is over."""
        return self.warmup.is_over(self.step)

    @property
    def done(self) -> bool:
        """Whether every chain has all its draws."""
        return bool(self.collector.full.all())

    @property
    def stuck(self) -> np.ndarray:
        """Which chains have waited too long for a draw."""
        if not self.drawing:
            return np.zeros(len(self.chains), bool)
        return self.collector.steps_waited(self.step - self.warmup.steps) > self.patience

    def advance(self) -> dict[str, Draws]:
        """Make a few blocks, or a round while there is something to learn; new draws, by group."""
        program = self.compile()
        steps = self.block * self._blocks if self.warmup.steps >= 0 else self.warmup.round
        before, first, began = self.states.x, self.step, time.perf_counter()
        self.step += steps
        scales = self.warmup.scales(first, steps)
        constants, carry = (self.kernel, self.framed), (self.states, self.generators)
        (self.states, self.generators), trace = program(constants, carry, scales, self.trace)
        self.trace = trace
        self._warm_up(trace, np.asarray(before), first)
        new = self._collect(trace, first)
        now = time.perf_counter()
        self.pace = (now - began) / (steps / self.block)
        warmup = self.warmup.steps if self.warmup.steps >= 0 else self.step
        drawing = max(0, self.step - max(first, warmup)) / (self.step - first)
        self.times["seconds"] += drawing * (now - self.since)
        self.times["warmup_seconds"] += (1 - drawing) * (now - self.since)
        self.since = now
        return new

    def _warm_up(self, trace, before, first):
        """Learn from a round, or see whether chains agree."""
        if self.warmup.learning:
            z = self.framed.coordinates(np.asarray(trace.x))
            frame = self.warmup.learn(trace, np.concatenate([before[:, None], z], axis=1), first)
            if frame is not None:
                self._move_to_frame(trace.x[:, -1])
        elif self.warmup.steps < 0:
            self._watch(trace, first)
            steps = self.step - self.warmup.learned_at
            r_hat = mixing([self.online], steps).r_hat
            if isinstance(self.target, Strata):
                self.warmup.settle(self.step, r_hat, last_r_hat(self.online, steps))
            else:
                self.warmup.settle(self.step, r_hat)
            if self.warmup.steps >= 0:
                self.online = self._new_online()

    def _new_online(self) -> OnlineDiagnostics:
        """What watches the numbers of a point; in warm-up also how many bonds hold, the last."""
        n = self.starts.shape[1]
        counts = isinstance(self.target, Strata) and self.warmup.steps < 0
        return OnlineDiagnostics(len(self.chains), n + counts)

    def _move_to_frame(self, x):
        """Go on where chains are, in other coordinates."""
        self.framed = self._in_frame()
        self.states = self._states_at(np.asarray(x))._replace(on=self.states.on)
        self.program = None

    def _watch(self, trace, first):
        """Count frozen steps of warm-up as if they were draws."""
        chains, steps = len(self.chains), trace.x.shape[1]
        chain = np.repeat(np.arange(chains), steps)
        step = np.tile(first + np.arange(steps), chains)
        x = np.reshape(trace.x[:chains], (chains * steps, -1))
        if isinstance(self.target, Strata):
            x = np.column_stack([x, self.target.count_held(x)])
        self.online.add(step // self.block, chain, step - self.warmup.learned_at, x)

    def _collect(self, trace, first) -> dict[str, Draws]:
        """What the steps after warm-up give, of those from `first` on."""
        warmup = self.warmup.steps
        if not self.drawing:
            return {}
        skip = max(0, warmup - first)
        after = jax.tree.map(lambda part: part[:, skip:], trace)
        new = self.collector.add(after, first + skip - warmup)
        chain, draw, numbers = new[WITH_STATS]
        self.online.add((numbers["step"] + warmup) // self.block, chain, draw, numbers[POINT])
        return new

    @property
    def steps_left(self) -> float:
        """About how many steps are still needed."""
        missing = max(0, self.collector.missing) / self.kernel.draw_share()
        return self.warmup.left(self.step) + missing

    @property
    def _blocks(self):
        """As many as make looking cheap, but not many more than are still needed."""
        if self.warmup.learning:
            return self.warmup.round // self.block
        most = tile.blocks_at_once(len(self.starts), self.block)
        most = min(most, np.ceil(LOOK / self.pace))
        return int(np.clip(np.ceil(self.steps_left / self.block), 1, most))

    def standing(self) -> Standing:
        """How far it is."""
        collector, learning = self.collector, self.warmup.learning
        return Standing(
            step=self.step,
            seconds=sum(self.times.values()),
            drawing=self.drawing,
            done=self.done,
            stuck=bool(self.stuck.any()),
            steps_left=self.steps_left,
            warmup=self.warmup.steps,
            warmup_left=self.warmup.left(self.step),
            quiet=self.warmup.quiet if learning else None,
            fewest=int(collector.draws.min()),
            draws=collector.visits[WITH_STATS].draws,
            counts=collector.counts[0].sum(axis=(0, 2)),
            acceptance=collector.acceptance[0].sum(axis=(0, 2)),
        )

    def wait(self, seconds: float):
        """Count time in which nobody worked on it."""
        self.times["seconds" if self.drawing else "warmup_seconds"] += max(0.0, seconds)

    def first_and_last(self) -> tuple[State, State]:
        """The chains' states at their starts and now, in one frame; the latter at the user's x."""
        last = jax.tree.map(np.asarray, self.states)
        if self.warmup.shape.frame.is_plain and self.bonds is None:
            return self.first_states, last
        x = of_rows(_point, self.framed, last.x, apart=False)
        return jax.tree.map(np.asarray, self._states_at(self.starts)), last._replace(x=x)

    def figures(self) -> dict[str, np.ndarray]:
        """What is told of it beside its draws: counts, step sizes and times, by name."""
        every = {
            "step": np.int64(self.step),
            **{name: np.float64(seconds) for name, seconds in self.times.items()},
            "sizes": np.array(list(self.warmup.tuner.found().values())),
            "warmup_steps": np.int64(self.warmup.steps),
            "scale": self.warmup.shape.frame.widths,
            "in_bonds": np.int64(self.bonds is not None),
            **self.collector.snapshot(),
        }
        return {name: np.array(array) for name, array in every.items()}

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it needs to go on, as arrays by name that nothing changes afterwards."""
        every = {
            **self.warmup.snapshot(),
            **_named("state", self.states),
            **_named("generator", self.generators),
            **self.online.snapshot(),
        }
        return self.figures() | {name: np.array(array) for name, array in every.items()}

    def restore(self, snapshot: dict[str, np.ndarray]):
        """Go on from a snapshot."""
        self.step = int(snapshot["step"])
        self.times = {name: float(snapshot[name]) for name in PHASES}
        self.warmup.restore(snapshot)
        self.framed, self.program = self._in_frame(), None
        self.states = _read(snapshot, "state", self.states)
        self.generators = _read(snapshot, "generator", self.generators)
        self.collector.restore(snapshot)
        draws = self.collector.visits[WITH_STATS].draws
        if self.warmup.steps < 0:  # the steps that `_watch` counted
            frozen = 0 if self.warmup.learning else self.step - self.warmup.learned_at
            draws = np.full_like(draws, frozen)
        self.online = self._new_online()
        self.online.restore(snapshot, draws)

    def to_bytes(self) -> bytes:
        """All of it, its target included, for `from_bytes` in another process."""
        import cloudpickle  # the user's functions may be of no module; only needed here

        return cloudpickle.dumps(self)

    @staticmethod
    def from_bytes(given: bytes) -> "TileRun":
        """The tile's run that `to_bytes` wrote; bytes of a stranger can run any code."""
        return pickle.loads(given)

    def __reduce__(self):
        made_of = self.specification, self.kernel, self.target, self.index, self.starts
        return _resume, (made_of, self.snapshot())


def _resume(made_of, snapshot):
    """A tile's run, from what it was made of and where it is."""
    run = TileRun(*made_of)
    run.restore(snapshot)
    return run


def _point(target: Target, z):
    return target.point(z)


def _named(stem, parts):
    """Arrays by the name of their field; a field that has several numbers those after the first."""
    return {
        f"{stem}_{name}_{k}" if k else f"{stem}_{name}": leaf
        for name, part in parts._asdict().items()
        for k, leaf in enumerate(jax.tree.leaves(part))
    }


def _read(snapshot, stem, like):
    """The same as these with other arrays."""
    arrays = [snapshot[name] for name in _named(stem, like)]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)
