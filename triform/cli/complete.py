"""`triform complete`"""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from triform.cli import task_io
from triform.cli.draft_and_cache_options import chosen_prefix_folder
from triform.cli.input_rows import read_whole_text
from triform.cli.models import open_model
from triform.cli.task_command import add_flags, answer_questions, finish_command, take_options
from triform.data.rows import TextRow
from triform.errors import TriformError
from triform.tasks import get_task

if TYPE_CHECKING:
    from triform.generate.engine import Engine
    from triform.generate.events import Event
    from triform.model import Model


STATS_HELP = "Print speed, time to the first token and cache size at the end."


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

    def describe(self, cache_bytes: int) -> str:
        rest = time.perf_counter() - self.began - self.first
        speed = f"{(self.tokens - 1) / rest:,.1f} tokens/s after the first, " if self.tokens > 1 else ""
        return f"{self.tokens} tokens, first after {1000 * self.first:,.0f} ms, {speed}cache {cache_bytes:,} bytes"


def make_complete() -> click.Command:
    """`triform complete`"""
    task = get_task("complete")

    @click.argument("model")
    @click.argument("texts", nargs=-1, metavar="[TEXT]...")
    @add_flags(task, n=1, logprobs=0)
    @click.option("--stats", is_flag=True, help=STATS_HELP)
    @click.option("--stream/--no-stream", default=None, help="Print tokens as they come; default: on a terminal.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per answer.")
    @task_io.add_file_options(TextRow)
    @task_io.add_url_option
    def command(model: str, stats: bool, stream: bool | None, url: str | None, as_json: bool, **given: Any) -> None:
        chosen = take_options(task, given)
        texts, beams = given["texts"], chosen.get("beams")
        if url is not None and (beams not in (None, 1) or stats or "lookup" in chosen):
            raise TriformError("with --url there is no --beams, --lookup or --stats; leave them out")
        if given["file"] or given["out"] or len(texts) > 1:
            if beams not in (None, 1) or stats or chosen["n"] != 1:
                raise TriformError("of several texts each has one answer: leave out --n, --beams and --stats")
            run = task_io.make_runner("complete", model, url=url, chosen=chosen if url is None else over_http(chosen))
            answer_questions(task, run, about=chosen, chosen=chosen, as_json=as_json, **given)
            return
        prompt = read_prompt(next(iter(texts), None))
        if url is not None:
            print_from_service(url, model, prompt, over_http(chosen), as_json=as_json)
            return
        opened, ids = read(model, prompt)
        settings = task.options(**chosen).settings()
        if (beams or folder_beams(opened, settings)) != 1:
            print_beams(opened, ids, settings, as_json=as_json)
        else:
            settings.pop("beams", None)
            print_samples(opened, ids, settings, stream=stream, as_json=as_json, stats=stats)

    return finish_command(task, command)


def read(model: str, prompt: str) -> "tuple[Model, tuple[int, ...]]":
    """The model, and the prompt as it reads it."""
    from triform.generate.api import encode_prompt

    opened = open_model(model)
    get_task("complete").check(opened)
    ids = encode_prompt(opened, prompt)
    task_io.warn_of_unknown(opened.tokenizer.count_unknown(ids) if opened.tokenizer else 0)
    return opened, ids


def folder_beams(model: "Model", settings: Mapping[str, Any]) -> int:
    from triform.generate.api import resolve_beam_settings

    return resolve_beam_settings(model, settings).width


def print_beams(model: "Model", ids: tuple[int, ...], settings: Mapping[str, Any], *, as_json: bool) -> None:
    for answer in model.complete([ids], **settings):
        click.echo(msgspec.json.encode(answer).decode() if as_json else answer.text)


def print_samples(
    model: "Model", ids: tuple[int, ...], wanted: dict[str, Any], *, stream: bool | None, as_json: bool, stats: bool
) -> None:
    """Streams one plain answer on a terminal; otherwise prints answers when they are complete."""
    from triform.generate.api import make_engine, resolve_settings
    from triform.generate.settings import Request

    engine = make_engine(model, rows=wanted["n"], prefix_folder=chosen_prefix_folder())
    meter = Meter()
    engine.add(Request(prompt=ids, settings=resolve_settings(model, wanted)))
    plain = wanted["n"] == 1 and not as_json and not wanted["logprobs"]
    if plain and (sys.stdout.isatty() if stream is None else stream):
        write_as_it_comes(engine, meter, [])
    else:
        rows: dict[int, list[Event]] = {sample: [] for sample in range(wanted["n"])}
        for event in run_engine(engine, meter):
            rows[event.sample].append(event)
        for row in rows.values():
            click.echo(as_object(row) if as_json else as_lines(row, model))
    if stats:
        click.echo(meter.describe(engine.runner.bytes), err=True)


def over_http(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """There, logprobs=0 is not the same as none; and the default of max_tokens is 16, as OpenAI's."""
    from triform.generate.settings import Settings

    least = {"logprobs": 1, "beams": 2}  # below, there is nothing to ask for
    named = {name: value for name, value in chosen.items() if name not in least or value >= least[name]}
    return {"max_tokens": Settings().max_tokens} | named


def print_from_service(url: str, model: str, prompt: str, chosen: dict[str, Any], *, as_json: bool) -> None:
    """As it comes; several answers, or all that is known of one, when they are complete."""
    from triform.serve.client import Client

    body = {"model": model, "prompt": prompt} | chosen
    if as_json or chosen.get("n", 1) > 1 or "logprobs" in body:
        for choice in Client(url).choices("/v1/completions", body):
            click.echo(msgspec.json.encode(choice).decode() if as_json else choice["text"])
        return
    for piece in Client(url).pieces("/v1/completions", body):
        click.echo(piece, nl=False)
    click.echo()


def run_engine(engine: "Engine", meter: Meter) -> "Iterator[Event]":
    """The events of an engine until it has nothing more to do."""
    while engine.busy:
        for event in engine.step():
            meter.token()
            if event.finish == "error":
                raise TriformError(f"generation failed: {event.error}")
            yield event


def write_as_it_comes(engine: "Engine", meter: Meter, pieces: list[str]) -> None:
    """Pieces as they come, kept in `pieces` too; whatever ends them, the line is ended."""
    try:
        for event in run_engine(engine, meter):
            pieces.append(event.text)
            click.echo(event.text, nl=False)
    finally:
        click.echo()


def as_object(row: "list[Event]") -> str:
    from triform.tasks.complete import continuation_of

    return msgspec.json.encode(continuation_of(row)).decode()


def as_lines(row: "list[Event]", model: "Model") -> str:
    """The text; with --logprobs, each token with its log-probability and its alternatives."""
    from triform.inspect.token_labels import token_text

    lines = ["".join(event.text for event in row)]
    for event in row:
        if event.alternatives:
            others = "  ".join(
                f"{token_text(other.token, model.tokenizer)!r} {other.logprob:.3f}" for other in event.alternatives
            )
            lines.append(f"{event.text!r:>18} {event.logprob:8.3f}   {others}")
    return "\n".join(lines)


def read_prompt(text: str | None) -> str:
    """The prompt from the command line, or from standard input if there is none."""
    if text is None:
        if sys.stdin.isatty():
            raise TriformError("there is no text: give it behind the model's name, or through standard input")
        text = read_whole_text(None).removesuffix("\n")
    if not text:
        raise TriformError("the prompt is empty; give at least one character")
    return text


complete = make_complete()
