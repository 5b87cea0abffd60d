"""`limpet reproduce`: green with limpet's step, red with a broken one, and what it writes."""

import csv
import dataclasses
import inspect
import json
import os
import re
import signal
import subprocess
import sys

import mutants
import numpy as np
import pytest
from typer.testing import CliRunner

import limpet
from limpet.cli import app
from limpet.paper import experiments
from limpet.paper.reproduce import EXPERIMENTS

pytestmark = pytest.mark.optimized

# a breakage, and the experiment that is bound to notice
BREAKAGES = {
    "Hard: no gradient factor": "figure2b",
    "Soft: energy counted twice": "table1",
    "E: Jacobian upside down": "table1",
    "E: density of the kick dropped": "flat",
    "E: density of the landing slide dropped": "table1",
}


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", "--quiet", *map(str, arguments)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "SIDES", ((3, 2),))  # the others: see the example of reproduce
        return run("--quick", "-o", folder), folder


def test_every_verdict_is_green(whole):
    done, folder = whole
    assert done.exit_code == 0, done.output
    with (folder / "verdicts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["experiment"] for row in rows} == set(EXPERIMENTS)
    judged = [row["passed"] for row in rows if row["passed"]]
    assert set(judged) == {"True"}
    assert f"All {len(judged)} verdicts passed." in done.stdout


def test_the_report_needs_nothing_else(whole):
    _, folder = whole
    page = (folder / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert not re.search(r"@import|url\(|<script|<link|\$\w", page)
    for name, experiment in EXPERIMENTS.items():
        assert f'id="{name}"' in page
        assert list(folder.glob(f"{name}-*.csv"))
        for kind in ("png", "pdf"):
            assert (folder / f"{name}.{kind}").is_file() == (experiment.draw is not None)


FIRST = "Hard: no gradient factor"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != FIRST)) for name in BREAKAGES],
)
def test_a_broken_step_ends_red(name, tmp_path, monkeypatch):
    mutant = mutants.build(mutants.SAS_MUTANTS[name])["SAS"]
    # all its methods, for they take its own kind of state
    methods = {key: getattr(mutant, key) for key in dir(mutant) if not key.startswith("__")}
    functions = {key: value for key, value in methods.items() if inspect.isfunction(value)}
    broken = type("Broken", (limpet.SAS,), functions)(**dataclasses.asdict(experiments.PAPER))
    monkeypatch.setattr(experiments, "PAPER", broken)
    monkeypatch.setattr(experiments, "SIDES", ((3, 2),))
    done = run("--quick", "--only", BREAKAGES[name], "-o", tmp_path)
    assert done.exit_code == 1, done.output
    assert "FAILED" in done.stdout
    assert 'class="failed"' in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_json_has_every_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "SIDES", ((3, 2),))
    done = run("--only", "flat", "--json", "-o", tmp_path)
    [verdict] = json.loads(done.stdout)
    assert verdict["experiment"] == "flat"
    assert verdict["passed"] is True
    assert verdict["error"] is None


def test_what_cannot_be_asked(tmp_path):
    done = run("--quick", "--full")
    assert done.exit_code == 2
    assert "expected one of them" in done.stderr
    done = run("--only", "figure4", "-o", tmp_path / "new")
    assert done.exit_code == 1
    assert "only='figure4': expected some of figure1a" in done.stderr
    assert not (tmp_path / "new").exists()
    done = run("--seed", "-1", "-o", tmp_path / "new")
    assert done.exit_code == 1
    assert "seed=-1: expected a whole number" in done.stderr
    file = tmp_path / "file"
    file.touch()
    done = run("-o", file)
    assert done.exit_code == 2
    assert "expected a folder" in done.stderr


def test_interrupted_it_keeps_what_is_finished(tmp_path):
    command = [sys.executable, "-m", "limpet", "reproduce", "--quick", "-o", tmp_path]
    command += ["--only", "figure1a,tiny-eps"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        for line in process.stderr:
            if line.startswith("figure1a"):  # done; tiny-eps goes on
                process.send_signal(signal.SIGINT)
                break
        said = process.stderr.read()
    assert process.returncode == 128 + signal.SIGINT, said
    assert "the experiments that were finished are in the report" in said
    assert 'id="figure1a"' in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("q", [limpet.paper.two_spheres, limpet.paper.ellipsoid_sphere])
def test_quadrature_agrees_with_itself(q):
    beta, edges = 100.0, np.linspace(-2, 2, 21)
    inside = limpet.paper.bin_averages(q, beta, edges).sum() * 0.2
    assert inside * limpet.paper.inverse_z(q, beta) == pytest.approx(1, abs=1e-7)


def test_quadrature_agrees_with_what_is_known():
    for beta in (20.0, 200.0):
        square = limpet.paper.eps_of(beta) ** 2
        two_spheres = limpet.paper.two_spheres
        assert limpet.paper.mean_square(two_spheres, beta) == pytest.approx(0.75 - square / 8)
        z = 2 * np.pi * square * np.pi / (2 * np.sqrt(2))
        assert limpet.paper.inverse_z(two_spheres, beta) == pytest.approx(1 / z, rel=1e-7)
