"""`--store`, of every command that works with an index: in PostgreSQL instead of a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from triform.tasks.vector_index import Index, IndexStore

F = TypeVar("F", bound=Callable[..., Any])


def store_option(command: F) -> F:
    """Adds `--store`."""
    return click.option(
        "--store",
        metavar="URL",
        help="The index is in PostgreSQL with pgvector: postgresql://USER@HOST/DATABASE; INDEX is its name there.",
    )(command)


def choose_store(index: str, store: str | None) -> "IndexStore":
    """Where an index is kept: a folder, or by its name in a database."""
    from triform.tasks.vector_index import FolderStore

    if store is None:
        return FolderStore(Path(index))
    from triform.tasks.postgres_store import PostgresStore

    return PostgresStore(store, index)


def read_stored_index(index: str, store: str | None) -> "Index":
    """The index in a folder, or by its name in a database."""
    from triform.tasks.vector_index import read_index

    if store is None:
        return read_index(index)
    from triform.tasks.postgres_store import PostgresStore

    return PostgresStore(store, index).open()


def identify_index(index: str, store: str | None) -> str:
    """A hash of what the index holds now, for answers that are resumed."""
    from triform.files.safe_folder import SafeFolder
    from triform.weights.model_hash import digest, hash_files

    if store is None:
        return hash_files(SafeFolder(index))
    return digest({file: known.sha256 for file, known in read_stored_index(index, store).list_files().items()})
