"""One tile's way through a run: warm-up, then draws, a few blocks at a time.

A tile's run is complete in itself. Any process that has the target can advance it, and its snapshot
says all that there is to know of it but the draws, which leave it as they are made.
"""

import pickle
import time

import jax
import jax.numpy as jnp
import numpy as np

from limpet.kernels import noise
from limpet.kernels.base import Kernel
from limpet.run import tile
from limpet.run.clock import PHASES
from limpet.run.collect import Collector
from limpet.run.online import OnlineDiagnostics
from limpet.run.quantities import POINT, WITH_STATS, Draws
from limpet.run.specification import RunSpecification
from limpet.run.tuning import Tuner
from limpet.target import Target

PATIENCE = 10_000  # draws that a chain should have made, but made none, before it counts as stuck
LOOK = 0.2  # seconds between two looks at a run, so what an advance should take at most
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
        self.states = tile.first_states(kernel, target, self.starts)
        self.first_states = jax.tree.map(np.asarray, self.states)
        self.generators = noise.generators(specification.seed, index, width)
        given, crowded = kernel.parameters(target), specification.constraints >= n
        self.tuner = Tuner(kernel, given, width, specification.warmup, crowded)
        self.collector = Collector(specification, index)
        self.online = OnlineDiagnostics(len(self.chains), n)
        self.block = tile.block_for(n)
        self.patience = min(PATIENCE / kernel.draw_share(), LONGEST)  # steps without a draw
        self.step, self.program, self.trace = 0, None, None
        self.pace = LOOK  # seconds that a block takes
        self.times = dict.fromkeys(PHASES, 0.0)  # wall-clock, of all sessions
        self.since = time.perf_counter()  # when the time not yet accounted for began

    @property
    def chains(self) -> range:
        """Its chains, by their numbers in the run."""
        return self.specification.chains_of(self.index)

    def compile(self):
        """Compile its steps, or find what was compiled before; `advance` does it if need be."""
        if self.program is None:
            scales = self.tuner.scales(self.step, self.block)
            carry = self.states, self.generators
            self.program = tile.compile_steps(self.kernel, self.target, carry, scales)
        return self.program

    def count_from(self, now: float, start: float, compile: float):
        """From now on count warm-up and draws; so many seconds went to the phases before."""
        self.times["start_seconds"] += start
        self.times["compile_seconds"] += compile
        self.since = now

    @property
    def drawing(self) -> bool:
        """Whether warm-up is over."""
        return self.step > self.specification.warmup

    @property
    def done(self) -> bool:
        """Whether every chain has all its draws."""
        return bool(self.collector.full.all())

    @property
    def stuck(self) -> np.ndarray:
        """Which chains have waited too long for a draw."""
        return self.collector.steps_waited(self.step - self.specification.warmup) > self.patience

    def advance(self) -> dict[str, Draws]:
        """Make a few blocks, one alone while there is something to learn; new draws, by group."""
        program = self.compile()
        blocks = 1 if self.tuner.learning(self.step) else self._blocks
        before, first, began = self.states.x, self.step, time.perf_counter()
        self.step += blocks * self.block
        scales = self.tuner.scales(first, blocks * self.block)
        constants, carry = (self.kernel, self.target), (self.states, self.generators)
        (self.states, self.generators), trace = program(constants, carry, scales, self.trace)
        self.trace = trace
        self.tuner.learn(trace, np.asarray(before), first)
        new = self._collect(trace, first)
        now = time.perf_counter()
        self.pace = (now - began) / blocks
        drawing = max(0, self.step - max(first, self.specification.warmup)) / (self.step - first)
        self.times["seconds"] += drawing * (now - self.since)
        self.times["warmup_seconds"] += (1 - drawing) * (now - self.since)
        self.since = now
        return new

    def _collect(self, trace, first) -> dict[str, Draws]:
        """What the steps after warm-up give, of those from `first` on."""
        warmup = self.specification.warmup
        if self.step <= warmup:
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
        return max(0, self.specification.warmup - self.step) + missing

    @property
    def _blocks(self):
        """As many as make looking cheap, but not many more than are still needed."""
        most = tile.blocks_at_once(len(self.starts), self.block)
        most = min(most, np.ceil(LOOK / self.pace))
        return int(np.clip(np.ceil(self.steps_left / self.block), 1, most))

    def figures(self) -> dict[str, np.ndarray]:
        """What is told of it beside its draws: counts, step sizes and times, by name."""
        every = {
            "step": np.int64(self.step),
            **{name: np.float64(seconds) for name, seconds in self.times.items()},
            "sizes": np.array(list(self.tuner.found().values())),
            **self.collector.snapshot(),
        }
        return {name: np.array(array) for name, array in every.items()}

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it needs to go on, as arrays by name that nothing changes afterwards."""
        every = {
            "centres": self.tuner.centres,
            "record": self.tuner.record,
            "spread": np.float64(self.tuner.spread),
            **_named("state", self.states),
            **_named("generator", self.generators),
            **self.online.snapshot(),
        }
        return self.figures() | {name: np.array(array) for name, array in every.items()}

    def restore(self, snapshot: dict[str, np.ndarray]):
        """Go on from a snapshot."""
        self.step = int(snapshot["step"])
        self.times = {name: float(snapshot[name]) for name in PHASES}
        self.tuner.centres = snapshot["centres"].copy()
        self.tuner.record = snapshot["record"].copy()
        self.tuner.spread = float(snapshot["spread"])
        self.states = _read(snapshot, "state", self.states)
        self.generators = _read(snapshot, "generator", self.generators)
        self.collector.restore(snapshot)
        self.online.restore(snapshot, self.collector.visits[WITH_STATS].draws)

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


def _named(stem, parts):
    """Arrays by name; each field has one, be it inside an object."""
    return {f"{stem}_{name}": jax.tree.leaves(part)[0] for name, part in parts._asdict().items()}


def _read(snapshot, stem, like):
    """The same as these with other arrays."""
    arrays = [jnp.asarray(snapshot[f"{stem}_{name}"]) for name in like._fields]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)
