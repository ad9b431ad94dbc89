"""`--device` and `--dtype`, of every command that runs a model."""

from collections.abc import Callable
from typing import Any

import click

from triform.errors import UnknownName

COMPUTE_DTYPES = ("float32", "bfloat16", "float16")
DEVICE_NAME, DTYPE_NAME = "triform.cli.device", "triform.cli.dtype"  # in click's context


def choose(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[f"triform.cli.{option.name}"] = value


def choose_dtype(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        check_dtype(value)
    choose(context, option, value)


def check_dtype(name: str) -> None:
    if name not in COMPUTE_DTYPES:
        raise UnknownName("dtype", name, COMPUTE_DTYPES)


def check_dtypes(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Of DTYPE or NAME=DTYPE."""
    for value in values:
        check_dtype(value.rpartition("=")[2])
    return values


def chosen_device() -> str | None:
    """What was chosen for the command that runs."""
    return find_chosen(DEVICE_NAME)


def chosen_dtype() -> str | None:
    """What was chosen for the command that runs."""
    return find_chosen(DTYPE_NAME)


def find_chosen(name: str) -> str | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(name)


DEVICE_HELP = "Where to compute: cpu (the default), cuda, cuda:1, mps, or auto (a GPU where there is one)."
DTYPE_HELP = f"Compute in {', '.join(COMPUTE_DTYPES)}; default: float32 on the CPU, as the files have it on a GPU."
DEVICE = click.Option(["--device"], metavar="DEVICE", expose_value=False, callback=choose, help=DEVICE_HELP)
DTYPE = click.Option(["--dtype"], metavar="DTYPE", expose_value=False, callback=choose_dtype, help=DTYPE_HELP)


def add_place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for several models: `--device cuda --device minilm=cpu`."""
    device = click.option(
        "--device", "devices", multiple=True, metavar="[NAME=]DEVICE", help=f"{DEVICE_HELP} NAME=…: of one model."
    )
    dtype = click.option(
        "--dtype",
        "dtypes",
        multiple=True,
        metavar="[NAME=]DTYPE",
        callback=check_dtypes,
        help=f"{DTYPE_HELP} NAME=…: of one model.",
    )
    return device(dtype(command))
