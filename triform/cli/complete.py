"""`triform complete`"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from triform.cli import task_io
from triform.cli.input_rows import whole_text
from triform.cli.models import open_model
from triform.data.rows import Text
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.generate.engine import Engine
    from triform.generate.events import Event
    from triform.model import Model


def sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How the next token is chosen: the same words wherever text is written."""
    for option in reversed(
        [
            click.option(
                "--max-tokens", type=int, help="The most tokens to write; default: as the model says, or 128."
            ),
            click.option("--temperature", type=float, help="0: the likeliest token; default: as the model says."),
            click.option("--top-p", type=float, help="Only the likeliest tokens that together have this probability."),
            click.option("--top-k", type=int, help="Only the k likeliest tokens."),
            click.option("--stop", multiple=True, help="Stop before this text; may be given several times."),
            click.option("--seed", type=int, help="The same seed gives the same text."),
            click.option("--stats", is_flag=True, help="Afterwards: tokens a second, time to the first token, cache."),
        ]
    ):
        command = option(command)
    return command


def asked(**options: Any) -> dict[str, Any]:
    """Only what was given, so that the model's own defaults stand."""
    return {name: value for name, value in options.items() if value not in (None, ())}


class Meter:
    """When the first token came, how many came, and what the cache held."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.first = 0.0
        self.tokens = 0

    def token(self) -> None:
        self.tokens += 1
        if self.tokens == 1:
            self.first = time.perf_counter() - self.began

    def told(self, cache_bytes: int) -> str:
        rest = time.perf_counter() - self.began - self.first
        speed = f"{(self.tokens - 1) / rest:,.1f} tokens/s after the first, " if self.tokens > 1 else ""
        return f"{self.tokens} tokens, first after {1000 * self.first:,.0f} ms, {speed}cache {cache_bytes:,} bytes"


@click.command()
@click.argument("model")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@sampling_options
@click.option("--n", type=click.IntRange(min=1), default=1, show_default=True, help="How many answers.")
@click.option(
    "--beams", type=click.IntRange(min=1), help="Beam search of this width; 1: none; default: as the model says."
)
@click.option("--logprobs", type=int, default=0, show_default=True, help="Alternatives to show beside each token.")
@click.option("--lookup", is_flag=True, help="Draft from the text so far: the same tokens, sooner where text repeats.")
@click.option("--stream/--no-stream", default=None, help="Print as it is written; default: on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="For machines: one object an answer.")
@task_io.file_options(Text)
@task_io.url_option
def complete(
    model: str,
    texts: tuple[str, ...],
    stats: bool,
    beams: int | None,
    stream: bool | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Let MODEL write on from TEXT (from standard input where no TEXT is given). An encoder-decoder answers TEXT.

    \b
    Examples:
      triform complete smollm2 "The cat sat on"
      triform complete smollm2 "Once" --temperature 0.8 --seed 7 --n 3
      triform complete smollm2 "Once" "The cat sat on" --max-tokens 20
      echo "Lily went" | triform complete models/stories --max-tokens 40 --json
      triform complete models/stories --file openings.txt --out stories.txt
    """
    ask = task_io.Ask(
        texts, as_json=as_json, **{name: options.pop(name) for name in ("file", "layout", "out", "resume")}
    )
    url = options.pop("url")
    wanted = asked(**options)
    if url is not None and (beams not in (None, 1) or stats or options["lookup"]):
        raise TriformError("with --url there is no --beams, --lookup or --stats; leave them out")
    if ask.file or ask.out or len(texts) > 1:
        if beams not in (None, 1) or stats or options["n"] != 1:
            raise TriformError("of several texts each has one answer: leave out --n, --beams and --stats")
        from_file(model, ask, wanted, url=url)
        return
    prompt = given(next(iter(texts), None))
    if url is not None:
        from_service(url, model, prompt, wanted, as_json=as_json)
        return
    opened, ids = read(model, prompt)
    if beams is None:
        beams = folder_beams(opened, wanted)
    if beams != 1:
        searched(opened, ids, wanted, beams=beams, as_json=as_json)
    else:
        written(opened, ids, wanted, stream=stream, as_json=as_json, stats=stats)


def read(model: str, prompt: str) -> "tuple[Model, tuple[int, ...]]":
    """The model, and the prompt as it reads it."""
    from triform.generate.api import tokens_of
    from triform.tasks.complete import Complete

    opened = open_model(model)
    if opened.spec.form != "encoder-decoder":
        Complete().check(opened)
    ids = tokens_of(opened, prompt)
    task_io.warn_of_unknown(opened.tokenizer.count_unknown(ids) if opened.tokenizer else 0)
    return opened, ids


def folder_beams(model: "Model", wanted: dict[str, Any]) -> int:
    from triform.generate.api import plan_of

    return plan_of(model, wanted).width


def searched(model: "Model", ids: tuple[int, ...], wanted: dict[str, Any], *, beams: int, as_json: bool) -> None:
    for answer in model.complete([ids], beams=beams, **wanted):
        click.echo(msgspec.json.encode(answer).decode() if as_json else answer.text)


def written(
    model: "Model", ids: tuple[int, ...], wanted: dict[str, Any], *, stream: bool | None, as_json: bool, stats: bool
) -> None:
    """As it comes where one plain answer is asked for on a terminal; otherwise when all are whole."""
    from triform.generate.api import engine_of, settings_of
    from triform.generate.settings import Request

    engine, meter = engine_of(model, rows=wanted["n"]), Meter()
    engine.add(Request(prompt=ids, settings=settings_of(model, wanted)))
    plain = wanted["n"] == 1 and not as_json and not wanted["logprobs"]
    if plain and (sys.stdout.isatty() if stream is None else stream):
        write_as_it_comes(engine, meter, [])
    else:
        rows: dict[int, list[Event]] = {sample: [] for sample in range(wanted["n"])}
        for event in events(engine, meter):
            rows[event.sample].append(event)
        for row in rows.values():
            click.echo(as_object(row) if as_json else as_lines(row, model))
    if stats:
        click.echo(meter.told(engine.passes.bytes), err=True)


def from_file(model: str, ask: task_io.Ask, wanted: dict[str, Any], *, url: str | None) -> None:
    """Every prompt of a file, written on side by side."""
    task_io.answer(
        ask,
        task_io.runner("complete", model, url=url, **(wanted if url is None else over_http(wanted))),
        about={"model": model, "url": url} | wanted,
    )


def over_http(wanted: dict[str, Any]) -> dict[str, Any]:
    """There, no log-probabilities are not the same as none beside each token; drafts are the service's own; and so is
    the default of max_tokens, 16 as OpenAI's."""
    from triform.generate.settings import Settings

    named = {name: value for name, value in wanted.items() if name != "lookup" and (name != "logprobs" or value)}
    return {"max_tokens": Settings().max_tokens} | named


def from_service(url: str, model: str, prompt: str, wanted: dict[str, Any], *, as_json: bool) -> None:
    """As it is written; several answers, or all that is known of one, when they are whole."""
    from triform.serve.client import Client

    body = {"model": model, "prompt": prompt} | over_http(wanted)
    if as_json or wanted["n"] > 1 or "logprobs" in body:
        for choice in Client(url).choices("/v1/completions", body):
            click.echo(msgspec.json.encode(choice).decode() if as_json else choice["text"])
        return
    for piece in Client(url).pieces("/v1/completions", body):
        click.echo(piece, nl=False)
    click.echo()


def events(engine: "Engine", meter: Meter) -> "Iterator[Event]":
    while engine.busy:
        for event in engine.step():
            meter.token()
            if event.finish == "error":
                raise TriformError(f"the model failed while writing: {event.error}")
            yield event


def write_as_it_comes(engine: "Engine", meter: Meter, pieces: list[str]) -> None:
    """Pieces as they come, kept in `pieces` too; whatever ends them, the line is ended."""
    try:
        for event in events(engine, meter):
            pieces.append(event.text)
            click.echo(event.text, nl=False)
    finally:
        click.echo()


def as_object(row: "list[Event]") -> str:
    from triform.tasks.complete import completed

    return msgspec.json.encode(completed(row)).decode()


def as_lines(row: "list[Event]", model: "Model") -> str:
    """The text; and where alternatives were asked for, each token with its log-probability and theirs."""
    from triform.inspect.token_labels import token_text

    lines = ["".join(event.text for event in row)]
    for event in row:
        if event.alternatives:
            others = "  ".join(
                f"{token_text(other.token, model.tokenizer)!r} {other.logprob:.3f}" for other in event.alternatives
            )
            lines.append(f"{event.text!r:>18} {event.logprob:8.3f}   {others}")
    return "\n".join(lines)


def given(text: str | None) -> str:
    if text is None:
        if sys.stdin.isatty():
            raise TriformError("there is no text: give it behind the model's name, or through standard input")
        text = whole_text(None).removesuffix("\n")
    if not text:
        raise TriformError("the prompt is empty; give at least one character")
    return text
