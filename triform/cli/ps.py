"""`triform ps`"""

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.hints import Hint


def running_folder() -> Path:
    from triform.weights.model_store import home_folder

    return home_folder() / "running"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per service.")
def ps(as_json: bool) -> None:
    """List the services that run on this machine: process, address, models, since when.

    \b
    Examples:
      triform ps
      triform ps --json | jq -r '.[].address'
    """
    import msgspec

    from triform.serve.running import list_running

    found = list_running(running_folder())
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    if not found:
        click.echo(f"no service runs here; start one with: {Hint.SERVE}")
        return
    table = Table("process", "address", "models", "running for")
    for one in found:
        hours, seconds = divmod(int(time.time() - one.began), 3600)
        table.add_row(str(one.pid), one.address, Text(", ".join(one.models)), f"{hours} h {seconds // 60} min")
    Console().print(table)
