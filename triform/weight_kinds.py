"""The kinds of weights: how a matrix may be stored, and how many bytes it takes. No torch.

    float32    four bytes per number
    bfloat16   two bytes: the upper half of a float32
    q8         whole numbers from −127 to 127 in groups of 32 inputs, w = scale · code
    q4         whole numbers from 0 to 15 in groups of 32 inputs, w = scale · code + minimum

Scales and minimums are float16. Products with q8 and q4 round the activations to 8 bits too, in the same groups.
"""

from typing import Literal, TypeAlias, get_args

from triform.errors import UnknownName

WeightKind: TypeAlias = Literal["float32", "bfloat16", "q8", "q4"]
KINDS: tuple[WeightKind, ...] = get_args(WeightKind)
AUTO = "auto"  # as the files hold them
CHOICES = (AUTO, *KINDS)

GROUP = 32  # inputs that share a scale
_GROUP_BYTES = {"float32": 4 * GROUP, "bfloat16": 2 * GROUP, "q8": GROUP + 2, "q4": GROUP // 2 + 4}


def weight_kind_named(name: str) -> WeightKind:
    """The kind of this name."""
    for kind in KINDS:
        if kind == name:
            return kind
    raise UnknownName("kind of weights", name, KINDS)


def check_choice(name: str) -> None:
    """Refuses what is neither a kind nor "auto"."""
    if name not in CHOICES:
        raise UnknownName("kind of weights", name, CHOICES)


def bytes_of_matrix(kind: WeightKind, outputs: int, inputs: int) -> int:
    """Of a matrix of this kind, with its scales; kernels may pad it to whole blocks of outputs."""
    if kind == "float32":
        return 4 * outputs * inputs
    if kind == "bfloat16":
        return 2 * outputs * inputs
    return outputs * -(-inputs // GROUP) * _GROUP_BYTES[kind]


def kind_of_table(kind: WeightKind) -> WeightKind:
    """Embeddings and language heads keep 8 bits beside matrices of 4: they are read by row, and choose the token."""
    return "q8" if kind == "q4" else kind
