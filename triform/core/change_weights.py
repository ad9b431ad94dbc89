"""From one kind of weights to another: a network in float32 into few bits, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from triform.core.build import build_skeleton
from triform.core.forms import Form
from triform.core.quantized_network import build_quantized, find_matrices
from triform.errors import InputError
from triform.kernels.packed_matrix import PackedMatrix
from triform.kernels.quantize import Codes, count_groups, quantize
from triform.parameters import kinds_of_matrices
from triform.spec import ModelSpec
from triform.weight_kinds import WeightKind

NO_IMPORTANCE: Mapping[str, Tensor] = {}


def change_weights(
    network: Form,
    spec: ModelSpec,
    *,
    kind: WeightKind,
    importance: Mapping[str, Tensor] = NO_IMPORTANCE,
    said: Callable[[str], None] = lambda path: None,
) -> Form:
    """A network of the same spec with this kind of weights; what does not change is shared with the old one.

    `importance`: by the path of a weight, how much an error at each input matters; `said` is called with each path.
    """
    if kind == "float32":
        return to_float32(network, spec)
    kinds, held = kinds_of_matrices(spec, kind), dict(find_matrices(network))
    floats = network.state_dict()
    matrices: dict[str, PackedMatrix] = {}
    for path, wanted in kinds.items():
        said(path)
        if path not in floats and path not in held:
            raise InputError(f"{path} has an adapter; merge adapters before the kind of weights is changed")
        before = held.get(path)
        if before is None or before.kind != wanted:
            numbers = floats[path] if before is None else before.to_float()
            matrices[path] = pack_matrix(numbers, path, kind=wanted, importance=importance.get(path))
        else:
            matrices[path] = before
    others = {path: x for path, x in floats.items() if path not in matrices}
    return build_quantized(spec, matrices=matrices, others=others)


def to_float32(network: Form, spec: ModelSpec) -> Form:
    """The same numbers in float32, as an ordinary network; itself where it is one."""
    held = dict(find_matrices(network))
    if not held:
        return network
    plain = build_skeleton(spec)
    plain.load_state_dict(
        network.state_dict() | {path: matrix.to_float() for path, matrix in held.items()}, assign=True
    )
    return plain.requires_grad_(True).eval()


def pack_matrix(weight: Tensor, path: str, *, kind: WeightKind, importance: Tensor | None = None) -> PackedMatrix:
    """One matrix; its path is named where it cannot be quantised."""
    if kind in ("q8", "q4"):
        return PackedMatrix.from_codes(*quantize_named(weight, path, kind=kind, importance=importance), kind=kind)
    return PackedMatrix.from_float(weight.detach(), kind=kind)


def quantize_named(weight: Tensor, path: str, *, kind: WeightKind, importance: Tensor | None = None) -> Codes:
    """Codes of a matrix; an error names its path."""
    try:
        return quantize(weight.detach(), kind=kind, importance=importance)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def pack_pieces(pieces: Iterable[Tensor], path: str, *, shape: tuple[int, ...], kind: WeightKind) -> PackedMatrix:
    """A matrix whose rows come in turn: in float32 there is only one piece at a time."""
    outputs, inputs = shape
    if kind not in ("q8", "q4"):
        numbers = torch.empty(outputs, inputs, dtype=torch.bfloat16)
        fill_rows([numbers], ([piece] for piece in pieces))
        return PackedMatrix.from_float(numbers, kind=kind)
    groups = outputs, count_groups(inputs)
    parts = [torch.empty(outputs, inputs, dtype=torch.int8 if kind == "q8" else torch.uint8)]
    parts += [torch.empty(groups, dtype=torch.float16) for _ in range(1 if kind == "q8" else 2)]
    fill_rows(parts, (quantize_named(piece, path, kind=kind) for piece in pieces))
    return PackedMatrix.from_codes(*parts, kind=kind)


def fill_rows(parts: Sequence[Tensor], pieces: Iterable[Sequence[Tensor | None]]) -> None:
    """Copies pieces into their rows, one behind another."""
    first = 0
    for piece in pieces:
        found = [x for x in piece if x is not None]
        last = first + len(found[0])
        for part, x in zip(parts, found, strict=True):
            part[first:last] = x
        first = last
