"""Runs the commands of the pages in docs/tasks and writes their output below them: `python docs/run_examples.py`.

The `sh` and `python` blocks of a page run from top to bottom in one empty folder, and what they print on standard
output stands in the `text` block behind them, if there is one. A line that begins with `triform serve` goes on in the
background until the page ends. `--check` writes nothing: it says which command fails.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TASKS = Path(__file__).resolve().parent / "tasks"
BLOCK = re.compile(r"```(sh|python)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", flags=re.S)
MAX_LINES = 40
PORT = 8000
SECONDS = 3600.0  # for one command
ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2")}


class PageRun:
    """One page in one folder, with the services that it has started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "PageRun":
        return self

    def __exit__(self, *_: object) -> None:
        for service in self.services:
            service.terminate()
            service.wait(SECONDS)

    def run_block(self, language: str, text: str) -> str:
        """What the block printed."""
        if language == "python":
            return self.run_command([sys.executable, "-c", text], shown=text)
        printed = ""
        for line in join_lines(text):
            if line.startswith("triform serve") and "--check" not in line:
                self.start_service(line)
            else:
                printed += self.run_command(["bash", "-c", line], shown=line)
        return printed

    def run_command(self, command: list[str], *, shown: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=SECONDS
        )
        if done.returncode or done.stdout.startswith('{"error"'):
            raise SystemExit(f"exit code {done.returncode}: {shown}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start_service(self, line: str) -> None:
        """Returns when the service is ready."""
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                raise SystemExit(f"port {PORT} is in use: the pages need it")
        command = line.split("#")[0].split()
        service = subprocess.Popen(command, cwd=self.folder, env=environment(), stderr=subprocess.DEVNULL)
        self.services.append(service)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and service.poll() is None:
            with (
                suppress(urllib.error.URLError, ConnectionError),
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/ready", timeout=5),
            ):
                return
            time.sleep(0.2)
        raise SystemExit(f"did not get ready: {line}")


def environment() -> dict[str, str]:
    """The commands of this Python come first."""
    return os.environ | ENVIRONMENT | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def join_lines(text: str) -> Iterator[str]:
    """Commands, each with the lines that a backslash joins to it."""
    yield from (line for line in text.replace("\\\n", " ").splitlines() if line.strip())


def shorten(printed: str) -> str:
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    kept = (
        lines if len(lines) <= MAX_LINES else [*lines[: MAX_LINES - 1], f"… ({len(lines) - MAX_LINES + 1} more lines)"]
    )
    return "\n".join(kept) + "\n"


def run_page(text: str) -> str:
    """The page with what its commands printed now."""
    with tempfile.TemporaryDirectory(prefix="triform-docs-") as folder, PageRun(Path(folder)) as page:

        def fill(block: re.Match[str]) -> str:
            printed = page.run_block(block[1], block[2])
            if block[3] is None:
                return block[0]
            return f"```{block[1]}\n{block[2]}```\n\n```text\n{shorten(printed)}```\n"

        return BLOCK.sub(fill, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, default=sorted(TASKS.glob("*.md")))
    parser.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args()
    for page in asked.pages:
        begun = time.monotonic()
        text = run_page(page.read_text(encoding="utf-8"))
        if not asked.check:
            page.write_text(text, encoding="utf-8")
        print(f"{page.name}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
