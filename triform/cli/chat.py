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
from triform.cli.draft_and_cache_options import chosen_prefix_folder
from triform.cli.input_rows import check_text, read_stdin_rows
from triform.cli.logs import remember
from triform.cli.models import open_model
from triform.cli.run_identity import ModelRun
from triform.cli.task_command import add_flags, answer_questions, finish_command, take_options
from triform.data.rows import BadRow, Message
from triform.errors import TriformError
from triform.tasks import get_task

if TYPE_CHECKING:
    from triform.model import Model

HELP = (
    "/reset clears the conversation · /save FILE writes it as JSON · /set NAME VALUE sets an option, /set lists them · "
    '/stats · /quit, or Ctrl-D · Ctrl-C stops an answer · several lines: begin and end with """, or end a line with \\'
)
BLOCK = '"""'


class Conversation:
    """Messages so far, and one engine that keeps what it has read of them."""

    def __init__(self, model: "Model", *, name: str, system: str | None, chosen: dict[str, Any]) -> None:
        from triform.generate.api import make_engine, resolve_settings
        from triform.tasks.chat import get_template

        get_task("chat").check(model)
        self.template, self.words = get_template(model), model.require_tokenizer()
        self.engine = make_engine(model, rows=1, prefix_folder=chosen_prefix_folder())
        self.model, self.name, self.chosen = model, name, dict(chosen)
        self.settings = resolve_settings(model, get_task("chat").options(**chosen).settings())
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
        remember("chat", self.name, text, self.messages[-1]["content"])

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
            case "/set":
                self.set_option(rest)
            case "/stats":
                click.echo(self.meter.describe(self.engine.runner.bytes))
            case _:
                click.echo(HELP)

    def set_option(self, given: str) -> None:
        """`temperature 0.7`, or `temperature` alone for the default again; nothing lists what is set."""
        name, _, value = given.strip().partition(" ")
        if not name:
            told = ", ".join(f"{name}={value}" for name, value in self.chosen.items())
            click.echo(f"set: {told or 'nothing'}; options: {', '.join(list_options())}")
            return
        chosen = {key: known for key, known in self.chosen.items() if key != name}
        self.choose(chosen | ({name: parse_option(name, value.strip())} if value.strip() else {}))
        click.echo(f"{name} is {self.chosen.get(name, 'the default')}")

    def choose(self, chosen: dict[str, Any]) -> None:
        from triform.generate.api import resolve_settings

        self.settings = resolve_settings(self.model, get_task("chat").options(**chosen).settings())
        self.chosen = chosen

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

        self.client, self.name, self.chosen = Client(url), name, dict(wanted)
        self.opening = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self.opening)

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        pieces: list[str] = []
        body = {"model": self.name, "messages": self.messages} | self.chosen
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
        remember("chat", self.name, text, "".join(pieces))

    def choose(self, chosen: dict[str, Any]) -> None:
        self.chosen = over_http(chosen)

    def command(self, line: str) -> None:
        if line.startswith("/stats"):
            click.echo("the service keeps them, at /metrics")
        else:
            super().command(line)


def make_chat() -> click.Command:
    """`triform chat`"""
    task = get_task("chat")

    @click.argument("model")
    @click.argument("message", required=False)
    @click.option("--system", help="The system message before the conversation.")
    @add_flags(task)
    @click.option("--stats", is_flag=True, help=STATS_HELP)
    @click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per answer.")
    @task_io.add_file_options(*task.input_rows)
    @task_io.add_url_option
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
            talk = Conversation(open_model(model), name=model, system=system, chosen=chosen)
        elif stats:
            raise TriformError("--stats is about a model that runs here; with --url the service has them at /metrics")
        else:
            talk = RemoteConversation(url, model, system=system, wanted=chosen)
        if message is not None:
            talk.say(check_text(message))
        elif sys.stdin.isatty():
            converse(talk, stats=stats)
            return
        else:
            for line in read_typed_lines():
                talk.hear(line)
        if stats:
            click.echo(talk.meter.describe(talk.engine.runner.bytes), err=True)

    return finish_command(task, command)


def answer_each(
    model: str, texts: tuple[str, ...], *, system: str | None, url: str | None, chosen: dict[str, Any], **given: Any
) -> None:
    """Every conversation of a file, or every text of one as a message, answered once."""
    opening = () if system is None else (Message("system", system),)
    run = task_io.make_runner("chat", model, url=url, chosen=chosen)
    answer_questions(
        get_task("chat"),
        ModelRun(lambda questions: run([(*opening, *question) for question in questions]), identify=run.identify),
        about={"system": system} | chosen,
        chosen=chosen,
        texts=texts,
        **given,
    )


def read_typed_lines() -> Iterator[str]:
    """What stands on standard input, line by line, as if it were typed."""
    for line in read_stdin_rows():
        if isinstance(line, BadRow):
            if line.kind != "blank":
                raise TriformError(str(line))
            continue
        if line.row.text.strip() == "/quit":
            return
        yield line.row.text.strip()


def list_options() -> list[str]:
    """Those that one word or number can set."""
    return [field.name for field in get_task("chat").fields if field.plain in (int, float, bool, str)]


def parse_option(name: str, text: str) -> Any:
    """The value of an option as it was typed."""
    from triform.tasks.options import UnknownOption

    fields = {field.name: field for field in get_task("chat").fields if field.name in list_options()}
    if name not in fields:
        raise UnknownOption("chat", name, fields)
    field = fields[name]
    try:
        words = {"true": True, "on": True, "false": False, "off": False}
        value = words[text.lower()] if field.plain is bool else field.plain(text)
    except (ValueError, KeyError):
        raise TriformError(f"{name}={text!r} is not {field.describe()}") from None
    return field.check(value)


def read_message() -> str:
    """One line, or several: those that end with a backslash go on, and three quotation marks hold a block."""
    line = input("\n> ").strip()
    if line.startswith(BLOCK):
        lines = [line.removeprefix(BLOCK)]
        while not (lines[-1].rstrip().endswith(BLOCK) and (len(lines) > 1 or lines[0].strip())):
            lines.append(input("… "))
        return "\n".join([*lines[:-1], lines[-1].rstrip().removesuffix(BLOCK)]).strip()
    while line.endswith("\\"):
        line = line[:-1].rstrip() + "\n" + input("… ").strip()
    return line


def converse(talk: Conversation, *, stats: bool) -> None:
    """A conversation on the terminal: reads lines until the end of input."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (arrow keys and history while typing)
    click.echo(HELP)
    while True:
        try:
            line = read_message()
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
                click.echo(talk.meter.describe(talk.engine.runner.bytes))
        except TriformError as error:
            click.echo(f"triform: {error}")


chat = make_chat()
