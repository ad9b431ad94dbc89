"""The page in a notebook (Jupyter, marimo): one self-contained frame, without a server and without network."""

from html import escape
from pathlib import Path

from triform.model import Model
from triform.page.export_html import render_file
from triform.page.requests import PageRun
from triform.page.session import InspectionSession

MAX_FRAME_BYTES = 3_000_000  # of answers: a notebook keeps every frame that it shows
HEIGHT = 860  # pixels


class PageFrame:
    """The page of one run; a notebook shows it, `save` writes it as a file."""

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        """A frame of its own: the page's styles and scripts do not meet those of the notebook."""
        return (
            f'<iframe title="Triform" sandbox="allow-scripts allow-downloads" style="border: 0; width: 100%; '
            f'height: {HEIGHT}px" srcdoc="{escape(self.html)}"></iframe>'
        )

    def save(self, path: str | Path) -> None:
        """One HTML file; it opens from disk."""
        Path(path).write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"PageFrame({len(self.html) / 2**20:.1f} MiB)"


def make_page_frame(model: Model, text: str, target: str = "", *, name: str = "") -> PageFrame:
    """The page of a model while it reads a text, with the answers to likely questions in it."""
    session = InspectionSession(name or model.spec.form, model)
    return PageFrame(render_file(session, PageRun(text=text, target=target), most=MAX_FRAME_BYTES))
