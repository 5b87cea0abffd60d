"""The report: one page of HTML that needs nothing else, and its figures and tables as files."""

import base64
import csv
import datetime
import html
import importlib.metadata
import importlib.resources
import io
import string
from pathlib import Path

import numpy as np

from limpet.errors import InputError
from limpet.paper.reproduce import Finding
from limpet.paper.verdicts import Verdict, rows

MARKS = {True: ("ok", "passed"), False: ("failed", "failed"), None: ("not judged", "open")}


def write_report(findings: list[Finding], folder: Path) -> Path:
    """Write report.html, and each figure (PNG, PDF) and table (CSV) beside it.

    Parameters
    ----------
    findings : list of Finding
        From `limpet.paper.reproduce`.
    folder : path
        Made if it is not there; files of an earlier report are replaced.

    Returns
    -------
    path
        The page.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sections = [_section(finding, folder) for finding in findings]
        with (folder / "verdicts.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["experiment", *Verdict._fields])
            lines.writerows([f.name, *_cells(v)] for f in findings for v in f.verdicts)
        page = folder / "report.html"
        page.write_text(_page(findings, sections), encoding="utf-8")
    except OSError as error:
        raise InputError(f"Could not write {folder}: {error.strerror or error}.") from None
    return page


def headline(findings: list[Finding]) -> str:
    """How many verdicts passed, in a sentence."""
    judged = [v.passed for f in findings for v in f.verdicts if v.passed is not None]
    if all(judged):
        return f"All {len(judged)} verdicts passed."
    return f"{len(judged) - sum(judged)} of {len(judged)} verdicts FAILED."


def _page(findings, sections):
    text = importlib.resources.files("limpet.paper").joinpath("report.html").read_text("utf-8")
    version = importlib.metadata.version("limpet")
    minutes = sum(finding.seconds for finding in findings) / 60
    return string.Template(text).substitute(
        headline=headline(findings),
        verdict="passed" if all(finding.passed() for finding in findings) else "failed",
        made=f"limpet {version}, {datetime.date.today()}, {minutes:.1f} minutes",
        contents="\n".join(
            f'<li class="{MARKS[f.passed()][1]}"><a href="#{f.name}">{f.experiment.title}</a></li>'
            for f in findings
        ),
        sections="\n".join(sections),
    )


def _section(finding, folder):
    name, experiment, data = finding.name, finding.experiment, finding.data
    by_axes = {}
    for variable in data.data_vars.values():
        by_axes.setdefault(variable.dims, []).append(variable.name)
    for axes, variables in by_axes.items():
        frame = data[variables].to_dataframe()
        frame.to_csv(folder / f"{'-'.join([name, *map(str, axes)])}.csv")
    picture = ""
    if experiment.draw is not None:
        figure, image = experiment.draw(data), io.BytesIO()
        figure.savefig(folder / f"{name}.pdf")
        figure.savefig(image, format="png", dpi=200)
        (folder / f"{name}.png").write_bytes(image.getvalue())
        code = base64.b64encode(image.getvalue()).decode()
        picture = f'<img alt="{experiment.title}" src="data:image/png;base64,{code}">'
    judged = "\n".join(_row(verdict) for verdict in finding.verdicts)
    return f"""<section id="{name}">
<h2>{html.escape(experiment.title)}</h2>
<div class="beside"><div>{picture}</div><div>
<p>{html.escape(experiment.about)}</p>
<table class="verdicts">
<thead><tr><th></th><th>published</th><th>exact</th><th>limpet</th><th></th></tr></thead>
<tbody>
{judged}
</tbody></table></div></div>
{_bin_table(data) if "mean_inverse_z" in data else ""}
</section>"""


def _cells(verdict: Verdict) -> list[object]:
    """A verdict for a table in a file, its numbers rounded."""
    value, error = f"{verdict.value:.6g}", f"{verdict.error:.2g}"
    return [("" if cell == "nan" else cell) for cell in verdict._replace(value=value, error=error)]


def _row(verdict):
    word, kind = MARKS[verdict.passed]
    cells = "".join(
        f'<td data-name="{name}">{html.escape(text)}</td>'
        for name, text in (
            ("published", verdict.published),
            ("exact", verdict.exact),
            ("limpet", verdict.measured()),
        )
    )
    rule = html.escape(verdict.rule)
    return (
        f"<tr><th>{html.escape(verdict.quantity)}<small>{rule}</small></th>{cells}"
        f'<td class="{kind}">{word}</td></tr>'
    )


def _bin_table(data):
    """The table that the paper's Figure 2 is, with the bins' mean densities beside it."""
    seen = data.isel(centre=np.flatnonzero(data["count"] > 0))
    columns = ("pdf", "inverse_z", "mean_pdf", "mean_inverse_z", "error")
    lines = "\n".join(
        f"<tr><td>{int(row['bin'])}</td><td>{float(row.centre):.2f}</td>"
        f"<td>{int(row['count']):,}</td>"
        + "".join(f"<td>{_short(name, float(row[name]))}</td>" for name in columns)
        + "</tr>"
        for row in rows(seen, "centre")
    )
    return f"""<details><summary>All bins with draws</summary>
<table class="bins"><thead>
<tr><th>bin</th><th>centre</th><th>count</th><th>pdf<br>·10³</th><th>1/Z</th>
<th>mean<br>pdf·10³</th><th>1/Z</th><th>±</th></tr></thead>
<tbody>
{lines}
</tbody></table></details>"""


def _short(name, number):
    return f"{1e3 * number:.3f}" if name in ("pdf", "mean_pdf") else f"{number:.4g}"
