"""Everything: each part in a process of its own, then the figures and the verdicts.

python -m bench --output docs/speed                # two hours; `make bench`
python -m bench --output /tmp/quick --seconds 3    # less time for each sampler
python -m bench --output docs/speed --only speed   # one part anew, the others as they were
python -m bench --output docs/speed --only ""      # figures and verdicts of what was measured
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import draw, exponent

PARTS = (
    "speed",
    "startup",
    "anatomy",
    "steady",
    "growth",
    "nuts",
    "inverse",
    "alternatives",
    "kernels",
)
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
    for each in found.get("steady", {}).get("against_beta", []):
        rates = [r["median"] for r in each["relative"]]
        which = f"{each['model']}, {each['sampler']}"
        row(f"{which}: flat in beta, within 15 %", (v := max(rates) / min(rates)), v <= 1.15)
    rows.extend(growth_verdicts(found.get("growth", {})))
    inverse = found.get("inverse", {})
    if slides := inverse.get("slides"):
        row("1,000 data: at most 20 x a slide with 10", (v := slides["median"]), v <= 20)
    rows.extend(nuts_verdicts([*found.get("nuts", []), *inverse.get("nuts", [])]))
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


def growth_verdicts(growth):
    """The same of how cost grows; a size that there was no time for is a promise not kept."""
    at = {kind: {each["size"]: each for each in found} for kind, found in growth.items()}

    def step(kind, size):
        return at.get(kind, {}).get(size, {}).get("seconds", {}).get("median", math.nan)

    def compiling(kind, size):
        return at.get(kind, {}).get(size, {}).get("compile_seconds", math.nan)

    def rows():
        for kind in ("sphere", "sphere, Lifted"):
            for n in (100, 1_000):
                ratio = step(kind, 10 * n) / step(kind, n)
                yield kind, f"{kind}, n from {n} to {10 * n}: at most 12 x", ratio, 12
        sizes = [size for size in at.get("chain", {}) if size >= 100]
        power = math.nan
        if 3_000 in sizes:
            power = exponent(sizes, [step("chain", size) for size in sizes])
        yield "chain", "100 to 3,000 beads: at most N^1.1", power, 1.1
        cpp = at.get("chain", {}).get(1_000, {}).get("yardstick", {}).get("seconds", math.nan)
        yield "chain", "1,000 beads: at most 2.24 x C++", step("chain", 1_000) / cpp, 2.24
        for beads, most in ((60, 5), (1_000, 15)):
            name = f"{beads} beads: compiled in at most {most} s"
            yield "chain", name, compiling("chain", beads), most
        ring = step("ring", 1_000) / step("chain", 1_000)
        yield "ring", "ring of 1,000: at most 1.5 x the chain", ring, 1.5
        for kind, size in (("star", 1_001), ("network", 500)):  # both have 1,000 bonds
            ratio = step(kind, size) / step("chain", 1_000)
            yield kind, f"{kind} of 1,000 bonds: at most 5 x the chain", ratio, 5
        for kind, size in (("chain", 1_000), ("ring", 1_000), ("star", 1_001), ("network", 500)):
            ratio = step(f"{kind}, shuffled", size) / step(kind, size)
            name = f"{kind}, bonds in random order: at most 1.5 x"
            yield f"{kind}, shuffled", name, ratio, 1.5
        ratio = compiling("equation", 1_000) / compiling("equation", 50)
        yield "equation", "1,000 steps in time: compiled in at most 1.25 x 50's", ratio, 1.25

    for kind, name, value, most in rows():
        if kind in growth:
            yield name, f"{value:.3g}", value <= most


def nuts_verdicts(records):
    """The same beside NUTS, everything included; None: NUTS had no draws in its time."""
    least = {"quadratics": {0.01: 3, 0.001: 50}, "equation": {0.01: 20, 0.001: 200}}
    least["one direction loose"] = {0.01: 5, 0.001: 20, 0.0001: 100}
    least["all identified"] = dict.fromkeys(least["one direction loose"], 1)
    for each in records:
        wanted = least[each["problem"].split(",")[0]].get(each["eps"])
        if wanted is not None:
            ours = {sampler: rate for sampler, rate in each["rates"].items() if sampler != "nuts"}
            best = max(ours, key=lambda sampler: ours[sampler])
            which = f"{each['problem']}, eps = {each['eps']:g}, {best}"
            ratio = math.inf if each["ratio"] is None else each["ratio"]
            yield (
                f"{which}: at least {wanted} x NUTS",
                f"{ratio:.3g}",
                ratio >= wanted and ours[best] > 0,
            )


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
    parser.add_argument("--only", type=lambda text: text.split(",") if text else [], default=PARTS)
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
