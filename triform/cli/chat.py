"""`triform chat`"""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triform.cli import task_io
from triform.cli.complete import STATS_HELP, Meter, over_http, write_as_it_comes
from triform.cli.input_rows import checked, on_stdin
from triform.cli.models import open_model
from triform.cli.task_command import add_flags, answer_questions, finish_command, take_options
from triform.data.rows import Bad, Message
from triform.errors import TriformError
from triform.tasks import named

if TYPE_CHECKING:
    from triform.model import Model

HELP = (
    "/reset clears the conversation · /save FILE writes it as JSON · /stats · /quit, or Ctrl-D · Ctrl-C stops an answer"
)


class Conversation:
    """Messages so far, and one engine that keeps what it has read of them."""

    def __init__(self, model: "Model", *, system: str | None, settings: dict[str, Any]) -> None:
        from triform.generate.api import engine_of, settings_of
        from triform.tasks.chat import template_of

        named("chat").check(model)
        self.template, self.words = template_of(model), model.require_tokenizer()
        self.engine = engine_of(model, rows=1)
        self.settings = settings_of(model, settings)
        self.opening = [] if system is None else [{"role": "system", "content": system}]
        self.messages: list[dict[str, str]] = list(self.opening)
        self.meter = Meter()

    def say(self, text: str) -> None:
        """One turn; an answer that is stopped with Ctrl-C is kept as far as it came."""
        from triform.generate.settings import Request

        messages = [*self.messages, {"role": "user", "content": text}]
        task_io.warn_of_unknown(self.words.count_unknown(self.words.encode(text, special=False).ids))
        prompt = self.words.encode_conversation(self.template.render(messages)).ids
        id = self.engine.add(Request(prompt=prompt, settings=self.settings))
        self.meter = Meter()
        pieces: list[str] = []
        try:
            write_as_it_comes(self.engine, self.meter, pieces)
        except KeyboardInterrupt:
            self.engine.cancel(id)
        self.messages = [*messages, {"role": "assistant", "content": "".join(pieces).strip()}]

    def hear(self, line: str) -> None:
        """A line as it was typed: a command, or something to say."""
        if line.startswith("/"):
            self.command(line)
        else:
            self.say(line)

    def command(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "/reset":
                self.messages = list(self.opening)
                click.echo("forgotten")
            case "/save":
                self.save(Path(rest.strip() or "conversation.json"))
            case "/stats":
                click.echo(self.meter.told(self.engine.passes.bytes))
            case _:
                click.echo(HELP)

    def save(self, path: Path) -> None:
        told = json.dumps({"messages": self.messages}, ensure_ascii=False, indent=2)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(told)
        except FileExistsError:
            raise TriformError(f"{path} is already there; give another name") from None
        except OSError as error:
            raise TriformError(f"{path} cannot be written: {error.strerror}") from None
        click.echo(f"saved {len(self.messages)} messages in {path}")


class RemoteConversation(Conversation):
    """A conversation with a model of a service, which gets all messages at each turn."""

    def __init__(self, url: str, name: str, *, system: str | None, wanted: dict[str, Any]) -> None:
        from triform.serve.client import Client

        self.client, self.name, self.wanted = Client(url), name, wanted
        self.opening = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self.opening)

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        body = {"model": self.name, "messages": self.messages} | self.wanted
        try:
            for piece in self.client.pieces("/v1/chat/completions", body):
                pieces.append(piece)
                click.echo(piece, nl=False)
            click.echo()
        except TriformError:
            self.messages.pop()
            raise
        except KeyboardInterrupt:
            click.echo()
        self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def command(self, line: str) -> None:
        if line.startswith("/stats"):
            click.echo("the service keeps them, at /metrics")
        else:
            super().command(line)


def make_chat() -> click.Command:
    task = named("chat")

    @click.argument("model")
    @click.argument("message", required=False)
    @click.option("--system", help="The system message before the conversation.")
    @add_flags(task)
    @click.option("--stats", is_flag=True, help=STATS_HELP)
    @click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per answer.")
    @task_io.file_options(*task.input_rows)
    @task_io.url_option
    def command(
        model: str, message: str | None, system: str | None, stats: bool, url: str | None, **given: Any
    ) -> None:
        chosen = take_options(task, given)
        if url is not None:
            chosen = over_http(chosen)
        if given["as_json"] or given["file"] or given["out"]:
            texts = () if message is None else (message,)
            answer_each(model, texts, system=system, url=url, chosen=chosen, **given)
            return
        if url is None:
            talk = Conversation(open_model(model), system=system, settings=task.options(**chosen).settings())
        elif stats:
            raise TriformError("--stats is about a model that runs here; with --url the service has them at /metrics")
        else:
            talk = RemoteConversation(url, model, system=system, wanted=chosen)
        if message is not None:
            talk.say(checked(message))
        elif sys.stdin.isatty():
            converse(talk, stats=stats)
            return
        else:
            for line in typed():
                talk.hear(line)
        if stats:
            click.echo(talk.meter.told(talk.engine.passes.bytes), err=True)

    return finish_command(task, command)


def answer_each(
    model: str, texts: tuple[str, ...], *, system: str | None, url: str | None, chosen: dict[str, Any], **given: Any
) -> None:
    """Every conversation of a file, or every text of one as a message, answered once."""
    opening = () if system is None else (Message("system", system),)
    run = task_io.runner("chat", model, url=url, chosen=chosen)
    answer_questions(
        named("chat"),
        lambda questions: run([(*opening, *question) for question in questions]),
        about={"model": model, "system": system, "url": url} | chosen,
        chosen=chosen,
        texts=texts,
        **given,
    )


def typed() -> Iterator[str]:
    """What stands on standard input, line by line, as if it were typed."""
    for line in on_stdin():
        if isinstance(line, Bad):
            if line.kind != "blank":
                raise TriformError(str(line))
            continue
        if line.row.text.strip() == "/quit":
            return
        yield line.row.text.strip()


def converse(talk: Conversation, *, stats: bool) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (arrow keys and history while typing)
    click.echo(HELP)
    while True:
        try:
            line = input("\n> ").strip()
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
            continue
        if line == "/quit":
            return
        if not line:
            continue
        try:
            talk.hear(line)
            if stats and not line.startswith("/"):
                click.echo(talk.meter.told(talk.engine.passes.bytes))
        except TriformError as error:
            click.echo(f"triform: {error}")


chat = make_chat()
