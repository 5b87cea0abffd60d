"""What a notebook is given: tables in HTML, and displays that are replaced."""

import html.parser

import IPython.display
import rich.text

from limpet.report import notebook


class Cells(html.parser.HTMLParser):
    """The texts of a page, by tag."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.found = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):  # noqa: D102
        self.tags.append(tag)

    def handle_endtag(self, tag):  # noqa: D102
        assert self.tags.pop() == tag

    def handle_data(self, data):  # noqa: D102
        self.found.append((self.tags[-1], data))


def test_a_table_has_its_cells_and_every_tag_is_closed():
    page = Cells(notebook.table("moves", ": of all", ["move", "share"], [["hard", "1%"]]))
    assert not page.tags
    assert page.found == [
        *(("b", "moves"), ("p", ": of all")),
        *(("th", "move"), ("th", "share"), ("td", "hard"), ("td", "1%")),
    ]


def test_names_from_users_are_text():
    rude = "<script>alert(1)</script>"
    page = notebook.table(rude, rude, [rude], [[rude]])
    assert "<script" not in page
    assert [text for _, text in Cells(page).found] == [rude] * 4


def test_a_display_is_shown_once_and_then_replaced(monkeypatch):
    calls = []

    class Handle:
        def display(self, forms, raw):
            calls.append(("display", forms))

        def update(self, forms, raw):
            calls.append(("update", forms))

    monkeypatch.setattr(IPython.display, "DisplayHandle", Handle)
    cell = notebook.Display(rich.text.Text("starting"))
    cell.update(rich.text.Text("drawing", style="bold"))
    (first, begun), (second, later) = calls
    assert (first, second) == ("display", "update")
    assert begun["text/plain"] == "starting"
    assert "drawing" in later["text/html"]
    assert "bold" in later["text/html"]
