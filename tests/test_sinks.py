"""Where draws go: the same tree from memory and from a store, and one table of what is kept."""

import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.run.quantities import STATS, Stat

TARGET = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.05)
ASKED = {"draws": 37, "chains": 5, "warmup": 100, "thin": 2, "seed": 4, "progress": False}


@pytest.mark.filterwarnings("ignore::limpet.LimpetWarning")
def test_a_further_number_of_each_draw_is_one_line_of_a_table(tmp_path, monkeypatch):
    further = Stat("<f8", lambda trace, at, step: np.reshape(trace.acceptance, -1)[at])
    monkeypatch.setitem(STATS, "acceptance", further)
    options = ASKED | {"kernel": limpet.SAS(), "keep_surface": True}
    memory = limpet.sample(TARGET, [1.0, 0.0], **options)
    store = tmp_path / "run.zarr"
    limpet.sample(TARGET, [1.0, 0.0], store=store, **options | {"draws": 20})
    stored = limpet.resume(store, TARGET, draws=37, progress=False)
    assert set(memory.sample_stats.data_vars) == {"lp", "step", "acceptance"}
    assert memory.sample_stats["acceptance"].values.min() >= 0
    for group in ("posterior", "surface", "sample_stats"):
        for name, array in memory[group].data_vars.items():
            np.testing.assert_array_equal(stored[group][name], array)


@pytest.mark.filterwarnings("ignore::limpet.LimpetWarning")
@pytest.mark.parametrize("kernel", [limpet.Lifted(), limpet.SAS()], ids=["lifted", "sas"])
@pytest.mark.parametrize("chains", [1, 3, 130])
def test_memory_and_a_store_give_the_same_tree(tmp_path, kernel, chains):
    options = ASKED | {"kernel": kernel, "chains": chains}
    memory = limpet.sample(TARGET, [1.0, 0.0], **options)
    stored = limpet.sample(TARGET, [1.0, 0.0], store=tmp_path / "run.zarr", **options)
    assert memory.children.keys() == stored.children.keys()
    for group in memory.children:
        assert memory[group].to_dataset().identical(stored[group].to_dataset().compute())
    times = [name for name in memory.attrs if "seconds" in name]
    ours, theirs = ({k: v for k, v in t.attrs.items() if k not in times} for t in (memory, stored))
    assert ours == theirs
