"""`quantized.json`: what the matrices of a folder with few bits are. No torch.

Read before anything else of such a folder: its format, the layout of its matrices, their kinds and shapes.
"""

from typing import Any

import msgspec

from triform.files.errors import FileError, to_one_line
from triform.files.format_version import CURRENT_FORMAT, check_version
from triform.files.safe_folder import SafeFolder
from triform.weight_kinds import WeightKind

NOTE = "quantized.json"
AGAIN = "quantise the model again with this one"


class StoredMatrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A matrix in the data file: its kind of weights, [out, in]."""

    kind: WeightKind
    shape: tuple[int, int]


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`names`: the tensors that the released model's files have, by which its config is understood."""

    format_version: int = CURRENT_FORMAT
    layout: int
    weights: WeightKind
    names: list[str]
    matrices: dict[str, StoredMatrix]


def read_note(box: SafeFolder) -> Note:
    """A newer format is refused before anything else is believed."""
    content: dict[str, Any] = box.parse_object(NOTE)
    check_version(content.get("format_version", 1), what=box.root / NOTE, otherwise=AGAIN)
    try:
        return msgspec.convert(content, Note)
    except msgspec.ValidationError as error:
        raise FileError(f"{NOTE} in {box.root} is damaged: {to_one_line(error)}; {AGAIN}") from None
