"""The process in which chat templates run, with access to nothing else.

A script of its own, started with the folders of jinja2 as arguments; it imports no other part of Triform. It limits its
memory, and the processor time of each rendering: a template that exceeds a limit ends this process, not the caller.
Requests and answers are frames: one byte for the kind, four for the length, the content. A request has the template and
conversations; there is one answer per conversation.
"""

import json
import signal
import struct
import sys
from contextlib import suppress
from datetime import datetime
from typing import IO, Any

MAX_RENDER_SECONDS = 0.25  # processor time per rendering, the first with compilation
MAX_OUTPUT_BYTES = 1 << 20  # UTF-8
MAX_MEMORY_BYTES = 256 << 20  # of address space, of which Python and jinja2 use a tenth
FRAME_HEADER = struct.Struct(">cI")
REQUEST, TEXT, REFUSAL = b"a", b"t", b"r"


def read_frame(file: IO[bytes], *, most: int = 2**32 - 1) -> tuple[bytes, bytes] | None:
    """Kind and content; None at the end of the file, or if the frame is cut off or has more than `most` bytes."""
    head = file.read(FRAME_HEADER.size)
    if len(head) < FRAME_HEADER.size:
        return None
    kind, size = FRAME_HEADER.unpack(head)
    content = file.read(size) if size <= most else b""
    return (kind, content) if len(content) == size else None


def write_frame(file: IO[bytes], kind: bytes, content: bytes) -> None:
    file.write(FRAME_HEADER.pack(kind, len(content)) + content)
    file.flush()


def limit_process() -> None:
    """Limit the memory; forbid writing files, starting processes and core dumps."""
    import resource

    limits = {"RLIMIT_AS": MAX_MEMORY_BYTES, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0, "RLIMIT_CORE": 0}
    for name, most in limits.items():
        with suppress(ValueError, OSError):  # macOS does not know them all; there the time limit bounds the memory too
            resource.setrlimit(getattr(resource, name), (most, most))


def make_environment() -> Any:
    """The settings and functions that released templates expect."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """`{% generation %}` marks the text of the model, for training; rendered as if the tag were absent."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)  # jinja2's own escapes HTML

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": lambda *pairs, **items: dict(*pairs, **items),  # not the class, which has attributes
    }
    del environment.globals["lipsum"]
    return environment


def render(template: Any, variables: dict[str, Any]) -> bytes:
    """The text, or a ValueError if it is too long."""
    pieces = []
    left = MAX_OUTPUT_BYTES
    for piece in template.generate(variables):
        pieces.append(piece.encode("utf-8", "surrogatepass"))
        left -= len(pieces[-1])
        if left < 0:
            raise ValueError(f"the text has more than {MAX_OUTPUT_BYTES:,} bytes")
    return b"".join(pieces)


def main() -> None:
    """Renders templates until standard input ends."""
    sys.path[:0] = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    environment = make_environment()
    limit_process()
    known, template = None, None
    while frame := read_frame(requests):
        source, *conversations = json.loads(frame[1])
        for variables in conversations:
            # No handler: the signal ends the process even inside one long operation of C code.
            signal.setitimer(signal.ITIMER_PROF, MAX_RENDER_SECONDS)
            try:
                if source != known:
                    known, template = source, environment.from_string(source)
                answer = TEXT, render(template, variables)
            except MemoryError:
                answer = REFUSAL, f"it needs more than {MAX_MEMORY_BYTES >> 20} MiB of memory".encode()
            except Exception as error:
                answer = REFUSAL, f"{type(error).__name__}: {error}"[:500].encode("utf-8", "replace")
            signal.setitimer(signal.ITIMER_PROF, 0)
            write_frame(answers, *answer)


if __name__ == "__main__":
    main()
