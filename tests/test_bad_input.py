"""What limpet says to input that it cannot use.

Each refusal is limpet's own, names the argument, its value and what was expected, and is unlike
every other refusal.
"""

import datetime
import functools
import itertools
import math
import re
import tempfile
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import limpet
from limpet import InputError, StartError, StoreError

HERE = r"test_bad_input\.py:\d+"  # a message that blames a function says where in it
SINGLE = jnp.asarray([0.1, 0.2, 0.3], dtype=jnp.float32)
HALF = jnp.asarray([0.1, 0.2, 0.3], dtype=jnp.float16)


def sphere(x):
    return jnp.array([x @ x - 1])


def sphere_of_dict(point):
    return sphere(jnp.concatenate([jnp.ravel(part) for part in jax.tree.leaves(point)]))


def impossible(x):
    """The paper's ellipsoid and sphere as printed, with squared denominators: they do not meet."""
    ball = jnp.sum((x - jnp.array([0, 0, 1.0])) ** 2) - 2
    return jnp.array([ball, x[0] ** 2 / 4 + (x[1] + 1) ** 2 / 9 + x[2] ** 2 / 25 - 1])


def endless(x):
    return jax.lax.while_loop(lambda y: y @ y > 1, lambda y: y / 2, x)[:1]


@jax.custom_vjp
def straight(x):
    """One, with a derivative that is a loop, so that it has no second one."""
    return jnp.ones(())


straight.defvjp(lambda x: (jnp.ones(()), x), lambda x, v: (0 * v * endless(x) * x,))


def distances(x):
    """Differentiates the distance from a point to itself, the square root of zero."""
    return jnp.array([jnp.linalg.norm(x - x) + x @ x - 1])


def lonely(x):
    return jnp.where(x[2:] == 1, 1 + x[2:] ** 2, jnp.nan)


SPHERE = limpet.Target(sphere, 0.01)
NORTH = [0.0, 0.0, 1.0]


def sample(q=sphere, eps=0.01, start=NORTH, kernel=None, **functions):
    target = limpet.Target(q, eps, **functions)
    return limpet.sample(target, start, kernel=kernel, draws=2, chains=2, warmup=0)


def sample_with(**settings):
    return limpet.sample(SPHERE, NORTH, **{"draws": 2, "chains": 2, "warmup": 0, **settings})


@pytest.fixture(autouse=True, scope="module")
def compile_fast():
    """Searches that are to fail are compiled one by one, and run once: do not optimise them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


class Case(NamedTuple):
    """A mistake, and what must be said to it."""

    name: str
    call: Callable
    message: str
    error: type = InputError


CONSTRAINTS = [
    Case("none", lambda: limpet.Target(None, 0.1), r"^q=None: expected a function"),
    Case("array", lambda: limpet.Target([1.0, 2.0], 0.1), r"^q=\[1.0, 2.0\]: expected a function"),
    Case("matrix", lambda: sample(lambda x: jnp.outer(x, x)), r"^q .*shape \(3, 3\): .* a vector"),
    Case(
        "too many for a surface",
        lambda: sample(lambda x: x, kernel=limpet.SAS()),
        r"^q .*m = 3 .*n = 3 .*limpet\.SAS expected m < n.*no room.*kernel=limpet\.Lifted\(\)",
    ),
    Case(
        "too many to be on it",
        lambda: limpet.SurfaceSampler().init(limpet.Target(lambda x: x, 0.1), jnp.ones(3)),
        r"^q .*m = 3 .*limpet\.SurfaceSampler expected m < n.*kernel=limpet\.Lifted\(\)",
    ),
    Case(
        "too many for a ladder",
        lambda: limpet.ladder(limpet.Target(lambda x: jnp.tile(x, 2), 1), NORTH, eps=[1, 2]),
        r"^q .*m = 6 .*limpet\.SAS expected m < n",
    ),
    Case("no constraints", lambda: sample(lambda x: x[:0]), r"^q returned no constraints \(m = 0"),
    Case("scalar", lambda: sample(lambda x: x @ x - 1), r"^q returned a scalar: .*jnp\.array\("),
    Case("ints", lambda: sample(lambda x: jnp.array([1])), r"^q returned int64: expected real"),
    Case("complex", lambda: sample(lambda x: 1j * x[:1]), r"^q returned complex .*expected real"),
    Case("list", lambda: sample(lambda x: [x[0]]), r"^q returned a list: .*one array"),
    Case("tuple", lambda: sample(lambda x: (x[0], x[1])), r"^q returned a tuple: .*one array"),
    Case("no return", lambda: sample(lambda x: None), r"^q returned (a NoneType|None)\b"),
    Case("string", lambda: sample(lambda x: "ab"), r"^q .*<class 'str'>"),
    Case("nan", lambda: sample(lambda x: jnp.log(x[:1] - 1)), r"^q is not finite .*q = \[nan\]"),
    Case("infinite", lambda: sample(lambda x: 1 / x[:1]), r"^q is not finite .*q = \[inf\]"),
    Case("own error", lambda: sample(lambda x: [1, 2][5] * x), rf"^q .*{HERE}.*IndexError: list"),
    Case("numpy", lambda: sample(lambda x: np.sin(x[:1])), rf"^q .*{HERE}.*numpy instead of numpy"),
    Case("numpy.linalg", lambda: sample(lambda x: np.linalg.norm(x)), rf"^q .*{HERE}"),
    Case("math", lambda: sample(lambda x: [math.sin(x[0])]), rf"^q .*{HERE}.*instead of .*math"),
    Case("if", lambda: sample(lambda x: x if x[0] > 0 else -x), rf"^q .*{HERE}.*jnp\.where inst"),
    Case("while_loop", lambda: sample(endless), r"^the derivative of q .*while_loop"),
    Case(
        "bent by a loop",
        lambda: sample(lambda x: straight(x) * sphere(x)),
        r"^the second derivative of q .*while_loop.*diffrax\.DirectAdjoint\(\).*throw=False"
        r".*limpet\.SAS\(\)",
    ),
    Case("two arguments", lambda: sample(lambda x, y: x), r"^q .*argument: 'y'"),
    Case("index", lambda: sample(lambda x: x[7] * x[:1]), r"^q .*index 7\b.*\b3\b"),
    Case("index of many", lambda: sample(lambda x: x[np.array([0, 9])]), r"^q .*index 9\b.*\b3\b"),
    Case("sizes", lambda: sample(lambda x: jnp.ones((1, 4)) @ x), rf"^q .* 3 numbers .*{HERE}"),
    Case("names", lambda: sample(lambda x: x["a"]), rf"^q .*{HERE}.*string"),
    Case("empty", lambda: sample(impossible), r"\|q\| = 0\.245 .*surface may be empty", StartError),
    Case(
        "empty for tiny eps",
        lambda: limpet.find_start(limpet.Target(impossible, 1e-9), [1.0, 0.0, 0.0]),
        r"\|q\| = 0\.245 .*surface may be empty",
        StartError,
    ),
    Case("constant", lambda: sample(lambda x: jnp.ones(1)), r"\|q\| = 1 .*empty", StartError),
    Case("twice", lambda: sample(lambda x: x[:1] * jnp.ones(2)), "given twice", StartError),
    Case("squared", lambda: sample(lambda x: sphere(x) ** 2), "squared", StartError),
    Case("nan gradient", lambda: sample(distances), "gradient of q .*not finite .*nan", StartError),
    Case("defined at one point", lambda: sample(lonely), r"\|q\| = 2 .*empty", StartError),
]


def line(x, data):
    return x[0] * data["at"] + x[1] - data["y"]


def fit(start=(1.0, 0.5), eps=0.1, kernel=None, derivatives=None, **data):
    data = {"at": np.arange(3.0), "y": np.arange(3.0)} | data
    target = limpet.Target(line, eps, data=data, derivatives=derivatives)
    return limpet.sample(target, start, kernel=kernel, draws=2, chains=2, warmup=0)


def resume_with_other_data():
    store = tempfile.mkdtemp() + "/line.zarr"
    data = {"at": np.arange(3.0), "y": np.arange(3.0)}
    target = limpet.Target(line, 0.5, data=data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limpet.sample(target, [1.0, 0.5], draws=2, chains=2, warmup=0, store=store)
    other = limpet.Target(line, 0.5, data=data | {"y": data["y"] + 1})
    limpet.resume(store, other)


DATA = [
    Case("noise zero", lambda: fit(eps=lambda x, d: 0 * x[0]), r"^eps is zero at the start"),
    Case("noise negative", lambda: fit(eps=lambda x, d: -x[0]), r"^eps is negative .*-1\.0, for"),
    Case("noise nan", lambda: fit(eps=lambda x, d: jnp.log(-x[0])), r"^eps is not a number at"),
    Case("noise infinite", lambda: fit(eps=lambda x, d: 1 / (x[0] - 1)), r"^eps is infinite at"),
    Case(
        "one noise negative",
        lambda: fit(eps=lambda x, d: 1.5 - d["at"]),
        r"^eps is negative at .*-0\.5, for constraint 2\. Expected .*jnp\.exp",
    ),
    Case("noises", lambda: fit(eps=lambda x, d: x), r"^eps returned .*shape \(2,\) but .*m = 3"),
    Case("noise a list", lambda: fit(eps=lambda x, d: [x[0]]), r"^eps returned a list but .*m = 3"),
    Case("noise whole", lambda: fit(eps=lambda x, d: jnp.int64(1)), r"^eps returned int64: .*real"),
    Case("noise of x alone", lambda: fit(eps=lambda x: x[0]), r"^eps could not .*2 were given"),
    Case(
        "noise of a ladder",
        lambda: limpet.ladder(limpet.Target(sphere, lambda x: x[2]), NORTH, eps=[0.1]),
        r"^target=Target\(q=sphere, eps=<lambda>\) has a function for eps: .*numbers for eps",
    ),
    Case("missing", lambda: fit(y=np.array([0.0, np.nan, 1.0])), r"^data\['y'\] .*nan at \[1\]"),
    Case("words", lambda: fit(y=["a", "b", "c"]), r"^data\['y'\].*='a': expected an array of real"),
    Case("complex data", lambda: fit(y=np.ones(3, complex)), r"^data\['y'\]=.*array of real"),
    Case("none at all", lambda: limpet.Target(line, 1, data={}), r"^data=\{\} has no arrays"),
    Case("other shape", lambda: fit(y=np.ones(5)), rf"^q could not .*{HERE}.*sub got"),
    Case("not given", lambda: sample(line, start=[1.0, 1.0]), r"^q could not .*argument: 'data'"),
    Case("other data", resume_with_other_data, r"is of another target: data, q differ", StoreError),
    Case("derivatives", lambda: fit(derivatives="both"), r"^derivatives='both': .*'forward', 'rev"),
    Case("too many to slide", lambda: fit(kernel=limpet.SAS()), r"^q .*m = 3 .*n = 2 .*m < n"),
    Case(
        "forward of a custom rule",
        lambda: sample(lambda x: jnp.tile(straight(x) * x, 2)),
        r"^the derivative of q .*custom_vjp.*derivatives=\"forward\".*\"reverse\"",
    ),
]

TOLERANCES = [
    Case("zero", lambda: sample(eps=0), r"^eps=0: .*SurfaceSampler"),
    Case("negative", lambda: sample(eps=-0.1), r"^eps=-0\.1 .*above zero"),
    Case("nan", lambda: sample(eps=math.nan), r"^eps=nan .*finite"),
    Case("infinite", lambda: sample(eps=math.inf), r"^eps=inf .*finite"),
    Case("string", lambda: sample(eps="thin"), r"^eps='thin': expected a number"),
    Case("number as string", lambda: sample(eps="0.1"), r"^eps='0\.1': expected a number"),
    Case("none", lambda: sample(eps=None), r"^eps=None: expected a number"),
    Case("bool", lambda: sample(eps=True), r"^eps=True: expected a number"),
    Case("too large an int", lambda: sample(eps=10**400), r"^eps=10+: expected"),
    Case("length", lambda: sample(eps=[0.1, 0.2]), r"^eps has length 2 .*m = 1 constraints"),
    Case("no numbers", lambda: sample(eps=[]), r"^eps has length 0 .*m = 1 constraints"),
    Case("matrix", lambda: sample(eps=[[0.1]]), r"^eps has shape \(1, 1\): expected a number"),
    Case("unresolved", lambda: sample(eps=1e-14), r"^eps=1e-14 .*expected at least 4\.4e-13"),
    Case("far below doubles", lambda: sample(eps=1e-300), r"^eps=1e-300 .*expected at least"),
    Case("below doubles", lambda: sample(eps=5e-324), r"^eps=5e-324 .*expected at least"),
]

STARTS = [
    Case("three axes", lambda: sample(start=np.zeros((2, 2, 3))), r"^start has shape \(2, 2, 3\)"),
    Case("number", lambda: sample(start=1.0), r"^start has shape \(\): expected one vector"),
    Case("nan", lambda: sample(start=[0, math.nan, 1]), r"^start .*number 1 of point 0 is nan"),
    Case("infinite", lambda: sample(start=[[0, 0, 1], [math.inf, 0, 0]]), r"^start .*point 1 is i"),
    Case("strings", lambda: sample(start=["a", "b"]), r"^start=\['a', 'b'\]: expected real"),
    Case("none", lambda: sample(start=None), r"^start is missing: expected a point"),
    Case("bools", lambda: sample(start=[True, False]), r"^start=\[True, False\]: expected real"),
    Case("complex", lambda: sample(start=[1j, 0]), r"^start=\[1j, 0\]: expected real"),
    Case("empty", lambda: sample(start=[]), r"^start=\[\] is empty"),
    Case(
        "no points", lambda: sample(start=np.zeros((0, 3))), r"^start=.*shape=\(0, 3\).* is empty"
    ),
    Case("empty dict", lambda: sample(start={}), r"^start=\{\}"),
    Case("dict of none", lambda: sample(start={"a": None}), r"^start\['a'\]=None: expected"),
    Case("ragged", lambda: sample(start=[[1.0, 2.0], [1.0]]), r"^start=\[\[1.0, 2.0\], .*of one l"),
    Case("names", lambda: sample(start=[{"a": 1.0}, {"b": 1.0}]), r"^start: point 1 has b: .* a:"),
    Case(
        "shapes", lambda: sample(start=[{"a": [0, 1]}, {"a": 1}]), r"^start: .*a: \(\).*a: \(2,\)"
    ),
    Case("mixed names", lambda: sample(start={1: 1.0, "a": 0.0}), r"^start.*names"),
    Case("too long", lambda: sample(start=np.ones(0)), r"^start=array\(\[\].* is empty"),
    Case(
        "too short",
        lambda: sample(start=[1.0], kernel=limpet.SAS()),
        r"^q .*m = 1 .*n = 1 unknowns",
    ),
    Case("dict unknown to q", lambda: sample(start={"a": [0.0, 1.0]}), rf"^q .*{HERE}.*'dict'"),
    Case(
        "outside the walls",
        lambda: sample(inside=lambda x: x - 2),
        r"start \[0\., 0\., 1\.\] .*walls: inside = \[-2\., -2\., -1\.\], expected all >= 0",
    ),
    Case(
        "second outside the walls",
        lambda: sample(start=[[0.0, 0.0, 1.0], [0.6, 0.8, 0.0]], inside=lambda x: x[2:] - 0.5),
        r"start \[0\.6, 0\.8, 0\. \] \(point 1\) .*inside = \[-0\.5\]",
    ),
    Case(
        "outside walls of jax arrays",
        lambda: sample(inside=lambda x: x.at[2].set(-7.0)),
        r"walls: inside = \[.*-7\.\]",
    ),
    Case(
        "no surface within the walls",
        lambda: sample(start=[0.1, 0.2, 0.3], inside=lambda x: 0.5 - x @ x),
        "outside the walls: start nearer",
        StartError,
    ),
    Case(
        "no density",
        lambda: sample(log_density=lambda x: jnp.log(x[0])),
        r"^log_density is -inf at the start \[0\., 0\., 1\.\]",
    ),
    Case(
        "undefined density",
        lambda: sample(log_density=lambda x: jnp.log(x[0] - 1)),
        r"^log_density is nan at the start",
    ),
    Case(
        "no density on the surface",
        lambda: sample(
            start=[0.1, 0.2, 0.3], log_density=lambda x: jnp.where(x @ x < 0.5, 0.0, -jnp.inf)
        ),
        "log density there is -inf",
        StartError,
    ),
    Case("taken: chain", lambda: sample(sphere_of_dict, start={"chain": NORTH}), "^start.*'chain'"),
    Case("taken: draw", lambda: sample(sphere_of_dict, start={"draw": NORTH}), "^start.*'draw'"),
    Case("slash", lambda: sample(sphere_of_dict, start={"a/b": NORTH}), "^start.*'a/b'"),
    Case("escape", lambda: sample(sphere_of_dict, start={"\x1b[2J": NORTH}), r"^start.*printed"),
    Case(
        "name of an axis",
        lambda: sample(sphere_of_dict, start={"a": NORTH, "a_dim": 0.1}),
        "^start.*'a_dim'",
    ),
    Case(
        "one name for two variables",
        lambda: sample(sphere_of_dict, start={"a_b": 0.6, "a": {"b": 0.8}}),
        "^start.*'a_b'",
    ),
]

FUNCTIONS = [
    Case("log_density", lambda: sample(log_density=3), r"^log_density=3: expected a function"),
    Case("vector", lambda: sample(log_density=lambda x: x), r"^log_density .*\(3,\): expected one"),
    Case("complex", lambda: sample(log_density=lambda x: 1j * x[0]), r"^log_density .*complex128"),
    Case(
        "while_loop",
        lambda: sample(log_density=lambda x: endless(x)[0]),
        r"^the gradient of log_density .*while_loop.*limpet\.SAS\(\)",
    ),
    Case("int", lambda: sample(log_density=lambda x: 1), r"^log_density .*int64: expected a real"),
    Case("tuple", lambda: sample(log_density=lambda x: (x[0],)), r"^log_density returned a tuple"),
    Case("index", lambda: sample(log_density=lambda x: x[8]), r"^log_density .*index 8\b"),
    Case("inside", lambda: sample(inside="x > 0"), r"^inside='x > 0': expected a function"),
    Case(
        "bools", lambda: sample(inside=lambda x: x > 0), r"^inside .*True or False: .* x\[0\] rat"
    ),
    Case("list", lambda: sample(inside=lambda x: [x]), r"^inside returned a list: .*one array"),
    Case("complex walls", lambda: sample(inside=lambda x: 1j * x), r"^inside .*complex128"),
    Case("if in walls", lambda: sample(inside=lambda x: x if x[0] else -x), rf"^inside .*{HERE}"),
    Case("walls' index", lambda: sample(inside=lambda x: x[6]), r"^inside .*index 6\b"),
]

KERNELS = [
    Case("negative", lambda: limpet.SAS(sigma_hrd=-1), r"^sigma_hrd=-1: .*finite .*above zero"),
    Case("zero", lambda: limpet.SAS(sigma_prp=0), r"^sigma_prp=0: .*above zero"),
    Case("nan", lambda: limpet.SAS(sigma_tan=math.nan), r"^sigma_tan=nan: .*finite"),
    Case("infinite", lambda: limpet.SAS(sigma_on=math.inf), r"^sigma_on=inf: .*finite"),
    Case(
        "string", lambda: limpet.SAS(sigma_sft="x"), r"^sigma_sft='x': expected a number, not a s"
    ),
    Case("number as string", lambda: limpet.SAS(sigma_sft="1"), r"^sigma_sft='1': expected a numb"),
    Case("bool", lambda: limpet.SAS(sigma_sft=True), r"^sigma_sft=True: .*not a bool"),
    Case("array", lambda: limpet.SAS(sigma_hrd=np.ones(2)), r"^sigma_hrd=array\(\[1., 1.\]\): exp"),
    Case("too large an int", lambda: limpet.SAS(sigma_hrd=10**400), r"^sigma_hrd=10+: expected"),
    Case("no default", lambda: limpet.SAS(sigma_hrd=None), r"^sigma_hrd=None: expected a number"),
    Case("walk", lambda: limpet.RandomWalk(step_size=-2), r"^step_size=-2: .*above zero"),
    Case("slides", lambda: limpet.SurfaceSampler(step_size=0), r"^step_size=0: .*above zero"),
    Case("tolerance", lambda: limpet.SAS(tolerance=-1e-9), r"^tolerance=-1e-09: .*above zero"),
    Case("no tolerance", lambda: limpet.SAS(tolerance=None), r"^tolerance=None: expected a numb"),
    Case(
        "reverse tolerance",
        lambda: limpet.SurfaceSampler(reverse_tolerance=0),
        r"^reverse_tolerance=0: .*above zero",
    ),
    Case("never off", lambda: limpet.SAS(off_probability=0), r"^off_probability=0: .*above 0 and"),
    Case("too often", lambda: limpet.SAS(on_probability=1.5), r"^on_probability=1.5: .*at most 1"),
    Case("nan odds", lambda: limpet.SAS(on_probability=math.nan), r"^on_probability=nan: .*probab"),
    Case("odds", lambda: limpet.SAS(off_probability="x"), r"^off_probability='x': expected a num"),
    Case("odds string", lambda: limpet.SAS(on_probability="1"), r"^on_probability='1': expected a"),
    Case(
        "no slides at all",
        lambda: limpet.Lifted(steps=0),
        r"^steps=0: .*whole number, 1 or more",
    ),
    Case("minus slides", lambda: limpet.SAS(trajectory=-3), r"^trajectory=-3: .*1 or more"),
    Case(
        "part of a slide",
        lambda: limpet.SurfaceSampler(steps=2.5),
        r"^steps=2.5: expected a whole number, not a float",
    ),
    Case("aside", lambda: limpet.SAS(slide_probability=-0.1), r"^slide_probability=-0.1: .*0 to 1"),
    Case("too many", lambda: limpet.SAS(slide_probability=0.3), r"^on_prob.* add up to 1.1: exp"),
    Case("nan aside", lambda: limpet.SAS(slide_probability=math.nan), r"^slide_probability=nan: "),
    Case(
        "slides of a surface",
        lambda: limpet.SurfaceSampler(slide_probability=0.2),
        r"^limpet.SurfaceSampler has no slide_probability: expected some of measure, step_size, .*"
        r"Slides off the surface are moves of limpet.SAS",
    ),
    Case("typing", lambda: limpet.Lifted(sigma=1), r"^limpet.Lifted has no sigma: .*step_size"),
    Case("cap", lambda: limpet.SAS(newton_cap=0), r"^newton_cap=0: .*whole number, 1 or more"),
    Case("part of a cap", lambda: limpet.SAS(newton_cap=2.5), r"^newton_cap=2.5: .*not a float"),
    Case(
        "measure",
        lambda: limpet.SurfaceSampler(measure="haussdorf"),
        r"^measure='haussdorf': expected one of 'soft', 'hausdorff'",
    ),
    Case(
        "measures",
        lambda: limpet.SurfaceSampler(measure=["soft"]),
        r"^measure=\['soft'\]: expected one of",
    ),
    Case("class", lambda: sample_with(kernel=limpet.SAS), r"^kernel=SAS is a class: .*SAS\(\.\.\."),
    Case("word", lambda: sample_with(kernel="SAS"), r"^kernel='SAS': expected limpet\.Lifted\("),
    Case(
        "no surface",
        lambda: sample_with(kernel=limpet.RandomWalk(), keep_surface=True),
        r"^keep_surface=True .*RandomWalk.*: expected limpet\.SAS\(",
    ),
]

CALLS = [
    Case("function", lambda: limpet.sample(sphere, NORTH), r"^target=<function sphere .*Target\("),
    Case("class", lambda: limpet.sample(limpet.Target, NORTH), r"^target=<class .*Target\("),
    Case(
        "function to find_start",
        lambda: limpet.find_start(sphere_of_dict, NORTH),
        r"^target=<function sphere_of_dict .*Target\(",
    ),
    Case("keep", lambda: sample_with(keep_surface="no"), r"^keep_surface='no': expected True or"),
    Case("seed", lambda: sample_with(seed=2**70), rf"^seed={2**70}: expected"),
    Case("draws", lambda: sample_with(draws=10**17), r"^draws=10+\b.*memory"),
    Case("no points", lambda: limpet.find_start(SPHERE, NORTH, 0), r"^count=0: .*1 or more"),
    Case("guess", lambda: limpet.find_start(SPHERE, [math.nan]), r"^guess .*is nan"),
    Case("jitter", lambda: limpet.find_start(SPHERE, NORTH, jitter=-1), r"^jitter=-1: .*0 or more"),
    Case("nan jitter", lambda: sample_with(jitter=math.nan), r"^jitter=nan: expected a finite num"),
    Case("far jitter", lambda: sample_with(jitter=math.inf), r"^jitter=inf: expected a finite num"),
    Case("no jitter", lambda: sample_with(jitter=False), r"^jitter=False: expected a number, not"),
    Case("word", lambda: sample_with(jitter="none"), r"^jitter='none': expected a number, not a s"),
    *(
        Case(
            f"{name}={value!r}",
            functools.partial(sample_with, **{name: value}),
            rf"^{name}={re.escape(repr(value))}: expected a whole number",
        )
        for name, values in {
            "draws": (0, -1, 2.5, True, "10", ()),
            "chains": (0, -1, 2.5, True, "10"),
            "thin": (0, -1, 2.5, True, "10", None),
            "warmup": (-1, 2.5, True, "10"),
            "seed": (-1, 2.5, True, "10", None),
        }.items()
        for value in values
    ),
]


def named(dims=None, coords=None, **start):
    start = {"bead": np.eye(3)[:2], **start}
    target = limpet.Target(sphere_of_dict, 0.01)
    return limpet.sample(target, start, draws=2, chains=2, warmup=0, dims=dims, coords=coords)


def labelled(labels, **start):
    return named({"bead": ["which", "axis"]}, {"axis": labels}, **start)


def store_many_labels():
    words = {"coords": {"x_dim": [f"{k:0300}" for k in range(20_000)]}}
    limpet.sample(SPHERE, np.ones(20_000), store=f"{tempfile.mkdtemp()}/run.zarr", **words)


XYZ = ["x", "y", "z"]
COORDINATES = [
    Case("list", lambda: named(["a", "b"]), r"^dims=\['a', 'b'\]: expected a dict .*\{'bead': \["),
    Case("word", lambda: named("axis"), r"^dims='axis': expected a dict from variables to lists"),
    Case(
        "unknown", lambda: named({"bad": ["a"]}), r"^dims has 'bad', which is no .*some of 'bead'"
    ),
    Case("number for a name", lambda: named({3: ["a"]}), r"^dims has 3, which is no variable: "),
    Case(
        "too few",
        lambda: named({"bead": ["a"]}),
        r"^dims of 'bead'=\['a'\] has 1 name, but 'bead' has shape \(2, 3\): expected 2, one for",
    ),
    Case(
        "too many", lambda: named({"bead": [*"abc"]}), r"^dims of 'bead'=.* 3 names, .*expected 2"
    ),
    Case("one word", lambda: named({"bead": "axis"}), r"^dims of 'bead'='axis' has 1 name, but"),
    Case(
        "of a number", lambda: named({"a": ["b"]}, a=1.0), r"^dims of 'a'=.*shape \(\): expected 0"
    ),
    Case(
        "no names", lambda: named({"bead": [0, 1]}), r"^dims of 'bead'=\[0, 1\]: .*list of strings"
    ),
    Case(
        "none", lambda: named({"bead": None}), r"^dims of 'bead'=None: expected a list of strings"
    ),
    Case(
        "twice", lambda: named({"bead": ["a", "a"]}), r"^dims of 'bead'=\['a', 'a'\] has 'a' twice"
    ),
    Case("chain", lambda: named({"bead": ["a", "chain"]}), r"^dims .*'chain' is an axis of every"),
    Case("draw", lambda: named({"bead": ["draw", "a"]}), r"^dims .*'draw' is an axis of every var"),
    Case(
        "variable", lambda: named({"bead": ["bead", "a"]}), r"^dims .*'bead' is the name of a var"
    ),
    Case("slash", lambda: named({"bead": ["a/b", "a"]}), r"^dims .*'a/b'.*without a '/'"),
    Case(
        "empty name",
        lambda: named({"bead": ["", "a"]}),
        r"^dims of 'bead'=\['', 'a'\]: .*printable",
    ),
    Case("escape", lambda: named({"bead": ["\x1b", "a"]}), r"^dims .*'\\x1b'.*expected printable"),
    Case("long", lambda: named({"bead": ["a" * 301, "a"]}), r"^dims .*1 to 300 letters"),
    Case(
        "two lengths",
        lambda: named({"bead": ["which", "axis"], "end": ["axis"]}, end=[0.1, 0.2]),
        r"^dims: 'axis' has length 3 in 'bead' but 2 in 'end': expected one length, or two names",
    ),
    Case(
        "length of another's own",
        lambda: named({"bead": ["end_dim", "axis"]}, end=[0.1] * 4),
        r"^dims: 'end_dim' has length 2 in 'bead' but 4 in 'end'",
    ),
    Case("labels alone", lambda: named(coords=XYZ), r"^coords=\['x', 'y', 'z'\]: expected a dict"),
    Case(
        "nobody's",
        lambda: named({"bead": ["which", "axis"]}, {"axes": XYZ}),
        r"^coords has 'axes', which is no axis .*expected some of 'which', 'axis'; dims gives",
    ),
    Case("of chains", lambda: named(coords={"chain": [0, 1]}), r"^coords has 'chain', which is no"),
    Case(
        "no axes at all",
        lambda: limpet.sample(SPHERE, {"a": 1.0}, coords={"b": [1]}),
        r"^coords has 'b', .*expected none, for they have no axes",
    ),
    Case(
        "too few labels", lambda: labelled(["x"]), r"^coords of 'axis'=\['x'\] has 1 label: .* 3,"
    ),
    Case(
        "too many labels", lambda: labelled([*"xyzt"]), r"^coords of 'axis'=.*4 labels: expected 3"
    ),
    Case("endless labels", lambda: labelled(range(10**15)), r"^coords .*1000000000000000 labels: "),
    Case("more than endless", lambda: labelled(itertools.count()), r"^coords .*a list of 3 labels"),
    Case("letters", lambda: labelled("xyz"), r"^coords of 'axis'='xyz': expected a list of 3 lab"),
    Case("unordered", lambda: labelled({1, 5, 9}), r"^coords of 'axis'=\{1, 5, 9\}: expected a li"),
    Case(
        "no labels", lambda: labelled(None), r"^coords of 'axis'=None: expected a list of 3 labels"
    ),
    Case("same", lambda: labelled(["x", "y", "x"]), r"^coords .*has 'x' 2 times: .*that differ"),
    Case(
        "same number", lambda: labelled([1, 1.0, 2]), r"^coords .*has 1\.0 2 times: .*that differ"
    ),
    Case("mixed", lambda: labelled(["x", 1, 2]), r"^coords .*has strings and numbers: .*one kind"),
    Case(
        "none among them", lambda: labelled(["x", "y", None]), r"^coords .*None, a NoneType, cannot"
    ),
    Case("bools", lambda: labelled([True, False, 2]), r"^coords .*True, a bool, cannot be a label"),
    Case(
        "nan label", lambda: labelled([0.5, math.nan, 1]), r"^coords .*nan, a float, .*finite num"
    ),
    Case("huge", lambda: labelled([2**63, 1, 2]), r"^coords .*9223372036854775808, a int, cannot"),
    Case(
        "date",
        lambda: labelled([datetime.date(2026, 1, k) for k in (1, 2, 3)]),
        r"^coords .*datetime\.date\(2026, 1, 1\), a date, .*of anything else take str\(",
    ),
    Case(
        "lapses",
        lambda: labelled([*np.arange(3).astype("m8[s]")]),
        r"^coords .*timedelta64\(0,'s'\), a timedelta64, cannot",
    ),
    Case(
        "dates",
        lambda: labelled(np.arange("2026-01-01", "2026-01-04", dtype="M8[D]")),
        r"^coords .*shape \(3,\) and type datetime64\[D\]: .*of dates take \.astype\(str\)",
    ),
    Case("matrix", lambda: labelled(np.eye(3)), r"^coords .*shape \(3, 3\) and type float64: "),
    Case(
        "lists", lambda: labelled([[1], [2], [3]]), r"^coords .*: \[1\], a list, cannot be a label"
    ),
    Case("two lines", lambda: labelled(["a\nb", "c", "d"]), r"^coords .*'a\\nb' cannot be printed"),
    Case("too many to store", store_many_labels, r"^coords has 20,000 labels, .*at most 4,194,304"),
]

RESULTS = [
    Case(
        "three axes",
        lambda: limpet.autocorrelation_time(np.zeros((2, 3, 4))),
        r"^f has shape \(2, 3, 4\): expected \(chain, draw\)",
    ),
    Case("one draw", lambda: limpet.autocorrelation_time([1.0]), r"^f .*\(1,\).*two draws or more"),
    Case("no chains", lambda: limpet.autocorrelation_time(np.zeros((0, 9))), r"^f .*\(0, 9\)"),
    Case("nan", lambda: limpet.autocorrelation_time([1.0, math.nan]), r"^f has 1 .*not finite"),
    Case("word", lambda: limpet.autocorrelation_time("abc"), r"^f='abc'"),
    Case("complex", lambda: limpet.autocorrelation_time([1j, 2]), r"^f=\[1j, 2\]"),
    Case("ragged", lambda: limpet.autocorrelation_time([[1, 2], [1]]), r"^f=\[\[1, 2\], \[1\]\]"),
    Case("array", lambda: limpet.summary(np.zeros((2, 3))), r"^draws=ndarray: .*limpet\.sample"),
    Case("dataset", lambda: limpet.summary(xr.Dataset()), r"^draws=Dataset: .*limpet\.sample"),
]

GROUPS = {
    "constraints": CONSTRAINTS,
    "eps": TOLERANCES,
    "start": STARTS,
    "functions": FUNCTIONS,
    "kernel": KERNELS,
    "calls": CALLS,
    "data": DATA,
    "coordinates": COORDINATES,
    "results": RESULTS,
}
CASES = {f"{group}: {case.name}": case for group, cases in GROUPS.items() for case in cases}


@functools.cache
def refusal(name):
    """What is raised; None if nothing is."""
    try:
        CASES[name].call()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", CASES)
def test_refusal_names_what_is_wrong(name):
    error = refusal(name)
    assert type(error) is CASES[name].error, repr(error)
    # messages may show an array, on several lines
    assert re.search(CASES[name].message, str(error), re.DOTALL), str(error)
    # no traceback of JAX or numpy above limpet's own
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


def test_every_refusal_is_unlike_the_others():
    messages = {}
    for name in CASES:
        messages.setdefault(str(refusal(name)), []).append(name)
    assert [names for names in messages.values() if len(names) > 1] == []


def test_refusals_are_value_errors_too():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, limpet.LimpetError)
    assert issubclass(StartError, limpet.LimpetError)


@pytest.fixture
def single_precision():
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


@pytest.mark.usefixtures("single_precision")
@pytest.mark.parametrize(
    "call",
    [
        sample_with,
        lambda: limpet.find_start(SPHERE, NORTH),
        lambda: limpet.SAS().init(SPHERE, np.array(NORTH)),
    ],
    ids=["sample", "find_start", "init"],
)
def test_single_precision_is_refused(call):
    with pytest.raises(InputError, match=r"jax_enable_x64 is False.*jax\.config\.update\("):
        call()


@pytest.mark.parametrize("constant", [SINGLE, np.asarray(SINGLE), HALF], ids=["jax", "numpy", "16"])
def test_constants_of_single_precision_are_warned_of(constant):
    target = limpet.Target(lambda x: sphere(x - constant), 0.01)
    with pytest.warns(limpet.PrecisionWarning, match=r"^q computes with float(16|32)") as caught:
        limpet.find_start(target, NORTH)
    assert [warning.filename for warning in caught] == [__file__]


def test_double_precision_is_not_warned_of():
    target = limpet.Target(lambda x: sphere(x - np.arange(3) / 10), 0.01)
    limpet.find_start(target, NORTH)


@pytest.mark.parametrize("guess", [10.0, 1e8])
def test_a_far_guess_is_not_taken_for_a_lost_rank(guess):
    target = limpet.Target(lambda x: jnp.array([jnp.sum(x**8) - 1]), 0.01)
    (point,) = limpet.find_start(target, [guess, guess / 2])
    assert abs(np.sum(point**8) - 1) < 1e-10


def test_a_point_where_only_the_gradient_explodes_is_not_on_the_surface():
    target = limpet.Target(lambda x: jnp.array([jnp.sqrt(x[0]) + 1]), 0.1)
    with pytest.raises(StartError, match=r"\|q\| = 1 .*surface may be empty"):
        limpet.find_start(target, [1.0, 0.0])


def test_a_guess_where_the_gradient_vanishes_is_perturbed():
    (point,) = limpet.find_start(SPHERE, [0.0, 0.0, 0.0])
    assert abs(point @ point - 1) < 1e-12


@pytest.mark.parametrize(
    "constraint",
    [
        lambda x: jnp.sum(x[jnp.triu_indices(3, 1)[0]]) - 1,
        lambda x: x @ x - 1 + x.at[5].get(mode="fill", fill_value=0.0),
        lambda x: jax.ops.segment_sum(x, jnp.array([0, 0, 5]), num_segments=1)[0] - 1,
    ],
    ids=["triu_indices", "fill", "segment_sum"],
)
def test_indices_that_jax_drops_on_purpose_are_no_mistake(constraint):
    target = limpet.Target(lambda x: jnp.array([constraint(x)]), 0.01)
    limpet.find_start(target, [0.3, 0.4, 0.5])


@pytest.mark.parametrize(
    ("make", "name", "today"),
    [
        (lambda: limpet.Lifted(sigma_hrd=0.5), "sigma_hrd", "step_size"),
        (lambda: limpet.Lifted(trajectory=3), "trajectory", "steps"),
        (lambda: limpet.SurfaceSampler(sigma_hrd=0.5), "sigma_hrd", "step_size"),
        (lambda: limpet.RandomWalk(sigma=0.5), "sigma", "step_size"),
    ],
)
def test_names_of_earlier_versions_are_accepted_with_a_warning(make, name, today):
    message = f"{name} of limpet.* is now called {today}"
    with pytest.warns(DeprecationWarning, match=message):
        kernel = make()
    with pytest.warns(DeprecationWarning, match=message):
        old = getattr(kernel, name)
    assert old == getattr(kernel, today)
    with pytest.raises(AttributeError, match="has no sizes_of_nothing"):
        _ = kernel.sizes_of_nothing


def test_parameters_have_the_names_of_earlier_versions_too():
    circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.1)
    kernel = limpet.Lifted(steps=2)
    found = limpet.sample(circle, [1.0, 0.0], draws=20, chains=2, kernel=kernel, progress=False)
    found = found.attrs["parameters"]
    assert (found["sigma_hrd"], found["trajectory"]) == (found["step_size"], found["steps"])
