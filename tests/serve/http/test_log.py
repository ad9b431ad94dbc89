"""A log that cannot be written fails nobody, and says so once it can be written again."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

from served_models import decoder, run, serving

from triform.serve.http.log import Log


class Disk(io.StringIO):
    """Full until it is told otherwise."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_fails_no_request() -> None:
    disk = Disk()

    async def ask() -> list[int]:
        async with serving({"cat": decoder()}) as (service, client):
            service.log = Log(disk)
            body = {"model": "cat", "prompt": "the cat", "max_tokens": 2}
            return [(await client.post("/v1/completions", json=body)).status_code for _ in range(3)]

    assert run(ask()) == [200, 200, 200]


def test_failed_writes_are_counted_and_told() -> None:
    disk = Disk()
    log = Log(disk)
    log("one")
    log("two")
    disk.full = False
    log("three")
    log("four")
    lines = [json.loads(line) for line in disk.getvalue().split("\n") if line]
    assert [line["event"] for line in lines] == ["log interrupted", "three", "four"]
    assert lines[0]["failed_writes"] == 2


# What libraries write to standard error goes on being read while nothing of it can be written, and afterwards too.
WRITING = """
import os, resource, sys
from triform.serve.http.log import Log, redirect_stderr
log, (soft, hard) = Log(), resource.getrlimit(resource.RLIMIT_FSIZE)
with redirect_stderr(log):
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    for _ in range(40):
        os.write(2, b"x" * 8191 + b"\\n")  # more than a pipe holds
        log("unwritten")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log("written")
"""


def test_standard_error_is_read_on_while_the_disk_is_full(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as out:
        subprocess.run([sys.executable, "-c", WRITING], stderr=out, env=dict(os.environ), timeout=60, check=True)
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().split("\n") if line]
    assert "written" in events
    assert "unwritten" not in events
    assert events.count("log interrupted") == 1
