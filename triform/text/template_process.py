"""The process in which chat templates run: one template, many conversations, and nothing else within reach.

A script of its own, started with the places of jinja2 as its arguments; it imports no other part of Triform. It limits
its memory, and the processor time of each rendering: a template that passes a limit ends this process, not the one
that asked. It is asked and answers in frames: one byte that says what it is, four of length, the content; of a
question the template and conversations, for each of which there is an answer.
"""

import json
import signal
import struct
import sys
from contextlib import suppress
from datetime import datetime
from typing import IO, Any

SECONDS = 0.25  # of processor time for a rendering, the first with compilation
OUTPUT = 1 << 20  # bytes of UTF-8
MEMORY = 256 << 20  # of addresses, of which Python and jinja2 take a tenth
HEAD = struct.Struct(">cI")
ASKED, TEXT, REFUSAL = b"a", b"t", b"r"


def read_frame(file: IO[bytes], *, most: int = 2**32 - 1) -> tuple[bytes, bytes] | None:
    """What it is and its content; None at the end of the file, or where it breaks off or passes `most` bytes."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    what, size = HEAD.unpack(head)
    content = file.read(size) if size <= most else b""
    return (what, content) if len(content) == size else None


def write_frame(file: IO[bytes], what: bytes, content: bytes) -> None:
    file.write(HEAD.pack(what, len(content)) + content)
    file.flush()


def limit_process() -> None:
    """A bound on memory; no files written, no processes started, no trace of a crash."""
    import resource

    limits = {"RLIMIT_AS": MEMORY, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0, "RLIMIT_CORE": 0}
    for name, most in limits.items():
        with suppress(ValueError, OSError):  # macOS does not know them all; there the time bounds the memory too
            resource.setrlimit(getattr(resource, name), (most, most))


def make_environment() -> Any:
    """What released templates are written against: these settings, these functions."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what the model says, for training; here it renders as if it were not there."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)  # jinja2's own escapes HTML

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
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
    """The text, if it stays within bounds."""
    pieces = []
    left = OUTPUT
    for piece in template.generate(variables):
        pieces.append(piece.encode("utf-8", "surrogatepass"))
        left -= len(pieces[-1])
        if left < 0:
            raise ValueError(f"the text passes {OUTPUT:,} bytes")
    return b"".join(pieces)


def main() -> None:
    sys.path[:0] = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    environment = make_environment()
    limit_process()
    known, template = None, None
    while frame := read_frame(asked):
        source, *conversations = json.loads(frame[1])
        for variables in conversations:
            # No handler: the signal ends the process even inside one long operation of C code.
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                if source != known:
                    known, template = source, environment.from_string(source)
                answer = TEXT, render(template, variables)
            except MemoryError:
                answer = REFUSAL, f"it needs more than {MEMORY >> 20} MiB of memory".encode()
            except Exception as error:
                answer = REFUSAL, f"{type(error).__name__}: {error}"[:500].encode("utf-8", "replace")
            signal.setitimer(signal.ITIMER_PROF, 0)
            write_frame(answers, *answer)


if __name__ == "__main__":
    main()
