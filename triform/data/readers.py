"""The one door to data: rows of the kind that is asked for, from files of any format, in constant memory.

    for row in read("train.csv", kind=Labelled): ...

A damaged row comes as a `Bad` in its place, so that it can be skipped and counted; a file that cannot be read at all is
a `DataError`. Refuses to know tokens, tasks and order.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple

from triform.data.columns import Ask, Layout, asked, id_of
from triform.data.input_paths import Paths, Source, name_paths, sources
from triform.data.line_reader import DataError, Fault, Unit
from triform.data.rows import Bad, R

AS_NAMED = Layout()  # files whose names and headers tell what they hold


class Placed(NamedTuple, Generic[R]):
    """A row and where it stands."""

    file: str
    line: int
    row: R
    unit: Unit
    id: str = ""  # the row's own, where it has one


def read(paths: Paths, *, kind: type[R], layout: Layout = AS_NAMED) -> Iterator[R | Bad]:
    """Rows in the order of the files; of a folder, those to train on.

    `layout` says what is not called by a usual name: read("a.tsv", kind=Labelled, layout=Layout({"text": "phrase"})).
    """
    found = placed(paths, kind=kind, layout=layout)
    return (each.row if isinstance(each, Placed) else each for each in found)


def placed(paths: Paths, *, kind: type[R], layout: Layout = AS_NAMED) -> Iterator[Placed[R] | Bad]:
    """Rows with their places."""
    return _judged(scan(paths, kind=kind, layout=layout), kind=kind, paths=paths)


def scan(paths: Paths, *, kind: type[R], layout: Layout = AS_NAMED) -> Iterator[Placed[R] | Bad]:
    """Rows with their places, however few and unequal they are: for linting."""
    return _rows_of(sources(paths, kind=kind, format=layout.format), asked(kind, layout), kind)


def _rows_of(found: tuple[Source, ...], ask: Ask, kind: type[R]) -> Iterator[Placed[R] | Bad]:
    for source in found:
        file, unit = str(source.files[0]), source.format.unit
        for line, fields in source.format.read(source.files, ask):
            try:
                if isinstance(fields, Fault):
                    raise fields
                yield Placed(file, line, kind.of(fields), unit, id_of(fields))
            except Fault as fault:
                own_id = "" if isinstance(fields, Fault) else id_of(fields)
                yield Bad(file, line, fault.kind, fault.detail, unit, own_id)


def _judged(found: Iterator[Placed[R] | Bad], *, kind: type[R], paths: Paths) -> Iterator[Placed[R] | Bad]:
    """Parallel files that are not, and files that hold no row at all, are refused."""
    good, problem = 0, None
    for each in found:
        if isinstance(each, Placed):
            good += 1
        elif each.kind == "unequal files":
            raise DataError(f"{each.detail}; parallel files need a line for a line")
        else:
            problem = problem or each
        yield each
    if not good:
        why = f"; the first problem is {problem}" if problem else ": there is nothing in it"
        raise DataError(f"no {kind.__name__} row in {name_paths(paths)}{why}")
