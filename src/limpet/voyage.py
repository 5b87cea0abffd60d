"""One tile's way through a run: warm-up, then draws, a few blocks at a time."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limpet import tile
from limpet.collect import Collector, Room
from limpet.kernels.base import Kernel
from limpet.target import Target
from limpet.tuning import Tuner
from limpet.watch import Watch

PATIENCE = 10_000  # draws that a chain should have made, but made none, before it counts as stuck
LONGEST = 200_000  # steps without a draw after which a chain counts as stuck in any case


class Plan(NamedTuple):
    """What was asked for."""

    chains: int
    draws: int
    warmup: int
    thin: int
    keep_surface: bool
    seed: int


class Voyage:
    """A tile that is under way; `snapshot` has all that it needs to go on elsewhere."""

    def __init__(
        self, kernel: Kernel, target: Target, starts, tile_index: int, plan: Plan, room: Room
    ):
        """The tile with this index of a run from these starts, of all its chains."""
        width, (_, n) = tile.width_for(plan.chains), starts.shape
        self.kernel, self.target, self.plan, self.index = kernel, target, plan, tile_index
        self.first_chain = tile_index * width
        self.chains = min(width, plan.chains - self.first_chain)
        self.key = jax.random.fold_in(jax.random.key(plan.seed), tile_index)
        mine = starts[self.first_chain : self.first_chain + width]
        self.states = tile.first_states(kernel, target, mine)
        self.tuner = Tuner(kernel, kernel.parameters(target), width, plan.warmup)
        self.collector = Collector(room, self.first_chain, self.chains, plan)
        self.watch = Watch(self.chains, starts[0], plan.draws)
        self.block = tile.block_for(n)
        self.patience = min(PATIENCE / kernel.share_kept(), LONGEST)  # steps without a draw
        self.step = 0
        self.seconds = self.compile_seconds = 0.0

    def embark(self, began: float):
        """Compile, or find what was compiled before; `began` is when that began."""
        self.program: Any = tile.compiled(*self._arguments())
        self.since = time.perf_counter()
        self.compile_seconds += self.since - began

    def _arguments(self):
        scales = self.tuner.scales(self.step, self.block)
        return self.kernel, self.target, self.states, self.key, np.int64(self.step), scales

    @property
    def drawing(self) -> bool:
        """Whether warm-up is over."""
        return self.step > self.plan.warmup

    @property
    def arrived(self) -> bool:
        """Whether every chain has all its draws."""
        return bool(self.collector.full.all())

    @property
    def stuck(self) -> np.ndarray:
        """Which chains have waited too long for a draw."""
        return self.collector.waited(self.step - self.plan.warmup) > self.patience

    def advance(self):
        """A few blocks; one alone while there is something to learn from it."""
        blocks = 1 if self.tuner.learning(self.step) else self._blocks
        before, traces, first = self.states.x, [], self.step
        for _ in range(blocks):
            self.states, trace = self.program(*self._arguments())
            traces.append(trace)
            self.step += self.block
        trace = jax.tree.map(lambda *parts: np.concatenate(parts), *traces)
        self.tuner.learn(trace, np.asarray(before), first)
        skip = max(0, self.plan.warmup - first)
        if self.step > self.plan.warmup:
            kept = jax.tree.map(lambda part: part[skip:], trace)
            self.watch.add(*self.collector.add(kept, first + skip - self.plan.warmup))
        now = time.perf_counter()
        drawing = max(0, self.step - first - skip) / (self.step - first)
        self.seconds, self.since = self.seconds + drawing * (now - self.since), now

    @property
    def _blocks(self):
        """As many as make looking cheap, but not many more than are still needed."""
        missing = self.collector.missing / self.kernel.share_kept()
        steps = max(0, self.plan.warmup - self.step) + missing
        most = tile.blocks_at_once(self.states.x.shape[1], self.block)
        return int(np.clip(np.ceil(steps / self.block), 1, most))

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it needs to go on, as arrays by name that nothing changes afterwards."""
        numbers = {
            "step": np.int64(self.step),
            "seconds": np.float64(self.seconds),
            "compile_seconds": np.float64(self.compile_seconds),
            "sizes": np.array(list(self.tuner.found().values())),
            "centres": self.tuner.centres,
            "record": self.tuner.record,
        }
        states = {f"state_{name}": array for name, array in self.states._asdict().items()}
        every = numbers | states | self.collector.snapshot()
        return {name: np.array(array) for name, array in every.items()}

    def restore(self, snapshot: dict[str, np.ndarray]):
        """Go on from a snapshot."""
        self.step = int(snapshot["step"])
        self.seconds = float(snapshot["seconds"])
        self.compile_seconds = float(snapshot["compile_seconds"])
        self.tuner.centres, self.tuner.record = snapshot["centres"], snapshot["record"]
        names = self.states._fields
        self.states = self.states._replace(
            **{name: jnp.asarray(snapshot[f"state_{name}"]) for name in names}
        )
        self.collector.restore(snapshot)
