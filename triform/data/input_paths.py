"""From what a person names to the files that are read: one file, several, a folder, `train.en-de` for two.

Refuses to read rows: of a file whose name does not tell its format, only its first bytes are looked at.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from triform.data.formats import PARALLEL, Format, ending, format_named, format_of, formats_of, sniff, use
from triform.data.line_reader import DataError
from triform.data.rows import Pair, Row
from triform.errors import closest

Paths: TypeAlias = str | Path | Sequence[str | Path]

TWO_LANGUAGES = re.compile(r"(?P<stem>.+)\.(?P<source>[^.-]+)-(?P<target>[^.-]+)")
SPLIT_NAMES = {
    "train": re.compile(r"(?<![a-z])train(ing)?(?![a-z])"),
    "valid": re.compile(r"(?<![a-z])(valid|validation|val|dev)(?![a-z])"),
    "test": re.compile(r"(?<![a-z])test(?![a-z])"),
}
NOT_DATA = ("readme", "license", "licence", "source", "notice", "changelog", "copying")  # texts about a folder's data


class Source(NamedTuple):
    """One file, or two side by side, and how to read it."""

    files: tuple[Path, ...]
    format: Format


class Splits(NamedTuple):
    """The files of a folder by what their names say they are for."""

    train: tuple[Path, ...]
    valid: tuple[Path, ...]
    test: tuple[Path, ...]


def name_paths(paths: Paths) -> str:
    return str(paths) if isinstance(paths, str | Path) else ", ".join(map(str, paths))


def sources(paths: Paths, *, kind: type[Row], format: str | None = None) -> tuple[Source, ...]:
    """What to read, in order. Two files that cannot hold pairs alone are one pair of parallel files."""
    named = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not named:
        raise DataError("no files were named")
    lone = formats_of(Pair)
    if (
        format is None
        and kind is Pair
        and len(named) == 2
        and not any(path.is_dir() or ending(path) in lone for path in named)
    ):
        return (Source(tuple(map(_existing, named)), PARALLEL),)
    return tuple(source for path in named for source in _sources_of(path, kind, format))


def splits(folder: str | Path, *, kind: type[Row], format: str | None = None) -> Splits:
    """Files called train, valid (or validation, val, dev) and test; those with none of these names are for training."""
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a folder")
    files = [path for path in sorted(Path(folder).iterdir()) if _is_data(path, kind, format)]
    by_name = {name: [path for path in files if usual.search(path.name.lower())] for name, usual in SPLIT_NAMES.items()}
    train = by_name["train"] or [path for path in files if path not in by_name["valid"] + by_name["test"]]
    return Splits(tuple(train), tuple(by_name["valid"]), tuple(by_name["test"]))


def _is_data(path: Path, kind: type[Row], format: str | None) -> bool:
    """No text about the data; its ending is one of the format's, or it has none and its content is."""
    if not path.is_file() or path.name.split(".")[0].lower() in NOT_DATA:
        return False
    if format is not None:
        return ending(path) in ("", *format_named(format, kind).endings)
    return ending(path) in formats_of(kind) or (not ending(path) and sniff(path, kind) is not None)


def _sources_of(path: Path, kind: type[Row], format: str | None) -> list[Source]:
    if path.is_dir():
        if train := splits(path, kind=kind, format=format).train:
            return [Source((file,), format_of(file, kind, format)) for file in train]
        way_out = _direction(path, kind) or use(kind)
        raise DataError(f"the folder {path} has no {kind.__name__} rows to train on; {way_out}")
    if not path.exists() and kind is Pair and (named := TWO_LANGUAGES.fullmatch(path.name)):
        sides = (path.with_name(f"{named['stem']}.{named[side]}") for side in ("source", "target"))
        return [Source(tuple(map(_existing, sides)), PARALLEL)]
    found = _existing(path)
    return [Source((found,), format_of(found, kind, format))]


def _existing(path: Path) -> Path:
    """The file, or its packed twin."""
    for found in (path, path.with_name(path.name + ".gz")):
        if found.is_file():
            return found
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    near = closest(path.name, beside)
    raise DataError(f"there is no file {path}" + ("" if near is None else f"; did you mean {near}?"))


def _direction(folder: Path, kind: type[Row]) -> str:
    """Parallel files do not say which side is the source: the person must."""
    names = sorted(path.name.removesuffix(".gz") for path in folder.iterdir())
    sides = [name.rpartition(".") for name in names if SPLIT_NAMES["train"].search(name)]
    if kind is not Pair or len(sides) < 2 or sides[0][0] != sides[1][0]:
        return ""
    return f"of its parallel files, name the direction: {folder}/{sides[0][0]}.{sides[0][2]}-{sides[1][2]}"
