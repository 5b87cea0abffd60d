"""`import limpet` starts nothing: no backend of JAX, no thread that a fork would lose, no file."""

import os
import subprocess
import sys
import textwrap

HANG = 300  # seconds after which a process counts as hanging; it takes a few


def run(code, **environment):
    """What a process prints that runs this code."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    environment = os.environ | environment
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANG, check=True
    ).stdout


def test_no_backend_is_initialised():
    code = """
        import jax
        import limpet
        from jax._src import xla_bridge
        print(jax.config.read("jax_enable_x64"), xla_bridge.backends_are_initialized())
    """
    assert run(code) == "True False\n"


def test_jax_is_imported_when_it_is_needed_and_computes_in_doubles():
    code = """
        import sys
        import limpet
        print("jax" in sys.modules)
        import jax.numpy as jnp
        print(jnp.ones(3).dtype, limpet.Lifted().steps, limpet.kernels.State.__name__)
        print(set(limpet.__all__) == set(dir(limpet)), hasattr(limpet, "simple"))
    """
    for chosen in ("", "0"):
        output = run(code, JAX_ENABLE_X64=chosen)
        assert output == "False\nfloat64 None State\nTrue False\n"


def test_a_room_can_be_imported_alone():
    for room in ("errors", "kernels", "draws", "partition"):
        assert run(f"from limpet import {room}; print({room}.__name__)") == f"limpet.{room}\n"


def test_devices_may_be_chosen_after_the_import():
    code = """
        import os
        import limpet
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
        import jax
        print(len(jax.devices()))
    """
    assert run(code, XLA_FLAGS="", JAX_PLATFORMS="cpu") == "3\n"


def test_no_file_is_written(tmp_path):
    home, cache = tmp_path / "home", tmp_path / "cache"
    home.mkdir()
    places = {"HOME": str(home), "XDG_CACHE_HOME": "", "JAX_COMPILATION_CACHE_DIR": ""}
    run("import limpet", **places, PYTHONDONTWRITEBYTECODE="1", LIMPET_CACHE=str(cache))
    run("import limpet; print(limpet.Lifted())", **places, PYTHONDONTWRITEBYTECODE="1")
    assert not list(home.iterdir())
    assert not cache.exists()


def test_programs_are_kept_once_there_are_some(tmp_path):
    code = """
        import jax.numpy as jnp
        import limpet
        jnp.ones(3) + 1  # JAX has compiled something before it is told where to keep programs
        limpet.find_start(limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.1), [1.0, 0.0])
    """
    run(code, LIMPET_CACHE=str(tmp_path), JAX_COMPILATION_CACHE_DIR="")
    assert any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_forked_process_can_sample():
    code = """
        import multiprocessing
        import jax.numpy as jnp
        import limpet

        def mean(seed):
            circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.1)
            options = dict(draws=20, chains=2, warmup=0, seed=seed, progress=False)
            return float(limpet.sample(circle, [1.0, 0.0], **options).posterior["x"].mean())

        with multiprocessing.get_context("fork").Pool(2) as pool:
            first, second = pool.map(mean, [1, 2])
        print(abs(first) < 1.2, first != second)
    """
    assert run(code) == "True True\n"
