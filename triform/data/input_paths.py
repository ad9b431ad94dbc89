"""From the paths of a user to the files that are read: one file, several, a folder, `train.en-de` for two.

Reads no rows: only the first bytes of a file whose name does not say its format.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from triform.data.formats import (
    PARALLEL,
    Format,
    describe_formats,
    detect_format,
    find_format,
    find_format_by_key,
    get_ending,
    list_formats,
)
from triform.data.line_reader import DataError
from triform.data.rows import DataRow, PairRow
from triform.errors import find_closest

Paths: TypeAlias = str | Path | Sequence[str | Path]

TWO_LANGUAGES = re.compile(r"(?P<stem>.+)\.(?P<source>[^.-]+)-(?P<target>[^.-]+)")
SPLIT_NAMES = {
    "train": re.compile(r"(?<![a-z])train(ing)?(?![a-z])"),
    "valid": re.compile(r"(?<![a-z])(valid|validation|val|dev)(?![a-z])"),
    "test": re.compile(r"(?<![a-z])test(?![a-z])"),
}
NOT_DATA = (
    "readme",
    "license",
    "licence",
    "source",
    "notice",
    "changelog",
    "copying",
)  # documentation of a folder's data


class InputFiles(NamedTuple):
    """One file, or two parallel ones, and their format."""

    files: tuple[Path, ...]
    format: Format


class Splits(NamedTuple):
    """The files of a folder by their purpose, as their names say it."""

    train: tuple[Path, ...]
    valid: tuple[Path, ...]
    test: tuple[Path, ...]


def name_paths(paths: Paths) -> str:
    return str(paths) if isinstance(paths, str | Path) else ", ".join(map(str, paths))


def find_inputs(paths: Paths, *, kind: type[DataRow], format: str | None = None) -> tuple[InputFiles, ...]:
    """The files to read, in order. Two files that cannot have pairs alone are one pair of parallel files."""
    listed = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not listed:
        raise DataError("no data files were given")
    lone = list_formats(PairRow)
    if (
        format is None
        and kind is PairRow
        and len(listed) == 2
        and not any(path.is_dir() or get_ending(path) in lone for path in listed)
    ):
        return (InputFiles(tuple(map(_find_file, listed)), PARALLEL),)
    return tuple(source for path in listed for source in _find_inputs_at(path, kind, format))


def find_splits(folder: str | Path, *, kind: type[DataRow], format: str | None = None) -> Splits:
    """Files named train, valid (or validation, val, dev) and test; others are for training."""
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a folder")
    files = [path for path in sorted(Path(folder).iterdir()) if _is_data(path, kind, format)]
    by_name = {name: [path for path in files if usual.search(path.name.lower())] for name, usual in SPLIT_NAMES.items()}
    train = by_name["train"] or [path for path in files if path not in by_name["valid"] + by_name["test"]]
    return Splits(tuple(train), tuple(by_name["valid"]), tuple(by_name["test"]))


def _is_data(path: Path, kind: type[DataRow], format: str | None) -> bool:
    """Not documentation; its ending is one of the format, or it has no ending and its content shows the format."""
    if not path.is_file() or path.name.split(".")[0].lower() in NOT_DATA:
        return False
    if format is not None:
        return get_ending(path) in ("", *find_format_by_key(format, kind).endings)
    return get_ending(path) in list_formats(kind) or (not get_ending(path) and detect_format(path, kind) is not None)


def _find_inputs_at(path: Path, kind: type[DataRow], format: str | None) -> list[InputFiles]:
    if path.is_dir():
        if train := find_splits(path, kind=kind, format=format).train:
            return [InputFiles((file,), find_format(file, kind, format)) for file in train]
        advice = _suggest_direction(path, kind) or describe_formats(kind)
        raise DataError(f"the folder {path} has no {kind.title} rows to train on; {advice}")
    if not path.exists() and kind is PairRow and (named := TWO_LANGUAGES.fullmatch(path.name)):
        sides = (path.with_name(f"{named['stem']}.{named[side]}") for side in ("source", "target"))
        return [InputFiles(tuple(map(_find_file, sides)), PARALLEL)]
    found = _find_file(path)
    return [InputFiles((found,), find_format(found, kind, format))]


def _find_file(path: Path) -> Path:
    """The file, or its .gz version."""
    for found in (path, path.with_name(path.name + ".gz")):
        if found.is_file():
            return found
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    near = find_closest(path.name, beside)
    raise DataError(f"there is no file {path}" + ("" if near is None else f"; did you mean {near}?"))


def _suggest_direction(folder: Path, kind: type[DataRow]) -> str:
    """Advice for parallel files: the user must say which side is the source."""
    names = sorted(path.name.removesuffix(".gz") for path in folder.iterdir())
    sides = [name.rpartition(".") for name in names if SPLIT_NAMES["train"].search(name)]
    if kind is not PairRow or len(sides) < 2 or sides[0][0] != sides[1][0]:
        return ""
    return f"of its parallel files, name the direction: {folder}/{sides[0][0]}.{sides[0][2]}-{sides[1][2]}"
