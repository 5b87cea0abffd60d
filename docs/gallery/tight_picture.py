"""Draw docs/gallery/tight.png: where NUTS and limpet have been after as many draws."""

from pathlib import Path

import arviz
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import limpet

BEACON = jnp.array([0.5, 0.0, 0.0])


def place(distance):
    """Somewhere on a sphere around the beacon."""
    x = numpyro.sample("x", dist.Normal(0, 1).expand([3]))
    numpyro.sample("distance", dist.Normal(jnp.linalg.norm(x - BEACON), 1e-4), obs=distance)


if __name__ == "__main__":
    draws = limpet.sample(limpet.from_numpyro(place, 1.0), draws=500, chains=4, progress=False)
    nuts = MCMC(NUTS(place), num_warmup=500, num_samples=500, num_chains=4, progress_bar=False)
    nuts.run(jax.random.key(0), 1.0, extra_fields=("num_steps",))
    print("leapfrog steps of a draw", nuts.get_extra_fields()["num_steps"].mean())
    figure, axes = plt.subplots(
        1, 2, figsize=(8, 3.9), layout="constrained", sharex=True, sharey=True
    )
    found = {"NUTS": nuts.get_samples(True)["x"], "limpet": draws.posterior["x"].values}
    for panel, (name, x) in zip(axes, found.items(), strict=True):
        x = np.asarray(x)
        ess = np.asarray(arviz.ess(np.ascontiguousarray(x[..., 0])))
        print(name, "effective draws of x[0]", ess)
        for chain, colour in zip(x, ["#2b7a9b", "#d9822b", "#5b4a3f", "#7aa35a"], strict=True):
            panel.plot(chain[:, 0], chain[:, 1], ".", markersize=3, color=colour)
        panel.set(aspect="equal", title=f"{name}: 500 draws of each of 4 chains", xlabel="x[0]")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("x[1]")
    figure.savefig(Path(__file__).with_name("tight.png"), dpi=120)
