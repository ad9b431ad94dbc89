"""Name tables: the name of each of our tensors in a released file.

A rule is a view of our tensor with the shape it has in the file. Loading copies into the view, exporting copies out of
it, so both directions use the same table. `N` stands for the number of a block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from triform.files.errors import WeightsError
from triform.parameters import Entry, inventory
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = re.compile(r"\.blocks\.(\d+)\.")
_NUMBER = re.compile(r"\.\d+(?=\.)")
_BRACES = re.compile(r"\{(.*)\}")


class Row(NamedTuple):
    """Our tensor is theirs; where there are several of theirs, they are stacked as rows of ours."""

    ours: str
    theirs: tuple[str, ...]
    turned: bool = False
    as_row: bool = False


class Twin(NamedTuple):
    """A second name of the same tensor: may be missing, must be equal where it is there."""

    ours: str
    theirs: str


class Ignore(NamedTuple):
    """Tensors of a file that are not needed."""

    theirs: tuple[str, ...]


Rule: TypeAlias = Row | Twin | Ignore


def same(ours: str, theirs: str) -> Row:
    return Row(ours, (theirs,))


def transpose(ours: str, theirs: str) -> Row:
    """[in, out] in the file"""
    return Row(ours, (theirs,), turned=True)


def stack(ours: str, theirs: str) -> Row:
    """`self.{query,key,value}`: three matrices in the file, stacked as rows of ours"""
    return Row(ours, braces(theirs))


def row(ours: str, theirs: str) -> Row:
    """[1, V] in the file"""
    return Row(ours, (theirs,), as_row=True)


def twin(ours: str, theirs: str) -> Twin:
    return Twin(ours, theirs)


def ignore(theirs: str) -> Ignore:
    return Ignore(tuple(_replace_numbers(name) for name in braces(theirs)))


def under(prefix: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The same rules with a prefix before the file's names."""

    def add(rule: Rule) -> Rule:
        if isinstance(rule, Twin):
            return rule._replace(theirs=prefix + rule.theirs)
        return rule._replace(theirs=tuple(prefix + name for name in rule.theirs))

    return tuple(map(add, rules))


def braces(pattern: str) -> tuple[str, ...]:
    """a.{b,c} → a.b, a.c"""
    match = _BRACES.search(pattern)
    if match is None:
        return (pattern,)
    return tuple(pattern[: match.start()] + choice + pattern[match.end() :] for choice in match[1].split(","))


def _replace_numbers(name: str) -> str:
    return _NUMBER.sub(".N", name)


class Part(NamedTuple):
    """A piece of one of our tensors, as a file holds it: rows `first` to `last`, perhaps turned."""

    path: str
    names: tuple[str, ...]  # the first is written; any of them is read; all that are there must be equal
    shape: tuple[int, ...]
    first: int
    last: int
    turned: bool
    as_row: bool

    @property
    def name(self) -> str:
        return self.names[0]

    def view(self, ours: Tensor) -> Tensor:
        """Our tensor as it looks in the file; no copy."""
        piece = ours[self.first : self.last]
        if self.turned:
            return piece.T
        return piece[None] if self.as_row else piece

    def put(self, theirs: Tensor, ours: Tensor) -> Tensor:
        """Copies the file's tensor into its piece of ours; transposed on their side, which torch copies faster."""
        piece = ours[self.first : self.last]
        return piece.copy_(theirs.T if self.turned else theirs.view(piece.shape))


class Table:
    """The rules of one architecture, by our path."""

    def __init__(self, rules: Iterable[Rule], *, respell: Callable[[str], str] = str) -> None:
        every = list(rules)
        self._rows = {rule.ours: rule for rule in every if isinstance(rule, Row)}
        self._twins = [rule for rule in every if isinstance(rule, Twin)]
        self._ignored = {respell(name) for rule in every if isinstance(rule, Ignore) for name in rule.theirs}
        self._respell = respell

    def ignores(self, name: str) -> bool:
        return _replace_numbers(name) in self._ignored

    def parts(self, spec: ModelSpec) -> tuple[Part, ...]:
        """Every tensor of the model as the file holds it."""
        parts = [part for entry in inventory(spec).values() for part in self._parts_of(entry, spec)]
        claimed = {part.name for part in parts}
        twins = [(twin.ours, self._respell(twin.theirs)) for twin in self._twins]
        return tuple(
            part._replace(
                names=(part.name, *(name for ours, name in twins if ours == part.path and name not in claimed))
            )
            for part in parts
        )

    def _parts_of(self, entry: Entry, spec: ModelSpec) -> Iterator[Part]:
        rule, ending = self._find(_BLOCK.sub(".blocks.N.", entry.path))
        block = _BLOCK.search(entry.path)
        first = 0
        for name, count in zip(rule.theirs, shares(entry, spec, len(rule.theirs)), strict=True):
            numbered = name.replace(".N.", f".{block[1]}.") if block else name
            turned = rule.turned and len(entry.shape) == 2
            yield Part(
                path=entry.path,
                names=(self._respell(numbered + ending),),
                shape=_shape((count, *entry.shape[1:]), turned=turned, as_row=rule.as_row),
                first=first,
                last=first + count,
                turned=turned,
                as_row=rule.as_row,
            )
            first += count

    def _find(self, path: str) -> tuple[Row, str]:
        """A rule for the path itself, or for the module it belongs to and then its `.weight` or `.bias`."""
        if path in self._rows:
            return self._rows[path], ""
        module, dot, ending = path.rpartition(".")
        if module not in self._rows:
            raise WeightsError(f"this architecture has no name for {path}")
        return self._rows[module], dot + ending


def _shape(shape: tuple[int, ...], *, turned: bool, as_row: bool) -> tuple[int, ...]:
    if turned:
        return shape[::-1]
    return (1, *shape) if as_row else shape


def shares(entry: Entry, spec: ModelSpec, count: int) -> tuple[int, ...]:
    """Rows of each part of a stacked tensor: equal, but q, k and v by their heads."""
    rows = entry.shape[0]
    if count == 3:
        a = spec.stacks[entry.path.split(".", 1)[0]].attention
        return (a.heads * a.head_width, a.kv_heads * a.head_width, a.kv_heads * a.head_width)
    return (rows // count,) * count
