"""Everything: each part in a process of its own, then the figures and the verdicts.

python -m bench --output docs/speed                # an hour and a quarter; `make bench`
python -m bench --output /tmp/quick --seconds 3    # less time for each sampler
python -m bench --output docs/speed --only speed   # one part anew, the others as they were
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import draw

PARTS = ("speed", "startup", "anatomy", "growth", "alternatives", "kernels")
SHARE = {"alternatives": 1, "kernels": 1 / 4}  # of the seconds, for one run
NUTS = ("numpyro", "nutpie", "blackjax")


def verdicts(found):
    """What limpet promises: name, measured, and whether it holds; parts not there are left out."""
    rows = []

    def row(name, value, holds):
        rows.append((name, f"{value:.3g}", holds))

    if lines := found.get("speed", {}).get("lines"):
        row("256 chains, at least 1.0 x C++", (v := lines["256 chains"]["median"]), v >= 1)
        row("one chain, at least 0.1 x C++", (v := lines["one chain"]["median"]), v >= 0.1)
    if ratios := found.get("startup", {}).get("ratios"):
        row("import, at most 1.5 x jax and xarray", (v := ratios["import"]["median"]), v <= 1.5)
        row("first draw, at most NumPyro's time", (v := ratios["new"]["median"]), v <= 1)
        row("first draw of a known model, at most half", (v := ratios["seen"]["median"]), v <= 0.5)
    if growth := found.get("growth"):
        row("stiff chain, at most N^2.2", (v := growth["beads_exponent"]), v <= 2.2)
        (step,) = (each for each in growth["beads"] if each["beads"] == 81)
        row("81 beads, at most 25 x NumPy", (v := step["yardsticks"]["median"]), v <= 25)
        for each in growth["against_beta"]:
            rates = [r["median"] for r in each["relative"]]
            which = f"{each['model']}, {each['sampler']}"
            row(f"{which}: flat in beta, within 15 %", (v := max(rates) / min(rates)), v <= 1.15)
    records = found.get("alternatives", [])
    for model in sorted({each["model"] for each in records}):
        mine = [each for each in records if each["model"] == model]
        for name, least, samplers in (
            ("the best NUTS", 200, NUTS),
            ("tempered SMC", 20, ("smc",)),
            ("lifted HMC", 20, ("mici",)),
        ):
            # what gives a wrong answer has no effective draws
            rivals = [e for e in mine if e["beta"] == 2e4 and e["sampler"] in samplers]
            best = min((e["ratio"] for e in rivals if e["right"]), default=float("inf"))
            if rivals:
                row(f"{model}: at least {least} x {name}", best, best >= least)
    rows.extend(kernel_verdicts(found.get("kernels", [])))
    return rows


def rate(record, observable):
    """Effective draws per second of one observable."""
    return record["ess"][observable] / record["seconds"]


def kernel_verdicts(records):
    """The same of limpet's own samplers: the best that converged, beside the paper's."""
    records = [each for each in records if "ess" in each]  # not those that failed
    for problem, seen, least in (("ellipsoid-sphere", "x1", 2.5), ("30 beads", "end-to-end", 10)):
        runs = [e for e in records if (e["problem"], e["eps"]) == (problem, 0.01)]
        paper = [rate(e, seen) for e in runs if e["kernel"] == "SAS (paper)"]
        best = max((e for e in runs if e["converged"]), key=lambda e: rate(e, seen), default=None)
        if runs and best is None:
            yield f"{problem}: some kernel converges", "none", False
        elif paper:
            which, times = f"{problem}, {best['kernel']}", rate(best, seen) / paper[0]
            yield f"{which}: at least {least} x SAS (paper)", f"{times:.3g}", times >= least
            if seen == "x1":
                cost = best["projections"] / best["ess"][seen]
                yield f"{which}: at most 10 projections per draw", f"{cost:.3g}", cost <= 10
            else:
                z = abs(best["end_to_end_off_by"])
                yield f"{which}: within 4 standard errors", f"{z:.3g}", z <= 4


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", type=lambda text: text.split(","), default=PARTS)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    files = {part: options.output / f"{part}.json" for part in PARTS}
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only {', '.join(sorted(unknown))}: expected some of {', '.join(PARTS)}")
    for part in options.only:
        command = [sys.executable, "-m", f"bench.{part}", "--json", str(files[part])]
        if part in SHARE:
            command += ["--seconds", str(SHARE[part] * options.seconds)]
        subprocess.run(command, check=True)
    found = {p: json.loads(file.read_text()) for p, file in files.items() if file.exists()}
    draw(found, options.output)
    table = Table("promise", "measured", "holds")
    for name, value, holds in verdicts(found):
        table.add_row(name, value, "yes" if holds else "NO")
    Console().print(table)


if __name__ == "__main__":
    main()
