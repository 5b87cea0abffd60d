"""Draw docs/progress.svg, a terminal in which a run is two thirds done."""

import io
import re
from pathlib import Path

from rich.console import Console

import limpet
from limpet.paper import two_spheres
from limpet.report.progress import panel

COMMAND = "$ limpet sample spheres.py -o run.zarr --chains 256 --draws 50000"

if __name__ == "__main__":
    told = []
    target = limpet.Target(two_spheres, eps=0.005)
    limpet.sample(target, [1.0, 0.0, 0.0], draws=50_000, chains=256, progress=told.append)
    console = Console(file=io.StringIO(), record=True, width=84, color_system="truecolor")
    console.print(COMMAND, highlight=False)
    console.print(panel(next(now for now in told if now.draws > 0.6 * now.asked)))
    drawn = console.export_svg(title="limpet")
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # they are on another host
    Path(__file__).with_name("progress.svg").write_text(drawn)
