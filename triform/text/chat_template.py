"""Chat templates: a conversation as the one text a model was trained to continue.

A template is code from a stranger. It comes from a model folder, never from a request, and runs in a sandbox in a
process of its own (`chat_child.py`), which is killed when it takes too long. Knows nothing of models or tokens.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from triform.errors import InputError, TriformError
from triform.files.whole_files import MiB, parse_json, parse_text, read_inside, write_whole
from triform.text import template_process
from triform.text.template_process import ASKED, OUTPUT, SECONDS, TEXT, read_frame, write_frame

FILE, CONFIG = "chat_template.jinja", "tokenizer_config.json"
SOURCE_LIMIT = MiB // 4  # the largest released template has 30 kB
CONVERSATION_LIMIT = 8 * MiB  # as JSON
TOGETHER = 64  # conversations asked for at once
PATIENCE = 10.0  # seconds of waiting, for a machine that is asleep; the processor time is limited far below


class ChatError(TriformError):
    """A template that cannot be run, or a conversation that it does not take."""


class ChatTemplate:
    """`render` gives the text; the process behind it is started when first needed and kept warm."""

    def __init__(self, source: str, *, special: Mapping[str, str]) -> None:
        if len(source) > SOURCE_LIMIT:
            raise ChatError(f"the chat template has {len(source):,} characters; at most {SOURCE_LIMIT:,} are accepted")
        self.source = source
        self._special = {f"{role}_token": token for role, token in special.items()}
        self._lock = threading.Lock()
        self._child: Child | None = None

    @staticmethod
    def read(folder: str | Path, *, special: Mapping[str, str]) -> "ChatTemplate | None":
        """The template of a model folder, from its own file or from tokenizer_config.json; None where there is none."""
        folder = Path(folder)
        data = read_inside(folder, name=FILE, limit=4 * SOURCE_LIMIT)
        if data is not None:
            return ChatTemplate(parse_text(data, what=folder / FILE), special=special)
        config = read_inside(folder, name=CONFIG, limit=16 * MiB)
        said = None if config is None else parse_json(config, type=_Config, what=folder / CONFIG).chat_template
        if isinstance(said, list):
            named = {each.name: each.template for each in said}
            if "default" not in named:
                raise ChatError(f"no chat template of {folder} is named 'default', only {', '.join(sorted(named))}")
            said = named["default"]
        return None if said is None else ChatTemplate(said, special=special)

    def save(self, folder: str | Path) -> None:
        write_whole(Path(folder) / FILE, data=self.source.encode())

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The conversation as text, up to where the model is to speak; `variables` are the template's own."""
        (text,) = self.render_many([messages], prompt=prompt, tools=tools, **variables)
        return text

    def render_many(
        self,
        conversations: Sequence[Sequence[Mapping[str, Any]]],
        *,
        prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> list[str]:
        """`render` of each, many asked for at once: to wait for another process each time costs more than rendering."""
        given = self._special | variables | {"tools": tools, "documents": None, "add_generation_prompt": prompt}
        asked = [_as_json(given | {"messages": messages}) for messages in conversations]
        with self._lock:
            return [text for some in _together(asked) for text in self._ask(some)]

    def _ask(self, asked: list[bytes]) -> list[str]:
        child = self._child
        if child is None or child.owner != os.getpid():  # a fork must not share its parent's pipes
            child = self._start_child()
        answers = child.ask(b"[" + b",".join([json.dumps(self.source).encode(), *asked]) + b"]", count=len(asked))
        if answers is None:
            reason = self._end()
            self._start_child()  # it imports jinja2 meanwhile: the next conversation need not wait for that
            raise ChatError(f"the chat template {reason}")
        for what, text in answers:
            if what != TEXT:
                reason = "".join(c if c.isprintable() else " " for c in text.decode("utf-8", "replace"))
                raise ChatError(f"the chat template does not take this conversation: {reason}")
        return [text.decode("utf-8", "surrogatepass") for _, text in answers]

    def _start_child(self) -> "Child":
        self._child = child = Child()
        self._end = weakref.finalize(self, child.end)
        return child


def _as_json(given: Mapping[str, Any]) -> bytes:
    try:
        content = json.dumps(given).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a conversation must be plain JSON: {error}") from error
    if len(content) > CONVERSATION_LIMIT:
        raise InputError(f"the conversation has {len(content):,} bytes; at most {CONVERSATION_LIMIT:,} are accepted")
    return content


def _together(asked: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many as are asked for at once."""
    some, size = list[bytes](), 0
    for content in asked:
        if some and (len(some) == TOGETHER or size + len(content) > CONVERSATION_LIMIT):
            yield some
            some, size = [], 0
        some.append(content)
        size += len(content)
    if some:
        yield some


class Child:
    """The process behind a template. It gets no environment, and no modules but Python's own and jinja2's."""

    def __init__(self) -> None:
        if not hasattr(signal, "setitimer"):
            raise ChatError("chat templates need a system that can limit a process (Linux, macOS)")
        self.owner = os.getpid()
        specs = [find_spec(name) for name in ("jinja2", "markupsafe")]
        homes = {str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", template_process.__file__, *sorted(homes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in ("TZ",) if name in os.environ},
            )
        except OSError as error:
            raise ChatError(f"cannot start the process for chat templates: {error}") from error
        self.asks = cast(IO[bytes], self.process.stdin)
        self.answers = cast(IO[bytes], self.process.stdout)

    def ask(self, content: bytes, *, count: int) -> list[tuple[bytes, bytes]] | None:
        """So many answers, or None if the process ended instead."""
        watch = threading.Timer(PATIENCE + count * SECONDS, self.process.kill)
        watch.start()
        try:
            write_frame(self.asks, ASKED, content)
            answers = [frame for _ in range(count) if (frame := read_frame(self.answers, most=OUTPUT))]
            return answers if len(answers) == count else None
        except OSError:
            return None
        finally:
            watch.cancel()

    def end(self) -> str:
        """Why it ended, if not by this."""
        if self.owner != os.getpid():
            return "belongs to another process"
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.asks, self.answers):
            with suppress(OSError):  # what could not be written to a dead process
                pipe.close()
        if code == -signal.SIGPROF:
            return f"took more than {1000 * SECONDS:.0f} ms of processor time"
        return f"broke the process it ran in (code {code})"


class _Named(msgspec.Struct):
    name: str
    template: str


class _Config(msgspec.Struct):
    chat_template: str | list[_Named] | None = None
