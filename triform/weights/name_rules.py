"""Name tables: where each of our tensors stands in a released file.

A rule is a view of our tensor with the shape it has in the file. Loading copies into the view, exporting copies out of
it: a rule is its own inverse, and both directions read the same table. `N` stands for the number of a block.
Refuses to know files and configs.
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
    """Ours is theirs; where there are several of theirs, they stand one below another in ours."""

    ours: str
    theirs: tuple[str, ...]
    turned: bool = False
    as_row: bool = False


class Twin(NamedTuple):
    """A second name for the same tensor: may be there or not, must be equal where it is."""

    ours: str
    theirs: str


class Ignore(NamedTuple):
    """Names a file may hold that say nothing we need."""

    theirs: tuple[str, ...]


Rule: TypeAlias = Row | Twin | Ignore


def same(ours: str, theirs: str) -> Row:
    return Row(ours, (theirs,))


def transpose(ours: str, theirs: str) -> Row:
    """[in, out] in the file"""
    return Row(ours, (theirs,), turned=True)


def stack(ours: str, theirs: str) -> Row:
    """`self.{query,key,value}`: three matrices in the file, one below another in ours"""
    return Row(ours, braces(theirs))


def row(ours: str, theirs: str) -> Row:
    """[1, V] in the file"""
    return Row(ours, (theirs,), as_row=True)


def twin(ours: str, theirs: str) -> Twin:
    return Twin(ours, theirs)


def ignore(theirs: str) -> Ignore:
    return Ignore(tuple(_numberless(name) for name in braces(theirs)))


def under(prefix: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The same rules where the file's names stand below a prefix."""

    def below(rule: Rule) -> Rule:
        if isinstance(rule, Twin):
            return rule._replace(theirs=prefix + rule.theirs)
        return rule._replace(theirs=tuple(prefix + name for name in rule.theirs))

    return tuple(below(rule) for rule in rules)


def braces(pattern: str) -> tuple[str, ...]:
    """a.{b,c} → a.b, a.c"""
    found = _BRACES.search(pattern)
    if found is None:
        return (pattern,)
    return tuple(pattern[: found.start()] + each + pattern[found.end() :] for each in found[1].split(","))


def _numberless(name: str) -> str:
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
        """The file's tensor copied into its piece of ours: the view turned round, as torch copies it fast."""
        piece = ours[self.first : self.last]
        return piece.copy_(theirs.T if self.turned else theirs.view(piece.shape))


class Table:
    """The rules of one architecture, found by our path."""

    def __init__(self, rules: Iterable[Rule], *, respell: Callable[[str], str] = str) -> None:
        every = list(rules)
        self._rows = {rule.ours: rule for rule in every if isinstance(rule, Row)}
        self._twins = [rule for rule in every if isinstance(rule, Twin)]
        self._ignored = {respell(name) for rule in every if isinstance(rule, Ignore) for name in rule.theirs}
        self._respell = respell

    def ignores(self, name: str) -> bool:
        return _numberless(name) in self._ignored

    def parts(self, spec: ModelSpec) -> tuple[Part, ...]:
        """Every tensor of the model as the file holds it."""
        parts = [part for entry in inventory(spec).values() for part in self._of(entry, spec)]
        claimed = {part.name for part in parts}
        twins = [(twin.ours, self._respell(twin.theirs)) for twin in self._twins]
        return tuple(
            part._replace(
                names=(part.name, *(name for ours, name in twins if ours == part.path and name not in claimed))
            )
            for part in parts
        )

    def _of(self, entry: Entry, spec: ModelSpec) -> Iterator[Part]:
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
            raise WeightsError(f"this architecture has no place for {path}")
        return self._rows[module], dot + ending


def _shape(shape: tuple[int, ...], *, turned: bool, as_row: bool) -> tuple[int, ...]:
    if turned:
        return shape[::-1]
    return (1, *shape) if as_row else shape


def shares(entry: Entry, spec: ModelSpec, count: int) -> tuple[int, ...]:
    """How the rows of a stacked tensor are shared out: evenly, but q, k and v by their heads."""
    rows = entry.shape[0]
    if count == 3:
        a = spec.stacks[entry.path.split(".", 1)[0]].attention
        return (a.heads * a.head_width, a.kv_heads * a.head_width, a.kv_heads * a.head_width)
    return (rows // count,) * count
