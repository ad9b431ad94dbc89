"""`triform chat`"""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triform.cli import task_io
from triform.cli.complete import Meter, asked, over_http, sampling_options, write_as_it_comes
from triform.cli.input_rows import checked, on_stdin
from triform.cli.models import open_model
from triform.data.columns import Layout
from triform.data.rows import Bad, Chat, Message, Text
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.model import Model

HELP = (
    "/reset forgets the conversation · /save FILE keeps it as JSON · /stats · /quit, or Ctrl-D · Ctrl-C stops an answer"
)


class Conversation:
    """Messages so far, and one engine that keeps what it has read of them."""

    def __init__(self, model: "Model", *, system: str | None, wanted: dict[str, Any]) -> None:
        from triform.generate.api import engine_of, settings_of
        from triform.tasks.chat import Chat, template_of

        Chat().check(model)
        self.template, self.words = template_of(model), model.require_tokenizer()
        self.engine = engine_of(model, rows=1)
        self.settings = settings_of(model, wanted)
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


class Elsewhere(Conversation):
    """A conversation with a model that a service has; the service reads all of it at each turn."""

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


@click.command()
@click.argument("model")
@click.argument("message", required=False)
@click.option("--system", help="What the model is told before the conversation.")
@sampling_options
@click.option("--json", "as_json", is_flag=True, help="For machines: one object an answer.")
@task_io.file_options(Chat, Text)
@task_io.url_option
def chat(
    model: str, message: str | None, system: str | None, stats: bool, as_json: bool, url: str | None, **options: Any
) -> None:
    """Talk with MODEL. With a MESSAGE it is answered once; otherwise a conversation, one line a turn. In a file
    each row, a conversation or a message, is answered once.

    \b
    Examples:
      triform chat smollm2
      triform chat smollm2 "What is the capital of France?" --temperature 0
      triform chat smollm2 --file conversations.jsonl --json --out answers.jsonl
    """
    ask = task_io.Ask(as_json=as_json, **{name: options.pop(name) for name in ("file", "layout", "out", "resume")})
    wanted = asked(**options) if url is None else over_http(asked(**options))
    if as_json or ask.file or ask.out:
        asked_here = () if message is None else (message,)
        answer_each(model, ask._replace(texts=asked_here), system=system, url=url, wanted=wanted)
        return
    talk: Conversation
    if url is None:
        talk = Conversation(open_model(model), system=system, wanted=wanted)
    elif stats:
        raise TriformError("--stats is about a model that runs here; with --url the service has them at /metrics")
    else:
        talk = Elsewhere(url, model, system=system, wanted=wanted)
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


def answer_each(model: str, ask: task_io.Ask, *, system: str | None, url: str | None, wanted: dict[str, Any]) -> None:
    """Every conversation of a file, or every text of one as a message, answered once."""
    from triform.tasks.chat import conversation

    opening = () if system is None else (Message("system", system),)
    whole = ask.file is not None and holds_conversations(Path(ask.file), ask.layout)
    task_io.answer(
        ask,
        task_io.runner("chat", model, url=url, **wanted),
        about={"model": model, "system": system, "url": url} | wanted,
        kind=Chat if whole else Text,
        of_row=lambda row: (*opening, *(row.messages if whole else conversation(row.text))),
        of_text=lambda text: (*opening, *conversation(text)),
    )


def holds_conversations(path: Path, layout: Layout) -> bool:
    """Whole conversations, unless a column with single messages is named, or the format has no room for them."""
    from triform.data.formats import ending, formats_of

    known = formats_of(Chat)
    keys = {each.key for each in known.values()}
    carried = ending(path) in known if layout.format is None else layout.format in keys
    return "messages" in layout.columns or ("text" not in layout.columns and carried)


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
