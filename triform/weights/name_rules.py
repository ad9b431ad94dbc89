"""Name tables: the name of each of our tensors in a released file.

A rule is a view of our tensor with the shape it has in the file. Loading copies into the view, exporting copies out of
it, so both directions use the same table. `N` stands for the number of a block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from triform.files.errors import FileError
from triform.parameters import TensorInfo, list_tensors
from triform.spec import AttentionSpec, ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = re.compile(r"\.blocks\.(\d+)\.")
_NUMBER = re.compile(r"\.\d+(?=\.)")
_BRACES = re.compile(r"\{(.*)\}")


class TensorRule(NamedTuple):
    """Our tensor is theirs; where there are several of theirs, they are stacked as rows of ours. `by_head`: theirs has
    q, k and v of the first head, then of the second."""

    ours: str
    theirs: tuple[str, ...]
    turned: bool = False
    as_row: bool = False
    pairs: bool = False
    swapped: bool = False
    by_head: bool = False


class TwinRule(NamedTuple):
    """A second name of the same tensor: may be missing, must be equal where it is there."""

    ours: str
    theirs: str


class IgnoreRule(NamedTuple):
    """Tensors of a file that are not needed."""

    theirs: tuple[str, ...]


Rule: TypeAlias = TensorRule | TwinRule | IgnoreRule


def same(ours: str, theirs: str) -> TensorRule:
    return TensorRule(ours, (theirs,))


def transpose(ours: str, theirs: str) -> TensorRule:
    """[in, out] in the file"""
    return TensorRule(ours, (theirs,), turned=True)


def stack(ours: str, theirs: str) -> TensorRule:
    """`self.{query,key,value}`: three matrices in the file, stacked as rows of ours"""
    return TensorRule(ours, expand_braces(theirs))


def stack_pairs(ours: str, theirs: str) -> TensorRule:
    """The same, where rotary pairs of q and k are neighbours in the file; ours are half a head apart."""
    return TensorRule(ours, expand_braces(theirs), pairs=True)


def swap_halves(ours: str, theirs: str) -> TensorRule:
    """The second half of our rows comes first in the file."""
    return TensorRule(ours, (theirs,), swapped=True)


def interleave(ours: str, theirs: str) -> TensorRule:
    """Rows of the file: q, k and v of head 0, q, k and v of head 1, …"""
    return TensorRule(ours, (theirs,), by_head=True)


def row(ours: str, theirs: str) -> TensorRule:
    """[1, V] in the file"""
    return TensorRule(ours, (theirs,), as_row=True)


def twin(ours: str, theirs: str) -> TwinRule:
    return TwinRule(ours, theirs)


def ignore(theirs: str) -> IgnoreRule:
    return IgnoreRule(tuple(_replace_numbers(name) for name in expand_braces(theirs)))


def in_encoder(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Names of a decoder's tensors for an encoder of the same parts."""

    def move(rule: Rule) -> Rule:
        if isinstance(rule, IgnoreRule):
            return rule
        return rule._replace(ours=rule.ours.replace("decoder.", "encoder.", 1))

    return tuple(map(move, rules))


def add_prefix(prefix: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The same rules with a prefix before the file's names."""

    def add(rule: Rule) -> Rule:
        if isinstance(rule, TwinRule):
            return rule._replace(theirs=prefix + rule.theirs)
        return rule._replace(theirs=tuple(prefix + name for name in rule.theirs))

    return tuple(map(add, rules))


def expand_braces(pattern: str) -> tuple[str, ...]:
    """a.{b,c} → a.b, a.c"""
    match = _BRACES.search(pattern)
    if match is None:
        return (pattern,)
    return tuple(pattern[: match.start()] + choice + pattern[match.end() :] for choice in match[1].split(","))


def _replace_numbers(name: str) -> str:
    return _NUMBER.sub(".N", name)


class TensorPart(NamedTuple):
    """A piece of one of our tensors, as a file holds it: rows `first` to `last`, perhaps turned."""

    path: str
    names: tuple[str, ...]  # the first is written; any of them is read; all that are there must be equal
    shape: tuple[int, ...]
    first: int
    last: int
    turned: bool
    as_row: bool
    pairs: int = 0  # number of rotary pairs per head, where they are neighbours in the file
    swapped: bool = False
    heads: int = 0  # of an interleaved tensor

    @property
    def name(self) -> str:
        return self.names[0]

    def view(self, ours: Tensor) -> Tensor:
        """Our tensor as it looks in the file; a copy only where rows are reordered."""
        piece = ours[self.first : self.last]
        if self.heads:
            return exchange_axes(piece, 3, self.heads)
        if self.pairs:
            return piece.view(-1, 2, self.pairs, *piece.shape[1:]).transpose(1, 2).reshape(piece.shape)
        if self.swapped:
            return piece.roll(len(piece) // 2, 0)
        if self.turned:
            return piece.T
        return piece[None] if self.as_row else piece

    def copy_into(self, theirs: Tensor, ours: Tensor) -> Tensor:
        """Copies the file's tensor into its piece of ours; transposed on their side, which torch copies faster."""
        piece = ours[self.first : self.last]
        return piece.copy_(self.turn(theirs).reshape(piece.shape))

    def turn(self, theirs: Tensor) -> Tensor:
        """The file's tensor with its rows as ours."""
        if self.pairs:
            return theirs.reshape(-1, self.pairs, 2, *theirs.shape[1:]).transpose(1, 2).reshape(theirs.shape)
        if self.swapped:
            return theirs.roll(len(theirs) // 2, 0)
        if self.heads:
            return exchange_axes(theirs, self.heads, 3)
        return theirs.T if self.turned else theirs


def exchange_axes(x: Tensor, first: int, second: int) -> Tensor:
    """Rows in `first` groups of `second` groups, in `second` groups of `first` groups."""
    return x.reshape(first, second, -1, *x.shape[1:]).transpose(0, 1).reshape(x.shape)


class NameTable:
    """The rules of one architecture, by our path."""

    def __init__(self, rules: Iterable[Rule], *, respell: Callable[[str], str] = str) -> None:
        every = list(rules)
        self._rows = {rule.ours: rule for rule in every if isinstance(rule, TensorRule)}
        self._twins = [rule for rule in every if isinstance(rule, TwinRule)]
        self._ignored = {respell(name) for rule in every if isinstance(rule, IgnoreRule) for name in rule.theirs}
        self._respell = respell

    def ignores(self, name: str) -> bool:
        return _replace_numbers(name) in self._ignored

    def parts(self, spec: ModelSpec) -> tuple[TensorPart, ...]:
        """Every tensor of the model as the file holds it."""
        parts = [part for entry in list_tensors(spec).values() for part in self._parts_of(entry, spec)]
        claimed = {part.name for part in parts}
        twins = [(twin.ours, self._respell(twin.theirs)) for twin in self._twins]
        return tuple(
            part._replace(
                names=(part.name, *(name for ours, name in twins if ours == part.path and name not in claimed))
            )
            for part in parts
        )

    def _parts_of(self, entry: TensorInfo, spec: ModelSpec) -> Iterator[TensorPart]:
        rule, ending = self._find(_BLOCK.sub(".blocks.N.", entry.path))
        block = _BLOCK.search(entry.path)
        first, pairs = 0, _head_width(entry, spec) // 2 if rule.pairs else 0
        for at, (name, count) in enumerate(zip(rule.theirs, split_rows(entry, spec, len(rule.theirs)), strict=True)):
            numbered = name.replace(".N.", f".{block[1]}.") if block else name
            turned = rule.turned and len(entry.shape) == 2
            yield TensorPart(
                path=entry.path,
                names=(self._respell(numbered + ending),),
                shape=_shape((count, *entry.shape[1:]), turned=turned, as_row=rule.as_row),
                first=first,
                last=first + count,
                turned=turned,
                as_row=rule.as_row,
                pairs=pairs if at < 2 else 0,  # values are not rotated
                swapped=rule.swapped,
                heads=spec.stacks[entry.path.split(".", 1)[0]].attention.heads if rule.by_head else 0,
            )
            first += count

    def _find(self, path: str) -> tuple[TensorRule, str]:
        """A rule for the path itself, or for the module it belongs to and then its `.weight` or `.bias`."""
        if path in self._rows:
            return self._rows[path], ""
        module, dot, ending = path.rpartition(".")
        if module not in self._rows:
            raise FileError(f"this architecture has no name for {path}")
        return self._rows[module], dot + ending


def _shape(shape: tuple[int, ...], *, turned: bool, as_row: bool) -> tuple[int, ...]:
    if turned:
        return shape[::-1]
    return (1, *shape) if as_row else shape


def _attention(entry: TensorInfo, spec: ModelSpec) -> AttentionSpec:
    return spec.stacks[entry.path.split(".", 1)[0]].attention


def _head_width(entry: TensorInfo, spec: ModelSpec) -> int:
    return _attention(entry, spec).head_width


def split_rows(entry: TensorInfo, spec: ModelSpec, count: int) -> tuple[int, ...]:
    """Rows of each part of a stacked tensor: equal, but q, k and v by their heads."""
    rows = entry.shape[0]
    if count == 3:
        a = _attention(entry, spec)
        return (a.heads * a.head_width, a.kv_heads * a.head_width, a.kv_heads * a.head_width)
    return (rows // count,) * count
