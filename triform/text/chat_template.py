"""Chat templates: a conversation as the text that a model was trained to continue.

A template is untrusted code. It comes from a model folder, never from a request, and runs in a sandbox in a process of
its own (`template_process.py`), which is killed when it takes too long. Knows nothing of models or tokens.
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
from triform.files.atomic_file import write_file
from triform.files.safe_folder import MiB, read_inside
from triform.files.strict_json import parse_json, parse_text
from triform.text import template_process
from triform.text.response_template import ResponseTemplate, read_response_template
from triform.text.template_process import MAX_OUTPUT_BYTES, MAX_RENDER_SECONDS, REQUEST, TEXT, read_frame, write_frame

TEMPLATE_FILE, CONFIG_FILE = "chat_template.jinja", "tokenizer_config.json"
MAX_TEMPLATE_CHARACTERS = MiB // 4  # the largest released template has 30 kB
MAX_CONVERSATION_BYTES = 8 * MiB  # as JSON
MAX_CONVERSATIONS_AT_ONCE = 64  # per request to the process
WAIT_SECONDS = 10.0  # for a busy machine; the processor time is limited far below


class ChatError(TriformError):
    """A template that cannot be run, or a conversation that it does not accept."""


class ChatTemplate:
    """`render` returns the text; the process behind it is started on first use and kept running."""

    def __init__(self, source: str, *, special: Mapping[str, str], response: ResponseTemplate | None = None) -> None:
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise ChatError(
                f"the chat template has {len(source):,} characters; at most {MAX_TEMPLATE_CHARACTERS:,} are accepted"
            )
        self.source = source
        self.response = response  # how an answer is divided, where the folder says it
        self._special = {f"{role}_token": token for role, token in special.items()}
        self._lock = threading.Lock()
        self._child: TemplateProcess | None = None

    @staticmethod
    def read(folder: str | Path, *, special: Mapping[str, str]) -> "ChatTemplate | None":
        """The template of a model folder, from its own file or from tokenizer_config.json; None where there is none."""
        folder = Path(folder)
        data = read_inside(folder, name=TEMPLATE_FILE, limit=4 * MAX_TEMPLATE_CHARACTERS)
        known = read_inside(folder, name=CONFIG_FILE, limit=16 * MiB)
        config = _Config() if known is None else parse_json(known, type=_Config, what=folder / CONFIG_FILE)
        source = config.chat_template if data is None else parse_text(data, what=folder / TEMPLATE_FILE)
        if isinstance(source, list):
            by_name = {template.name: template.template for template in source}
            if "default" not in by_name:
                raise ChatError(f"no chat template of {folder} is named 'default', only {', '.join(sorted(by_name))}")
            source = by_name["default"]
        if source is None:
            return None
        divided = config.response_template
        response = None if divided is None else read_response_template(divided, what=folder / CONFIG_FILE)
        return ChatTemplate(source, special=special, response=response)

    def save(self, folder: str | Path) -> None:
        write_file(Path(folder) / TEMPLATE_FILE, self.source.encode())

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The conversation as text, up to where the model continues; `variables` are those of the template."""
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
        """`render` of each, many per request: waiting for the other process each time costs more than rendering."""
        variables = self._special | variables | {"tools": tools, "documents": None, "add_generation_prompt": prompt}
        contents = [_to_json(variables | {"messages": messages}) for messages in conversations]
        with self._lock:
            return [text for batch in _batch(contents) for text in self._render_batch(batch)]

    def _render_batch(self, contents: list[bytes]) -> list[str]:
        child = self._child
        if child is None or child.owner != os.getpid():  # a fork must not share its parent's pipes
            child = self._start_child()
        request = b"[" + b",".join([json.dumps(self.source).encode(), *contents]) + b"]"
        answers = child.send(request, count=len(contents))
        if answers is None:
            reason = self._stop_child()
            self._start_child()  # it imports jinja2 now, so that the next conversation does not wait for that
            raise ChatError(f"the chat template {reason}")
        for kind, text in answers:
            if kind != TEXT:
                reason = "".join(c if c.isprintable() else " " for c in text.decode("utf-8", "replace"))
                raise ChatError(f"the chat template does not accept this conversation: {reason}")
        return [text.decode("utf-8", "surrogatepass") for _, text in answers]

    def _start_child(self) -> "TemplateProcess":
        self._child = child = TemplateProcess()
        self._stop_child = weakref.finalize(self, child.stop)
        return child


def _to_json(variables: Mapping[str, Any]) -> bytes:
    try:
        content = json.dumps(variables).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a conversation must be plain JSON: {error}") from error
    if len(content) > MAX_CONVERSATION_BYTES:
        raise InputError(
            f"the conversation has {len(content):,} bytes; at most {MAX_CONVERSATION_BYTES:,} are accepted"
        )
    return content


def _batch(contents: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many conversations as one request may have."""
    batch, size = list[bytes](), 0
    for content in contents:
        if batch and (len(batch) == MAX_CONVERSATIONS_AT_ONCE or size + len(content) > MAX_CONVERSATION_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(content)
        size += len(content)
    if batch:
        yield batch


class TemplateProcess:
    """The process behind a template. It gets no environment, and only the modules of Python and jinja2."""

    def __init__(self) -> None:
        if not hasattr(signal, "setitimer"):
            raise ChatError("chat templates need a system that can limit a process (Linux, macOS)")
        self.owner = os.getpid()
        specs = [find_spec(name) for name in ("jinja2", "markupsafe")]
        folders = {str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", template_process.__file__, *sorted(folders)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in ("TZ",) if name in os.environ},
            )
        except OSError as error:
            raise ChatError(f"cannot start the process for chat templates: {error}") from error
        self.requests = cast(IO[bytes], self.process.stdin)
        self.answers = cast(IO[bytes], self.process.stdout)

    def send(self, content: bytes, *, count: int) -> list[tuple[bytes, bytes]] | None:
        """`count` answers, or None if the process ended instead."""
        timer = threading.Timer(WAIT_SECONDS + count * MAX_RENDER_SECONDS, self.process.kill)
        timer.start()
        try:
            write_frame(self.requests, REQUEST, content)
            answers = [frame for _ in range(count) if (frame := read_frame(self.answers, most=MAX_OUTPUT_BYTES))]
            return answers if len(answers) == count else None
        except OSError:
            return None
        finally:
            timer.cancel()

    def stop(self) -> str:
        """Kill the process; returns why it had ended, if it had."""
        if self.owner != os.getpid():
            return "belongs to another process"
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.requests, self.answers):
            with suppress(OSError):  # data that could not be written to a dead process
                pipe.close()
        if code == -signal.SIGPROF:
            return f"took more than {1000 * MAX_RENDER_SECONDS:.0f} ms of processor time"
        return f"broke the process it ran in (code {code})"


class _NamedTemplate(msgspec.Struct):
    name: str
    template: str


class _Config(msgspec.Struct):
    chat_template: str | list[_NamedTemplate] | None = None
    response_template: Any = None
