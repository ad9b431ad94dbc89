"""`triform rm`"""

import shutil
from pathlib import Path

import click

from triform.errors import TriformError, UnknownName
from triform.files.locks import find_writer_inside


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="MODEL...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(names: tuple[str, ...], yes: bool) -> None:
    """Remove models from the model store (`triform models` lists them). Folders elsewhere are not touched.

    \b
    Examples:
      triform rm smollm2
      triform rm minilm smollm2 --yes
    """
    from triform.weights.model_store import describe_model

    folders = [find_stored(name) for name in names]
    for folder in folders:
        size = describe_model(folder).bytes
        if not yes and not click.confirm(f"remove {folder} ({size / 2**20:,.0f} MiB)?"):
            click.echo(f"{folder.name} stays")
            continue
        remove_folder(folder)
        click.echo(f"removed {folder.name}, {size / 2**20:,.0f} MiB")


def find_stored(name: str) -> Path:
    """The folder of a stored model; a folder elsewhere is refused."""
    from triform.weights.model_store import folder_of, list_folders, models_folder

    folder = folder_of(name)
    if folder.parent != models_folder() or not folder.is_dir():
        if Path(name).is_dir():
            raise TriformError(f"{name} is a folder of your own, not in {models_folder()}; remove it yourself")
        raise UnknownName("stored model", name, [one.name for one in list_folders()])
    return folder


def remove_folder(folder: Path) -> None:
    """Out of sight in one step, then gone; a folder that is being written to is refused."""
    if writer := find_writer_inside(folder):
        raise TriformError(f"{folder.name} is being written to ({writer}); try again when that has ended")
    hidden = folder.with_name(f".removed-{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    folder.rename(hidden)
    shutil.rmtree(hidden)
