"""A walk through a stack, and the row of the cost table that one operation of it makes.

Letters, the lecture's where it has one: b batch, n positions, m positions of the source, d width, h heads (the lecture
writes m), g key/value heads, k head width, f feed-forward width, L layers, V vocabulary; c tokens written one by one,
each seeing s positions on average. Where heads share the width evenly, h·k = g·k = d.

Two conventions, the same in every row. FLOPs are those of matrix products, a multiply-add being 2: scores that a mask
throws away are computed and counted (`useful` leaves them out), element-wise steps count 0, as in torch's counter.
Bytes: an operation reads its inputs and weights once and writes its output once; attention runs in one kernel, so the
scores are never written. A backward pass makes two products of each one: twice the FLOPs, twice the bytes.

Refuses to know torch, machines, and which operations there are (`cost_rows.py`).
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

import msgspec

from triform.parameters import inventory
from triform.spec import Buckets, ModelSpec, StackSpec

Sizes: TypeAlias = Mapping[str, int | Fraction]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One row: the lecture's O(), the exact formula of the forward pass, and the numbers."""

    stack: str
    name: str
    path: str  # of the modules that do it; `*` is every layer
    moved: int  # bytes
    lecture: str = ""
    lecture_io: str = ""
    formula: str = ""
    forward: int = 0  # FLOPs
    backward: int = 0  # FLOPs
    useful: int = 0  # FLOPs of both, without the scores that a mask throws away
    parameters: int = 0
    kept: int = 0  # bytes that autograd keeps for the backward pass

    @property
    def flops(self) -> int:
        return self.forward + self.backward

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.moved if self.moved else 0.0


class Orders(NamedTuple):
    """The lecture's two tables: a whole text at once, and one token with a cache; FLOPs and memory access."""

    whole: str = ""
    whole_io: str = ""
    step: str = ""
    step_io: str = ""


# What the lecture leaves out stays empty, the keys and values of the source among it.
LECTURE: dict[str, Orders] = {
    "QKV projection": Orders("O(bnd²)", "O(2bnd + d²)", "O(bd²)", "O(2bd + d²)"),
    "scores": Orders("O(bn²d)", "O(2bnd + bhn²)", "O(bnd)", "O(bhn + bnd + bd)"),
    "weighted values": Orders("O(bn²d)", "O(2bnd + bhn²)", "O(bnd)", "O(bhn + bnd + bd)"),
    "output projection": Orders("O(bnd²)", "O(2bnd + d²)", "O(bd²)", "O(2bd + d²)"),
    "cross scores": Orders("O(bnmd)", step="O(bmd)"),
    "cross values": Orders("O(bnmd)", step="O(bmd)"),
    "feed-forward": Orders("O(16bnd²)", "O(2bnd + 8d²)", "O(16bd²)", "O(2bd + 8d²)"),
    "total": Orders("O(bnd² + bn²d)", "O(bnd + bhn² + d²)", "O(bd² + bnd)", "O(bhn + bnd + d²)"),
    "total of a pair": Orders("O(n²d + nd² + m²d + md² + nmd)"),
}


class Walk(NamedTuple):
    """A way through one stack: all positions at once, one token, or c tokens one by one."""

    spec: ModelSpec
    side: str  # encoder or decoder
    sizes: Sizes
    new: str  # the letter of the positions computed: n or m; "1" for one token; c for tokens written one by one
    seen: str  # the letter of the positions that each of them meets: n, m or s
    number: int  # bytes
    training: bool
    cached: bool = False
    passes: int = 1
    allowed: tuple[int, int] | None = None  # the mask lets the first query see so many positions, the last so many

    @property
    def stack(self) -> StackSpec:
        return self.spec.stacks[self.side]

    @property
    def cross(self) -> bool:
        return self.side == "decoder" and self.spec.encoder is not None

    @property
    def last(self) -> bool:
        """The head reads this stack."""
        return self.side == list(self.spec.stacks)[-1]

    @property
    def label(self) -> str:
        return f"{self.side}, step by step" if self.new == "c" else self.side

    def size(self, letter: str) -> int | Fraction:
        return self.sizes[letter] if letter in self.sizes else int(letter)

    @property
    def rows(self) -> int:
        """Positions computed, in all texts and all passes."""
        return int(self.size("b") * self.size(self.new))

    @property
    def keys(self) -> int:
        """Positions met, in all texts and all passes: what is read of the keys."""
        return int(self.passes * self.size("b") * self.size(self.seen))

    @property
    def scores(self) -> int:
        """Scores of one head of one text, in all passes."""
        return int(self.size(self.new) * self.size(self.seen))

    @property
    def useful(self) -> Fraction:
        """The share of the scores that the mask lets through."""
        if self.allowed is None:
            return Fraction(1)
        return Fraction(looks(*self.allowed, window=self.stack.attention.window), self.scores)

    @property
    def written_out(self) -> bool:
        """The kernel cannot train what is added to the scores: T5 in training writes its attention out."""
        return self.training and isinstance(self.spec.position, Buckets)

    def lecture(self, name: str) -> tuple[str, str]:
        order = LECTURE.get(name, Orders())
        if self.new == "c":
            return order.step and f"c · {order.step}", order.step_io and f"c · {order.step_io}"
        if self.new == "m":
            return order.whole.replace("n", "m"), order.whole_io.replace("n", "m")
        return (order.step, order.step_io) if self.new == "1" else (order.whole, order.whole_io)

    def product(self, formula: str) -> tuple[str, int]:
        """The product of the letters, as text and as number; N are the new positions, S those seen."""
        letters = [{"N": self.new, "S": self.seen}.get(letter, letter) for letter in formula.split()]
        value = prod(self.size(letter) for letter in letters)
        text = "·".join(letter for letter in letters if letter != "1")
        return text.replace("n·n", "n²").replace("m·m", "m²").replace("d·d", "d²"), int(value)

    def row(
        self,
        name: str,
        path: str,
        *,
        formula: str = "",
        activations: int = 0,
        weights: int = 0,
        backward: int = 2,
    ) -> Operation:
        """`activations`: numbers read and written; `weights`: read in each pass; `backward`: products for each one."""
        lecture, lecture_io = self.lecture(name)
        text, forward = self.product(formula) if formula else ("", 0)
        back = backward * forward if self.training else 0
        return Operation(
            stack=self.label,
            name=name,
            path=path,
            lecture=lecture,
            lecture_io=lecture_io,
            formula=text,
            forward=forward,
            backward=back,
            useful=forward + back,
            moved=(activations + self.passes * weights) * self.number * (3 if self.training else 1),
            parameters=numbers(self.spec, f"{path}.*", trained=True),
        )


def looks(first: int, last: int, *, window: int | None) -> int:
    """min(first, window) + … + min(last, window): pairs of query and key that a mask lets through."""
    if window is None or last <= window:
        return (first + last) * (last - first + 1) // 2
    if first >= window:
        return window * (last - first + 1)
    return looks(first, window, window=None) + window * (last - window)


@lru_cache(maxsize=4096)
def numbers(spec: ModelSpec, pattern: str, *, trained: bool = False) -> int:
    """How many numbers the tensors of this pattern hold; only what training changes, if `trained`."""
    found = (entry for entry in inventory(spec).values() if fnmatchcase(entry.path, pattern))
    return sum(entry.size for entry in found if entry.trained or not trained)
