"""`triform serve`"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from triform.cli.device_options import add_place_options
from triform.cli.draft_and_cache_options import chosen_draft, chosen_prefix_folder
from triform.cli.index_store import read_stored_index, store_option
from triform.cli.weights_option import chosen_weights
from triform.errors import TriformError
from triform.hints import Hint


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; other than loopback needs a key."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one.")
@click.option(
    "--api-key",
    "keys",
    multiple=True,
    envvar="TRIFORM_API_KEY",
    help="A key that clients must send; browsers sign in with it.",
)
@click.option("--api-key-file", "key_files", multiple=True, help="A file with keys, one per line.")
@click.option("--allow-host", "hosts", multiple=True, help="A host name requests may be addressed to; * for any.")
@click.option(
    "--cors", "origins", multiple=True, help="An origin whose pages may send requests, for example https://example.org."
)
@click.option("--index", "indexes", multiple=True, metavar="NAME=FOLDER", help="An index to search in.")
@store_option
@click.option(
    "--adapter", "adapters", multiple=True, metavar="NAME=FOLDER", help="A LoRA adapter of MODEL, as a model beside it."
)
@click.option("--limit", "limits", multiple=True, metavar="NAME=NUMBER", help="Change a bound; --check lists them.")
@click.option("--memory", help="Memory the service may use, for example 4GB; default: all of this machine.")
@add_place_options
@click.option("--check", is_flag=True, help="Check everything and print the plan, without starting.")
@click.option("--json", "as_json", is_flag=True, help="With --check: print the plan as JSON.")
def serve(models: tuple[str, ...], check: bool, as_json: bool, **given: Any) -> int:
    """Serve models over HTTP: OpenAI's routes, and every task the models can do.

    MODEL is a folder, a name of `triform models`, or NAME=FOLDER. The page is at http://127.0.0.1:8000/, the
    documentation at /docs.

    \b
    Examples:
      triform serve smollm2 minilm
      triform serve chat=models/smollm2 --limit rows=32 --limit queue=128
      triform serve smollm2 --host 0.0.0.0 --api-key-file keys.txt --allow-host models.example.org
      triform serve models/large --draft models/small
      triform serve smollm2 minilm --device cuda:0 --device minilm=cpu --dtype smollm2=bfloat16
      triform serve smollm2 --check
    """
    from triform.serve.http import auth
    from triform.serve.worker.memory_plan import check_fits, find_adapters, find_sources, plan_memory
    from triform.serve.worker.served_indexes import check_owners, describe_index, describe_stored_index

    bounds = parse_limits(given["limits"])
    keys = [*given["keys"], *(key for file in given["key_files"] for key in auth.read_keys(file))]
    access = auth.make_access(host=given["host"], keys=keys, hosts=given["hosts"], origins=given["origins"])
    places = {"devices": given["devices"], "dtypes": given["dtypes"]}
    found = find_sources(models, weights=chosen_weights(), draft=chosen_draft(), **places)
    found += find_adapters(given["adapters"], found)
    store = given["store"]
    indexes = dict(split_name(one, store) for one in given["indexes"])
    told = [
        describe_index(name, Path(place))
        if store is None
        else describe_stored_index(name, read_stored_index(place, store))
        for name, place in indexes.items()
    ]
    most = parse_amount(given["memory"])
    planned = plan_memory(found, limits=bounds, indexes=told, most=most)
    if check:
        show(planned, bounds, as_json=as_json)
    elif not as_json:
        Console(stderr=True).print(planned)
    check_fits(found, limits=bounds, indexes=told, most=most)
    if check:
        check_owners(told, (one.load() for one in found if one.spec.form == "encoder"))
        return 0
    opened = {name: partial(read_stored_index, place, store) for name, place in indexes.items()}
    return start(found, opened, bounds, access, host=given["host"], port=given["port"])


def start(
    found: Any, indexes: Mapping[str, Callable[[], Any]], bounds: Any, access: Any, *, host: str, port: int
) -> int:
    """Binds the socket, loads indexes and serves until a signal; returns the exit code."""
    # Weights on huge pages, where the platform has them: read faster at each step, made slower once. PyTorch looks when
    # it makes its first tensor.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from triform.cli.ps import running_folder
    from triform.serve.process import bind_socket, run_service
    from triform.serve.running import note_running
    from triform.serve.worker.memory_plan import load_sources
    from triform.serve.worker.service import Service

    listening = bind_socket(host, port)
    service = Service(
        load_sources(found),
        indexes={name: read() for name, read in indexes.items()},
        limits=bounds,
        prefix_folder=chosen_prefix_folder(),
    )
    name = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}"
    click.echo(f"{address}/ is the page, {address}/docs the API; Ctrl-C ends it", err=True)
    with note_running(running_folder(), address=address, models=list(service.models)):
        return run_service(service, access=access, listening=listening)


def parse_limits(given: tuple[str, ...]) -> Any:
    """The limits of `--limit NAME=VALUE`, checked."""
    from triform.errors import UnknownName
    from triform.serve.http.limits import Limits
    from triform.setting_values import convert, parse_value

    values: dict[str, object] = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in Limits.__struct_fields__:
            raise UnknownName("limit", name, Limits.__struct_fields__)
        values[name] = parse_value(Limits, name, value)
    return convert(Limits, values)


def split_name(given: str, store: str | None) -> tuple[str, str]:
    """NAME and FOLDER of `--index NAME=FOLDER`; with a store the index's name there."""
    name, equals, place = given.partition("=")
    if not equals or not name or (store is None and not Path(place).is_dir()):
        raise TriformError(
            f"--index {given}: use NAME=FOLDER; make the folder with: {Hint.INDEX.format(folder='FOLDER')}"
        )
    return name, place


def parse_amount(given: str | None) -> int | None:
    from triform.costs.fit_memory import parse_bytes

    return None if given is None else parse_bytes(given)


def show(planned: Any, bounds: Any, *, as_json: bool) -> None:
    """The plan, the bounds and the routes."""
    import msgspec

    from triform.serve.http.limits import LIMIT_HELP
    from triform.serve.routes import ROUTES

    if as_json:
        said = msgspec.to_builtins(planned) | {"total": planned.total, "fits": planned.fits}
        routes = [f"{route.method} {route.path}" for route in ROUTES]
        click.echo(msgspec.json.encode(said | {"limits": bounds, "routes": routes}).decode())
        return
    console = Console()
    console.print(planned)
    limits = Table("bound", title="bounds (--limit NAME=NUMBER)")
    limits.add_column("value", justify="right")
    limits.add_column("at most")
    for name in bounds.__struct_fields__:
        limits.add_row(name, f"{getattr(bounds, name):,}", LIMIT_HELP[name])
    routes_table = Table("route", "what it does", title="routes")
    for route in ROUTES:
        routes_table.add_row(f"{route.method} {route.path}", route.says)
    console.print(limits)
    console.print(routes_table)
