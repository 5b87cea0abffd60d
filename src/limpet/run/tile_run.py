"""One tile's way through a run: warm-up, then draws, a few blocks at a time."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limpet.kernels import noise
from limpet.kernels.base import Kernel, State
from limpet.kernels.noise import Generator
from limpet.run import tile
from limpet.run.clock import PHASES
from limpet.run.collect import Collector, Room
from limpet.run.online import OnlineDiagnostics
from limpet.run.tuning import Tuner
from limpet.target import Target

PATIENCE = 10_000  # draws that a chain should have made, but made none, before it counts as stuck
LOOK = 0.2  # seconds between two looks at a run, so what an advance should take at most
LONGEST = 200_000  # steps without a draw after which a chain counts as stuck in any case


class Plan(NamedTuple):
    """What was asked for."""

    chains: int
    draws: int
    warmup: int
    thin: int
    keep_surface: bool
    seed: int


class TileRun:
    """A tile that is under way; `snapshot` has all that it needs to go on elsewhere."""

    def __init__(
        self, kernel: Kernel, target: Target, starts, tile_index: int, plan: Plan, room: Room
    ):
        """The tile with this index of a run from these starts, of all its chains."""
        width, (_, n) = tile.width_for(plan.chains), starts.shape
        self.kernel, self.target, self.plan, self.index = kernel, target, plan, tile_index
        self.first_chain = tile_index * width
        self.chains = min(width, plan.chains - self.first_chain)
        mine = starts[self.first_chain : self.first_chain + width]
        self.states = tile.first_states(kernel, target, mine)
        self.begin = jax.tree.map(np.asarray, self.states)
        self.generators = noise.generators(plan.seed, tile_index, width)
        self.tuner = Tuner(kernel, kernel.parameters(target), width, plan.warmup)
        self.collector = Collector(room, self.first_chain, self.chains, plan)
        self.watch = OnlineDiagnostics(self.chains, n)
        self.block = tile.block_for(n)
        self.patience = min(PATIENCE / kernel.draw_share(), LONGEST)  # steps without a draw
        self.step, self.trace = 0, None
        self.pace = LOOK  # seconds that a block takes
        self.times = dict.fromkeys(PHASES, 0.0)  # wall-clock, of all sessions
        self.since = 0.0  # when the time not yet accounted for began

    def compile(self):
        """Compile, or find what was compiled before."""
        scales = self.tuner.scales(self.step, self.block)
        carry = self.states, self.generators
        self.program = tile.compiled(self.kernel, self.target, carry, scales)

    def count_from(self, now: float, start: float, compile: float):
        """From now on count warm-up and draws; so many seconds went to the phases before."""
        self.times["start_seconds"] += start
        self.times["compile_seconds"] += compile
        self.since = now

    @property
    def drawing(self) -> bool:
        """Whether warm-up is over."""
        return self.step > self.plan.warmup

    @property
    def done(self) -> bool:
        """Whether every chain has all its draws."""
        return bool(self.collector.full.all())

    @property
    def stuck(self) -> np.ndarray:
        """Which chains have waited too long for a draw."""
        return self.collector.waited(self.step - self.plan.warmup) > self.patience

    def advance(self):
        """A few blocks; one alone while there is something to learn from it."""
        blocks = 1 if self.tuner.learning(self.step) else self._blocks
        before, first, began = self.states.x, self.step, time.perf_counter()
        self.step += blocks * self.block
        scales = self.tuner.scales(first, blocks * self.block)
        constants, carry = (self.kernel, self.target), (self.states, self.generators)
        (self.states, self.generators), trace = self.program(constants, carry, scales, self.trace)
        self.trace = trace
        self.tuner.learn(trace, np.asarray(before), first)
        skip = max(0, self.plan.warmup - first)
        if self.step > self.plan.warmup:
            kept = jax.tree.map(lambda part: part[:, skip:], trace)
            self.watch.add(*self.collector.add(kept, first + skip - self.plan.warmup))
        now = time.perf_counter()
        self.pace = (now - began) / blocks
        drawing = max(0, self.step - first - skip) / (self.step - first)
        self.times["seconds"] += drawing * (now - self.since)
        self.times["warmup_seconds"] += (1 - drawing) * (now - self.since)
        self.since = now

    @property
    def steps_left(self) -> float:
        """About how many steps are still needed."""
        missing = max(0, self.collector.missing) / self.kernel.draw_share()
        return max(0, self.plan.warmup - self.step) + missing

    @property
    def _blocks(self):
        """As many as make looking cheap, but not many more than are still needed."""
        most = tile.blocks_at_once(len(self.states.x), self.block)
        most = min(most, np.ceil(LOOK / self.pace))
        return int(np.clip(np.ceil(self.steps_left / self.block), 1, most))

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it needs to go on, as arrays by name that nothing changes afterwards."""
        numbers = {
            "step": np.int64(self.step),
            **{name: np.float64(seconds) for name, seconds in self.times.items()},
            "sizes": np.array(list(self.tuner.found().values())),
            "centres": self.tuner.centres,
            "record": self.tuner.record,
            "spread": np.float64(self.tuner.spread),
        }
        states = {f"state_{name}": a for name, a in self.states._asdict().items()}
        states |= {f"generator_{name}": a for name, a in self.generators._asdict().items()}
        every = numbers | states | self.collector.snapshot()
        return {name: np.array(array) for name, array in every.items()}

    def restore(self, snapshot: dict[str, np.ndarray]):
        """Go on from a snapshot."""
        self.step = int(snapshot["step"])
        self.times = {name: float(snapshot[name]) for name in PHASES}
        self.tuner.centres, self.tuner.record = snapshot["centres"], snapshot["record"]
        self.tuner.spread = float(snapshot["spread"])
        self.states = State(*_named(snapshot, "state", State))
        self.generators = Generator(*_named(snapshot, "generator", Generator))
        self.collector.restore(snapshot)


def _named(snapshot, stem, kind):
    return (jnp.asarray(snapshot[f"{stem}_{name}"]) for name in kind._fields)
