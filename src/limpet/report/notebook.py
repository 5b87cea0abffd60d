"""What a notebook shows: tables in HTML, and the progress of a run, with IPython alone."""

import html
import io

import rich.console
import rich.theme

WIDTH = 100  # characters of a line of progress: what fits an output cell of usual size
# greys half-way between black and white, which can be read on either
RULE = "1px solid rgba(128, 128, 128, 0.6)"
PAGE = '<pre style="font-family: monospace; line-height: 1.3; background: none">{code}</pre>'
CELL = "padding: 0.15em 0.7em; white-space: nowrap; text-align: "


def table(title: str, about: str, columns: list[str], rows: list[list[str]]) -> str:
    """A table in HTML: the first column to the left, numbers to the right."""
    head = _row("th", columns, f"border-bottom: {RULE}; ")
    body = "".join(_row("td", row) for row in rows)
    return (
        f'<p style="margin: 0.5em 0"><b>{html.escape(title)}</b>{html.escape(about)}</p>'
        '<table style="border-collapse: collapse; font-variant-numeric: tabular-nums">'
        f"<thead>{head}</thead><tbody>{body}</tbody></table>"
    )


def _row(tag: str, cells: list[str], style: str = "") -> str:
    sides = ["left"] + ["right"] * (len(cells) - 1)
    cells = [
        f'<{tag} style="{style}{CELL}{side}">{html.escape(cell)}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"


class Display:
    """Something in the output of a cell that can be replaced.

    rich does this with ipywidgets, which few notebooks have; IPython's own displays need nothing.
    """

    def __init__(self, content: rich.console.RenderableType) -> None:
        from IPython.display import DisplayHandle  # a notebook has it, others need not

        self.handle = DisplayHandle()
        self.handle.display(_forms(content), raw=True)

    def update(self, content: rich.console.RenderableType) -> None:
        """Show this instead."""
        self.handle.update(_forms(content), raw=True)


def _forms(content: rich.console.RenderableType) -> dict[str, str]:
    """What rich prints, as HTML and as text."""
    greys = rich.theme.Theme({"bar.back": "rgb(128,128,128)"})
    console = rich.console.Console(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        theme=greys,
        color_system="truecolor",
        force_jupyter=False,
    )
    console.print(content)
    page = console.export_html(inline_styles=True, code_format=PAGE, clear=False)
    text = "\n".join(line.rstrip() for line in console.export_text().splitlines())
    return {"text/html": page, "text/plain": text}
