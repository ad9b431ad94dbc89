"""One folder and nothing outside it: the rule every room follows when it opens a model's files.

A file is opened only where it really lies inside its folder, links followed. One exception: in a snapshot of a hub
cache (`…/snapshots/<revision>`) the files are links into `…/blobs`, so there a link may lead to a file that lies
directly in those blobs. Everything else that leads out is refused.
"""

from pathlib import Path

from triform.errors import TriformError


class LeadsOut(TriformError):
    """A file that is not where it seems to be."""


def really(folder: Path, name: str) -> Path:
    """Where `folder/name` lies when all links are followed; OSError where it does not exist."""
    root = folder.resolve(strict=True)
    real = (root / name).resolve(strict=True)
    blobs = root.parent.parent / "blobs" if root.parent.name == "snapshots" else None
    if not real.is_relative_to(root) and real.parent != blobs:
        raise LeadsOut(f"{name!r} leads out of {root}; copy the file itself into the folder")
    return real
