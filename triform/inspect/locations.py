"""`Location`: where in a network something is read or changed: a module's output, one head of it, some positions.

    decoder.blocks.3             the output of a module, by its path
    L3   L3.feedforward   L3H2   the stream after layer 3, what its feed-forward adds, its head 2 (before W_O)
    encoder.L3H2.q@0,4           the queries of a head of the encoder, at positions 0 and 4; @-1 is the last one

Positions are counted within each text, however texts are batched, packed or cached.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypeAlias, cast

from triform.core.forms import Form
from triform.errors import InputError
from triform.inspect import module_paths

HeadPart: TypeAlias = Literal["output", "q", "k", "v"]

SUBLAYERS = ("attention", "cross", "feedforward")
SHORT = re.compile(
    r"(?:(?P<stack>\w+)\.)?L(?P<layer>\d+)(?:H(?P<head>\d+))?(?P<rest>(?:\.(?:attention|cross|feedforward|q|k|v))*)"
)
INDEXED = re.compile(r"(?P<path>[\w.]+?)\[(?P<head>\d+)\]")
FORMS = "a module path, or in short L3, L3.feedforward, L3H2, L3H2.q, encoder.L3H2, each with positions as @0,4 or @-1"


@dataclass(frozen=True)
class Location:
    """The output of the module at `path`; of one head of it; queries, keys or values that enter an attention kernel."""

    path: str
    head: int | None = None
    positions: tuple[int, ...] | None = None  # None: all
    part: HeadPart = "output"

    def __str__(self) -> str:
        head = "" if self.head is None else f"[{self.head}]"
        part = "" if self.part == "output" else f".{self.part}"
        at = "" if self.positions is None else f"@{','.join(map(str, self.positions))}"
        return f"{self.path}{head}{part}{at}"

    @property
    def is_kernel(self) -> bool:
        """Whether the module's tensors have an axis of heads."""
        return self.path.endswith(".attend")

    @property
    def stack(self) -> str:
        return self.path.split(".", 1)[0]

    @property
    def layer(self) -> int | None:
        """The block it is in, or None."""
        parts = self.path.split(".")
        return int(parts[2]) if parts[1:2] == ["blocks"] and len(parts) > 2 else None


def locate(network: Form, where: "str | Location") -> Location:
    """Parses and checks a location; an error names the nearest right name."""
    if isinstance(where, Location):
        return check_location(network, where)
    name, _, at = where.strip().partition("@")
    positions = parse_positions(at, where) if at else None
    if short := SHORT.fullmatch(name):
        return check_location(network, expand_short(network, short, positions))
    head, path = None, name
    if indexed := INDEXED.fullmatch(name):
        path, head = indexed["path"], int(indexed["head"])
    part: HeadPart = "output"
    if path.endswith((".attend.q", ".attend.k", ".attend.v")):
        path, part = path[:-2], cast(HeadPart, path[-1])
    if head is not None and path.endswith((".attention", ".cross")):
        path += ".f.attend"
    return check_location(network, Location(path, head, positions, part))


def expand_short(network: Form, short: "re.Match[str]", positions: tuple[int, ...] | None) -> Location:
    """`L3H2.q` → the queries of head 2 in `decoder.blocks.3.attention.f.attend`"""
    stack = module_paths.check_stack(network, short["stack"])
    block = module_paths.block_path(network, int(short["layer"]), stack=stack)
    rest = short["rest"].split(".")[1:]
    sublayers, parts = [name for name in rest if name in SUBLAYERS], [name for name in rest if name in "qkv"]
    if len(sublayers) > 1 or len(parts) > 1 or (parts and short["head"] is None):
        raise InputError(f"{short[0]!r} is not a location; write {FORMS}")
    if short["head"] is None:
        return Location(f"{block}.{sublayers[0]}.drop" if sublayers else block, None, positions)
    sublayer = sublayers[0] if sublayers else "attention"
    if sublayer == "feedforward":
        raise InputError(f"{short[0]!r}: a feed-forward has no heads; write L{short['layer']}.feedforward")
    part = cast(HeadPart, parts[0] if parts else "output")
    return Location(f"{block}.{sublayer}.f.attend", int(short["head"]), positions, part)


def parse_positions(text: str, where: str) -> tuple[int, ...]:
    """`0,4` or `2:5` or `-1`"""
    found: list[int] = []
    for piece in text.split(","):
        first, colon, last = piece.strip().partition(":")
        try:
            found += range(int(first or 0), int(last)) if colon else [int(first)]
        except ValueError:
            raise InputError(f"{where!r}: positions are numbers, as @0,4 or @2:5 or @-1, not {text!r}") from None
    if not found:
        raise InputError(f"{where!r} names no position; write them as @0,4 or @2:5 or @-1")
    return tuple(dict.fromkeys(found))


def check_location(network: Form, location: Location) -> Location:
    """The module exists, and so does its head."""
    paths = [path for path, _ in network.named_modules(remove_duplicate=False) if path]
    if location.path not in paths:
        raise InputError(
            f"{location.path!r} is not in this model{suggest(location.path, paths)}; a location is {FORMS}"
        )
    if location.head is not None or location.part != "output":
        if not location.is_kernel:
            raise InputError(
                f"{location.path} has no heads; name one as {next(iter_kernels(paths))}[0], or in short L0H0"
            )
        attention = location.path.removesuffix(".attend")
        if location.head is not None:
            module_paths.check_head(network, attention, location.head)
    return location


def iter_kernels(paths: Iterable[str]) -> Iterator[str]:
    """The attention kernels among these paths."""
    return (path for path in paths if path.endswith(".attend"))


def suggest(path: str, paths: Iterable[str]) -> str:
    near = get_close_matches(path, list(paths), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
