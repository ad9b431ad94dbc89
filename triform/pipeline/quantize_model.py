"""From a model to a folder with few bits: calibrated on a text, compared with float32, with a model card."""

from collections.abc import Callable, Mapping
from pathlib import Path

from triform.check.page_of_text import PAGE
from triform.check.weight_quality import QualityReport, compare_weights
from triform.core.change_weights import NO_IMPORTANCE, change_weights
from triform.core.quantized_network import bytes_of_network, find_matrices, name_kind
from triform.errors import InputError
from triform.files import manifest
from triform.files.atomic_folder import write_folder
from triform.hints import Hint
from triform.model import Model
from triform.pipeline.report import CARD_FILE
from triform.weight_kinds import KINDS, WeightKind, weight_kind_named
from triform.weights import model_folder
from triform.weights.input_importance import measure_importance

PAGE_NAME = "the built-in page"
Say = Callable[[str], None]


def quantized_kind(name: str) -> WeightKind:
    """A kind to quantise to."""
    kind = weight_kind_named(name)
    if kind == "float32":
        raise InputError(f"float32 is not quantised; use one of {', '.join(KINDS[1:])}")
    return kind


def quantize_model(
    model: Model, *, kind: WeightKind, calibrate: str | None = None, what: str = "the text", said: Say
) -> Model:
    """The same model in fewer bits; `calibrate` is a text, `what` names it."""
    importance = NO_IMPORTANCE
    if calibrate is not None:
        if kind != "q4":
            raise InputError(f"{kind} needs no calibration: its steps are small enough; calibrate q4")
        importance = measure_importance(
            model, calibrate, what=what, said=lambda done, of: said(f"reading {what}: {done:,} of {of:,} tokens")
        )
    network = change_weights(
        model.network, model.spec, kind=kind, importance=importance, said=lambda path: said(f"quantising {path}")
    )
    return model.replace(network=network)


def compare_with_float32(reference: Model, other: Model, *, texts: Mapping[str, str]) -> QualityReport:
    """On the built-in page, and on these texts by name."""
    return QualityReport(
        weights=name_kind(find_matrices(other.network)),
        bytes=bytes_of_network(other.network),
        bytes_float32=bytes_of_network(reference.network),
        texts=tuple(
            compare_weights(reference, other, text=text, name=name)
            for name, text in ({PAGE_NAME: PAGE} | dict(texts)).items()
        ),
    )


def write_quantized(folder: Path, *, model: Model, card: str) -> None:
    """The folder of a quantised model, with its model card."""
    with write_folder(folder) as draft:
        model_folder.write_files(draft, model=model)
        (draft / CARD_FILE).write_text(card, encoding="utf-8")
        manifest.write(draft)


def write_card(name: str, report: QualityReport, *, calibrated_on: str | None) -> str:
    """What the folder is, and what its few bits change."""
    bits = {"q8": "8 bits", "q4": "4 bits; its token table and language-model head 8", "bfloat16": "16 bits"}
    tuned = "" if calibrated_on is None else f" Scales were tuned to {calibrated_on}."
    return "\n".join(
        [
            f"# {name} in {report.weights}",
            "",
            f"Matrices have {bits.get(report.weights, report.weights)}; norms, biases and positions are float32: "
            f"{report.bytes:,} bytes, {report.bytes / report.bytes_float32:.1%} of float32.{tuned}",
            "",
            "Beside the same model in float32:",
            "",
            *report.lines(),
            "",
            'KL in nats per position, "same top" the share of positions with the same likeliest token or label, '
            '"same nearest" the share of sentences whose nearest other sentence stays the same. '
            f"`{Hint.CHECK} --weights KIND --text FILE` measures it on a text of your own.",
            "",
        ]
    )
