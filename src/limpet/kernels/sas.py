"""The Surface Augmented Sampler: Magnani, arXiv 2206.05644, section 2.

The chain has law pi_eps + pi_s: off the surface S it follows pi_eps, on it pi_s. On S it slides
(Hard) or leaves (Off); off S it jumps anywhere (Soft) or lands (On). Beyond the paper, it may slide
off S, too (Slide), along the level set {q = q(x)}: as a Hard move does along {q = 0}, and with the
same acceptance, since |q| stays. All but Soft are two Newton projections of one form, so one
pipeline serves a whole batch of chains; a chain that goes alone skips the branches that its move
does not need:

    move   first projection                        second projection
    Hard   from x + slide, along G(x), to y        from y + back, along G(y): must return to x
    Slide  the same, to the level of x             the same
    Off    from y = x + kick, along G(y), to foot  from foot + back, along G(foot): must return to x
    On     from x, along G(x), to foot             from foot + slide, along G(foot), to y

What one move does differently from the others is its rule (`limpet.kernels.sas_moves`). A Hard or
Slide move of several slides (`limpet.kernels.trajectory`) makes the last of them here.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.lax import cond
from jaxtyping import Array, Bool, Float

from limpet import errors
from limpet.geometry.linalg import across, factor, less_along, solve_lower, solve_upper
from limpet.geometry.projection import Landing, are_many, landing
from limpet.kernels.base import Kernel, Tunable
from limpet.kernels.moves import (
    came_back,
    choose,
    judge,
    obstacle,
    project_twice,
    sooner,
    start_on_surface,
)
from limpet.kernels.noise import Noise
from limpet.kernels.sas_moves import RULES, Random, Rule, Step
from limpet.kernels.states import Info, Move, Outcome, State
from limpet.kernels.trajectory import (
    Trajectory,
    first_slides,
    follow,
    is_forced,
    push_of,
    tunables_of,
    vary,
)
from limpet.shapes import Vector
from limpet.target import Target

Made = dict[Move, Bool[Array, ""]]  # which move a chain makes: one of them


class SAS(Kernel):
    """The paper's sampler for pi_eps, with a cost that does not grow as eps falls.

    Parameters
    ----------
    sigma_hrd : float
        Size of the slides along the surface (Hard).
    sigma_prp, sigma_tan : float, optional
        Size of the kick that leaves the surface (Off): across, in units of q, and along it, in
        units of x. Default eps (the smallest, if there are several; each its own for `sigma_prp`).
    sigma_on : float, optional
        Size of the slide after landing (On). Default eps.
    sigma_sft : float, optional
        Size of the steps off the surface (Soft). Default 0.7 eps.
    off_probability, on_probability : float
        How often a chain on the surface tries to leave (else Hard), and one off it tries to land
        (else Soft): the paper's lambda_21 and lambda_12.
    slide_probability : float
        How often a chain off the surface slides along the level set of q that it is on; zero in the
        paper.
    trajectory : int, optional
        Slides in one Hard move, or along a level set; one in the paper, None leaves it to warm-up.
        With more, they follow the gradient of the density, and `sigma_hrd` is varied a little from
        move to move.
    newton_cap : int
        Most Newton updates of a projection; the paper used 5.
    tolerance : float
        A point is on the surface when |q_i| <= tolerance |grad q_i| (|x| + |x_0|), where x_0 is
        where the chain began.
    reverse_tolerance : float
        A way back has returned when it ends within this times (|x| + |x_0|).

    Examples
    --------
    >>> import limpet
    >>> limpet.SAS(sigma_hrd=0.5).off_probability
    0.2
    """

    sigma_hrd: float = 1.0
    sigma_prp: float | None = None
    sigma_tan: float | None = None
    sigma_on: float | None = None
    sigma_sft: float | None = None
    off_probability: float = 0.2
    on_probability: float = 0.8
    slide_probability: float = 0.0
    trajectory: int | None = 1
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("trajectory", "newton_cap")
    needs_surface = True
    checks: ClassVar = {
        **dict.fromkeys(
            ("sigma_hrd", "sigma_prp", "sigma_tan", "sigma_on", "sigma_sft"), errors.positive
        ),
        "tolerance": errors.positive,
        "reverse_tolerance": errors.positive,
        "off_probability": errors.probability,
        "on_probability": errors.probability,
        "slide_probability": errors.probability_or_zero,
        "newton_cap": errors.count,
        "trajectory": errors.count_or_none,
    }

    def check(self) -> None:
        """Refuse probabilities that are more than one together."""
        if (total := self.on_probability + self.slide_probability) > 1:
            raise errors.InputError(
                f"on_probability={self.on_probability} and slide_probability="
                f"{self.slide_probability} add up to {total:.4g}: expected at most 1, for both are"
                " shares of what a chain does off the surface."
            )

    @property
    def tunables(self) -> tuple[Tunable, ...]:
        """Slides go far; the others are to be accepted."""
        return (
            *tunables_of("sigma_hrd", "trajectory", self.trajectory, Move.HARD, Move.SLIDE),
            Tunable(("sigma_tan", "sigma_on"), (Move.OFF, Move.ON), acceptance=0.5, may_grow=False),
            Tunable(("sigma_sft",), (Move.SOFT,), acceptance=0.4),
        )

    @property
    def step_sizes(self) -> dict[Move, tuple[str, ...]]:
        """Which numbers make each move longer or shorter."""
        return {move: rule.sizes for move, rule in RULES.items()}

    @property
    def moves(self) -> tuple[Move, ...]:
        """The paper's four, and Slide if there is any."""
        paper = (Move.HARD, Move.OFF, Move.ON, Move.SOFT)
        return (*paper, Move.SLIDE) if self.slide_probability else paper

    @property
    def learns_frames(self) -> bool:
        """Only with trajectories: the paper's sampler takes the unknowns as they are."""
        return is_forced(self.trajectory)

    @property
    def is_forced(self) -> bool:
        """Whether trajectories follow the gradient."""
        return is_forced(self.trajectory)

    def draw_share(self) -> float:
        """The share of steps off S, from the constants of equation (3.11)."""
        return self.off_probability / (self.off_probability + self.on_probability)

    def is_draw(self, state: State) -> Bool[Array, ""]:
        """A state off S is a draw from pi_eps."""
        return ~state.on

    def slides(self, sizes: dict[str, Any]) -> Any:
        """Those of a Hard move."""
        return sizes["trajectory"]

    def sizes(self, target: Target) -> dict[str, Any]:
        """The step sizes, those that are not given made of eps (section 3.1 of the paper)."""
        eps = target.smallest_eps()
        return {
            "sigma_hrd": self.sigma_hrd,
            "sigma_prp": target.typical_eps() if self.sigma_prp is None else self.sigma_prp,
            "sigma_tan": eps if self.sigma_tan is None else self.sigma_tan,
            "sigma_on": eps if self.sigma_on is None else self.sigma_on,
            "sigma_sft": 0.7 * eps if self.sigma_sft is None else self.sigma_sft,
            "trajectory": first_slides(self.trajectory),
        }

    def start(self, target: Target, x: Vector) -> State:
        """On S, at x."""
        return start_on_surface(target, x, self.sigma_hrd)

    def move(
        self, target: Target, tuned: dict[str, Any], noise: Noise, state: State
    ) -> tuple[State, Info]:
        """One step: the proposals of section 2.2, accepted with probability (2.2)."""
        sizes = self.sizes(target) | tuned
        sizes["sigma_prp"] = sizes["sigma_prp"] / target.typical_eps()  # q is divided by eps, too
        made = self._choose(state, noise.choice)

        def those(holds: Callable[[Rule], bool]) -> Bool[Array, ""]:
            """Whether the move that is made is one of those."""
            return functools.reduce(
                jnp.logical_or, [made[move] for move, rule in RULES.items() if holds(rule)]
            )

        slides = those(lambda rule: rule.ends == "first")
        projects = those(lambda rule: rule.projects)
        leaves = those(lambda rule: rule.projects and rule.ends == "away")
        lands = those(lambda rule: rule.ends == "second")
        slides_off = those(lambda rule: rule.ends == "first" and not rule.begins_on)

        forced, random = is_forced(self.trajectory), _split(state, noise)
        h = vary(sizes["sigma_hrd"], self._jitter(state, noise.choice), forced)
        slide, level = h * random.tangent, jnp.where(slides_off, state.values, 0.0)
        path = Trajectory(state, slide, jnp.zeros_like(slide), jnp.asarray(Outcome.ACCEPTED))
        if forced:
            before = sizes["trajectory"] - 1
            path = follow(self, target, state, slide, h, level, before, forced, active=slides)
        here, x = path.state, path.state.x

        jumped = those(lambda rule: rule.ends == "away")
        away = cond(
            jumped,
            lambda: landing(target, x + _jump(made, state, sizes, random)),
            lambda: Landing(x, here.values, here.normals, jnp.bool_(False), jnp.bool_(True)),
        )
        L = cond(leaves, lambda: factor(away.normals), lambda: here.factor)
        landings = project_twice(
            self,
            target,
            away.normals,
            L,
            away.x,
            jnp.where(slides, x + path.slide + path.push, away.x),
            lambda foot: jnp.where(lands, sizes["sigma_on"] * noise.z, x - foot),
            level=level,
            reach=state.reach,
            active=projects,
        )
        first, first_factor, second_slide, second = landings
        end = choose(slides, first, choose(lands, second, away))
        if are_many(end.values, end.x):  # then the second landing lacks them
            normals = cond(
                lands,
                lambda: target.values_and_normals(second.x)[1],
                lambda: choose(slides, first.normals, away.normals),
            )
            end = end._replace(normals=normals)
        landed = jumped | (first.landed & (slides | second.landed))
        met = obstacle(
            known=landed,
            inside=target.contains(end.x),
            finite=end.finite & (~projects | (first.finite & (second.finite | ~first.landed))),
            landed=landed,
            returned=lands | ~projects | (first.landed & came_back(self, second, here)),
        )
        met = sooner(path.obstacle, met)
        refused = met != Outcome.ACCEPTED  # then nothing more is asked of where it would lead
        proposal = State(
            x=end.x,
            on=those(lambda rule: rule.ends_on),
            values=end.values,
            normals=end.normals,
            factor=cond(slides | refused, lambda: first_factor, lambda: factor(end.normals)),
            log_density=target.log_density_at(end.x),
            reach=state.reach,
        )
        back = second_slide - push_of(target, proposal, h, forced)
        step = Step(state, proposal, sizes, slide, back, h, landings, leaves)
        outcome, acceptance = judge(noise, _log_ratio(step, made, refused), met)
        move = jnp.select(list(made.values()), list(made))
        return choose(outcome == Outcome.ACCEPTED, proposal, state), Info(move, outcome, acceptance)

    def _intervals(self) -> dict[Move, tuple[Any, Any]]:
        """Of each move, where its interval of the choice begins and how long it is."""
        intervals: dict[Move, tuple[Any, Any]] = {}
        low: dict[bool, Any] = {True: 0.0, False: 0.0}
        for move, rule in RULES.items():
            share = rule.probability(self)
            intervals[move] = low[rule.begins_on], share
            low[rule.begins_on] = low[rule.begins_on] + share
        return intervals

    def _choose(self, state: State, choice: Float[Array, ""]) -> Made:
        """Which move is made: the one whose interval has the choice."""
        made: Made = {}
        last = {rule.begins_on: move for move, rule in RULES.items()}
        for move, (low, share) in self._intervals().items():
            side = RULES[move].begins_on
            made[move] = (state.on == side) & (choice >= low)
            if move is not last[side]:  # whose interval ends at one, whatever the rounding
                made[move] &= choice < low + share
        return made

    def _jitter(self, state: State, choice: Float[Array, ""]) -> Float[Array, ""]:
        """Where in the interval of a slide the choice is: uniform on [0, 1), if it is there."""
        intervals = self._intervals()
        pairs = zip(intervals[Move.HARD], intervals[Move.SLIDE], strict=True)
        low, share = (jnp.where(state.on, *pair) for pair in pairs)
        return (choice - low) / share


def _split(state: State, noise: Noise) -> Random:
    """The normal numbers of a step, for a chain that is here."""
    normal = solve_lower(state.factor, across(state.normals, noise.z))
    coefficients = solve_upper(state.factor, normal)
    return Random(noise.z, less_along(noise.z, state.normals, coefficients), normal)


def _jump(made: Made, state: State, sizes: dict[str, Any], random: Random) -> Vector:
    """How far a chain jumps that makes a move without a projection, or before one."""
    jumps = {move: rule.jump for move, rule in RULES.items() if rule.jump is not None}
    steps = [jump(state, sizes, random) for jump in jumps.values()]
    return jnp.select([made[move] for move in jumps][:-1], steps[:-1], steps[-1])


def _log_ratio(step: Step, made: Made, refused: Bool[Array, ""]) -> Float[Array, ""]:
    """The log ratio of the move that is made, unless it is refused without.

    The others' are not computed for a chain alone.
    """
    ratios = {
        function: cond(
            ~refused
            & functools.reduce(
                jnp.logical_or, [made[m] for m, r in RULES.items() if r.log_ratio is function]
            ),
            functools.partial(function, step),
            lambda: jnp.nan,
        )
        for function in {rule.log_ratio: None for rule in RULES.values()}
    }
    signed = [
        -ratios[rule.log_ratio] if rule.inverse else ratios[rule.log_ratio]
        for rule in RULES.values()
    ]
    return jnp.select([made[move] for move in RULES], signed)
