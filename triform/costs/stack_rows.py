"""One pass through a stack, and the row of the cost table that one of its operations makes.

Letters, the lecture's where it has one: b batch, n positions, m positions of the source, d width, h heads (the lecture
writes m), g key/value heads, k head width, f feed-forward width, L layers, V vocabulary; c tokens decoded one by one,
each attending to s positions on average. In plain models h·k = g·k = d.

Two conventions. FLOPs are those of matrix products, a multiply-add being 2: masked scores are counted (`useful` leaves
them out), element-wise operations count 0, as in torch's counter. Bytes: an operation reads its inputs and weights once
and writes its output once; attention is one kernel, so scores are never written to memory. A backward pass makes two
products for each one: twice the FLOPs, twice the bytes. Does not import torch.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

import msgspec

from triform.parameters import bytes_of_tensor, kinds_of_matrices, list_tensors
from triform.spec import SPARE_POSITIONS, Buckets, LayerKind, ModelSpec, Rotary, StackSpec
from triform.weight_kinds import WeightKind

Sizes: TypeAlias = Mapping[str, int | Fraction]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One row: the lecture's O(), the exact FLOP formula of the forward pass, and the numbers."""

    stack: str
    name: str
    path: str  # of its modules; `*` is every layer
    moved: int  # bytes
    lecture: str = ""
    lecture_io: str = ""
    formula: str = ""
    forward: int = 0  # FLOPs
    backward: int = 0  # FLOPs
    useful: int = 0  # FLOPs of both, without masked scores
    parameters: int = 0
    kept: int = 0  # bytes that autograd saves for the backward pass

    @property
    def flops(self) -> int:
        return self.forward + self.backward

    @property
    def intensity(self) -> float:
        """FLOPs per byte moved."""
        return self.flops / self.moved if self.moved else 0.0


class LectureOrders(NamedTuple):
    """The lecture's two tables, a whole text and one token with a cache: FLOPs and memory access."""

    whole: str = ""
    whole_io: str = ""
    step: str = ""
    step_io: str = ""


# Empty: not in the lecture.
LECTURE: dict[str, LectureOrders] = {
    "QKV projection": LectureOrders("O(bnd²)", "O(2bnd + d²)", "O(bd²)", "O(2bd + d²)"),
    "scores": LectureOrders("O(bn²d)", "O(2bnd + bhn²)", "O(bnd)", "O(bhn + bnd + bd)"),
    "weighted values": LectureOrders("O(bn²d)", "O(2bnd + bhn²)", "O(bnd)", "O(bhn + bnd + bd)"),
    "output projection": LectureOrders("O(bnd²)", "O(2bnd + d²)", "O(bd²)", "O(2bd + d²)"),
    "cross scores": LectureOrders("O(bnmd)", step="O(bmd)"),
    "cross values": LectureOrders("O(bnmd)", step="O(bmd)"),
    "feed-forward": LectureOrders("O(16bnd²)", "O(2bnd + 8d²)", "O(16bd²)", "O(2bd + 8d²)"),
    "total": LectureOrders("O(bnd² + bn²d)", "O(bnd + bhn² + d²)", "O(bd² + bnd)", "O(bhn + bnd + d²)"),
    "total of a pair": LectureOrders("O(n²d + nd² + m²d + md² + nmd)"),
}


class StackPass(NamedTuple):
    """One pass through one stack: all positions at once, one token, or c tokens one by one."""

    spec: ModelSpec
    side: str  # encoder or decoder
    sizes: Sizes
    new: str  # the letter of the positions computed: n or m; "1" for one token; c for tokens decoded one by one
    seen: str  # the letter of the keys that each of them attends to: n, m or s
    bytes_per_number: int  # bytes per number
    training: bool
    cached: bool = False
    passes: int = 1
    weights: WeightKind = "float32"  # of the matrices, where they have few bits
    allowed: tuple[int, int] | None = None  # how many keys a causal mask shows to the first and to the last query

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
        """Positions computed, over all texts and steps."""
        return int(self.size("b") * self.size(self.new))

    @property
    def keys(self) -> int:
        """Keys read, over all texts and steps."""
        return int(self.passes * self.size("b") * self.size(self.seen))

    @property
    def scores(self) -> int:
        """Scores of one head of one text, over all steps."""
        return int(self.size(self.new) * self.size(self.seen))

    @property
    def useful(self) -> Fraction:
        """The share of the scores that are not masked."""
        pairs = sum(self.count_visible(kind.window) for kind in self.kinds)
        return Fraction(pairs, len(self.kinds) * self.scores)

    @property
    def read(self) -> Fraction:
        """The share of the keys that steps with a cache read: layers with a window hold the last positions only."""
        if self.allowed is None or self.new == self.seen:
            return Fraction(1)
        windows = (kind.window and kind.window + SPARE_POSITIONS for kind in self.kinds)
        pairs = sum(count_visible_pairs(*self.allowed, window=window) for window in windows)
        return Fraction(pairs, len(self.kinds) * self.scores)

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer."""
        return self.spec.layer_kinds(self.side)

    @property
    def rotated_layers(self) -> int:
        return sum(isinstance(kind.rotary, Rotary) for kind in self.kinds)

    def count_visible(self, window: int | None) -> int:
        """Scores of one head of one text that are not masked, in a layer with this window."""
        if self.allowed is not None:
            return count_visible_pairs(*self.allowed, window=window)
        length = int(self.size(self.new))
        if self.new != self.seen or self.side != "encoder" or window is None or window >= length:
            return self.scores
        return 2 * count_visible_pairs(1, length, window=window) - length

    @property
    def written_out(self) -> bool:
        """The fused kernel has no gradient for a score bias: T5 in training uses plain matrix products."""
        return self.training and isinstance(self.spec.added_to_scores, Buckets)

    def lecture_order(self, name: str) -> tuple[str, str]:
        order = LECTURE.get(name, LectureOrders())
        if self.new == "c":
            return order.step and f"c · {order.step}", order.step_io and f"c · {order.step_io}"
        if self.new == "m":
            return order.whole.replace("n", "m"), order.whole_io.replace("n", "m")
        return (order.step, order.step_io) if self.new == "1" else (order.whole, order.whole_io)

    def evaluate(self, formula: str) -> tuple[str, int]:
        """The product of the letters, as text and as number; N is the letter `new`, S the letter `seen`."""
        letters = [{"N": self.new, "S": self.seen}.get(letter, letter) for letter in formula.split()]
        value = prod(self.size(letter) for letter in letters)
        text = "·".join(letter for letter in letters if letter != "1")
        return text.replace("n·n", "n²").replace("m·m", "m²").replace("d·d", "d²"), int(value)

    def weight_bytes(self, pattern: str) -> int:
        """Of all tensors whose path matches."""
        return count_weight_bytes(self.spec, pattern, kind=self.weights, bytes_per_number=self.bytes_per_number)

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
        """`activations`: numbers read and written; `weights`: bytes per step; `backward`: products per forward one."""
        lecture, lecture_io = self.lecture_order(name)
        text, forward = self.evaluate(formula) if formula else ("", 0)
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
            moved=(activations * self.bytes_per_number + self.passes * weights) * (3 if self.training else 1),
            parameters=count_numbers(self.spec, f"{path}.*", trained=True),
        )


def count_visible_pairs(first: int, last: int, *, window: int | None) -> int:
    """min(first, window) + … + min(last, window): unmasked pairs of query and key."""
    if window is None or last <= window:
        return (first + last) * (last - first + 1) // 2
    if first >= window:
        return window * (last - first + 1)
    return count_visible_pairs(first, window, window=None) + window * (last - window)


@lru_cache(maxsize=4096)
def count_weight_bytes(spec: ModelSpec, pattern: str, *, kind: WeightKind, bytes_per_number: int) -> int:
    """Bytes of all tensors whose path matches, the matrices among them in few bits unless `kind` is float32."""
    if kind == "float32":
        return count_numbers(spec, pattern) * bytes_per_number
    kinds = kinds_of_matrices(spec, kind)
    entries = [entry for entry in list_tensors(spec).values() if fnmatchcase(entry.path, pattern)]
    return sum(bytes_of_tensor(entry, kinds.get(entry.path, "float32")) for entry in entries)


@lru_cache(maxsize=4096)
def count_numbers(spec: ModelSpec, pattern: str, *, trained: bool = False) -> int:
    """Size of all tensors whose path matches; only parameters that training changes, if `trained`."""
    entries = (entry for entry in list_tensors(spec).values() if fnmatchcase(entry.path, pattern))
    return sum(entry.size for entry in entries if entry.trained or not trained)
