"""`triform look`"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from triform.cli.models import open_model
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.inspect.labelled_array import LabelledArray
    from triform.inspect.module_paths import AttentionKind, StackName
    from triform.inspect.view import View
    from triform.page.session import InspectionSession


class HeadPlace(NamedTuple):
    """Which attention is meant."""

    layer: int
    head: int | None
    stack: "StackName | None"
    kind: "AttentionKind"

    def of(self, view: "View") -> "LabelledArray":
        return view.attention(self.layer, self.head, kind=self.kind, stack=self.stack)


@click.command()
@click.argument("model")
@click.argument("text", required=False)
@click.option("--target", default="", help="Of an encoder-decoder; default: what the model generates.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write one self-contained file: .html (--plot: .svg, .png, .pdf).",
)
@click.option("--plot", type=click.Choice(["attention"]), help="One head as a picture; without --out, SVG.")
@click.option("--layer", type=int, default=0, show_default=True, help="Which layer --plot and --json show.")
@click.option("--head", type=int, help="Which head; needed by --plot; with --json its weights are printed.")
@click.option("--stack", type=click.Choice(["encoder", "decoder"]), help="Default: the one the head reads.")
@click.option("--kind", type=click.Choice(["self", "cross"]), default="self", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: tokens, and a head's weights if one is named.")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1; default: any free one.")
def look(
    model: str,
    text: str | None,
    target: str,
    out: Path | None,
    plot: str | None,
    as_json: bool,
    browser: bool,
    port: int,
    **where: Any,
) -> None:
    """Look inside MODEL while it reads TEXT: a page in the browser, one file, a picture, or JSON.

    A model without tokenizer reads ids: "3 14 15".

    \b
    Examples:
      triform look smollm2 "the fat ginger cat sat on a mat"
      triform look minilm "sea lion cuddly toy" --out lion.html
      triform look smollm2 "the cat sat" --plot attention --layer 3 --head 2 --out head.svg
      triform look tiny-encoder-decoder "3 14 15" --json
    """
    from triform.page.session import InspectionSession
    from triform.serve.page_routes import opening_text

    if out is not None:
        check_out(out, plot=plot is not None, as_json=as_json)
    looker = InspectionSession(name_view(model), open_model(model))
    text = text or opening_text(looker)
    if plot:
        show(find_head(looker, text, target), HeadPlace(**where), out)
    elif as_json:
        print_json(find_head(looker, text, target), HeadPlace(**where))
    elif out is not None:
        write(looker, text, target, out)
    else:
        serve(looker, text, target, browser=browser, port=port)


def check_out(out: Path, *, plot: bool, as_json: bool) -> None:
    """The ending says what is in a file; it is looked at before the model is."""
    from triform.inspect.paper_figures import check_ending

    if plot:
        check_ending(out)
    elif as_json:
        raise TriformError(f"--json is printed, not written to {out}; leave --out out, or send it there with >")
    elif out.suffix.lower() not in (".html", ".htm"):
        picture = "; for a picture of one head add --plot attention --head 0" if out.suffix.lower() == ".svg" else ""
        raise TriformError(f"{out} does not end in .html: the page is written as one HTML file{picture}")


def name_view(model: str) -> str:
    return Path(model).name or model


def find_head(looker: "InspectionSession", text: str, target: str) -> "View":
    from triform.page.requests import PageRun

    return looker.view(PageRun(text=text, target=target))


def show(view: "View", where: HeadPlace, out: Path | None) -> None:
    """Prints the picture of one head, or writes it to a file."""
    if where.head is None:
        heads = view.spec.stacks[where.stack or list(view.spec.stacks)[-1]].attention.heads
        raise TriformError(f"a picture shows one head; give --head 0 to {heads - 1}")
    weights = where.of(view)
    if out is None:
        click.echo(weights.figure().svg)
        return
    if out.suffix.lower() == ".svg":
        write_file(out, weights.figure().svg)
    else:
        weights.save_figure(out)
    click.echo(out)


def print_json(view: "View", where: HeadPlace) -> None:
    click.echo(view.to_json() if where.head is None else where.of(view).to_json())


def write(looker: "InspectionSession", text: str, target: str, out: Path) -> None:
    """Writes the page about a text as one offline file."""
    from triform.extensions import find_lessons
    from triform.page.export_html import render_file
    from triform.page.requests import PageRun

    lessons = find_lessons()
    write_file(
        out,
        render_file(
            looker, PageRun(text=text, target=target), lessons=None if lessons is None else lessons.everything()
        ),
    )
    click.echo(f"{out} ({out.stat().st_size / 2**20:.1f} MiB; it opens from disk, without network)")


def write_file(out: Path, text: str) -> None:
    """Writes text to a file; a path that cannot be written is one clear error."""
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TriformError(f"{out} cannot be written: {error.strerror}") from None


def serve(looker: "InspectionSession", text: str, target: str, *, browser: bool, port: int) -> None:
    """Serves the page about a text on this machine until Ctrl-C."""
    from triform.serve.page_routes import serve_page

    find_head(looker, text, target)  # what is wrong with the text is said before anything listens
    serve_page(
        looker,
        text=text,
        target=target,
        port=port,
        open_browser=click.launch if browser else None,
        print_line=click.echo,
    )
