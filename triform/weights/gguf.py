"""GGUF files as models: Llama and its relatives, whatever their quantisation.

GGUF's tensor names, and how its metadata becomes a spec, a tokenizer and a template; `gguf_file.py` reads the file
itself. Other architectures are refused by name, before any tensor is read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from triform import families
from triform.core.change_weights import pack_pieces
from triform.core.forms import Form
from triform.core.quantized_network import build_quantized
from triform.errors import TriformError, UnsupportedName
from triform.files.errors import FileError, list_names
from triform.generation_defaults import GenerationDefaults
from triform.kernels.packed_matrix import PackedMatrix
from triform.model import Model
from triform.parameters import kinds_of_matrices
from triform.spec import LinearScaling, Llama3Scaling, ModelSpec, NormSpec, NoScaling, Scaling, YarnScaling
from triform.text.build_tokenizer import Split, add_ends, build_byte_level
from triform.text.chat_template import ChatTemplate
from triform.text.sentencepiece import BYTE, CONTROL, Piece, PieceModel, build_from_pieces
from triform.text.tokenizer import Tokenizer
from triform.weight_kinds import AUTO, check_choice, weight_kind_named
from triform.weights.gguf_file import GgufFile
from triform.weights.gguf_matrices import GgufRows, join_exactly
from triform.weights.name_rules import NameTable, Rule, TensorPart, same, stack

NAMES: tuple[Rule, ...] = (
    same("token", "token_embd"),
    same("decoder.blocks.N.attention.before", "blk.N.attn_norm"),
    stack("decoder.blocks.N.attention.f.qkv", "blk.N.{attn_q,attn_k,attn_v}"),
    same("decoder.blocks.N.attention.f.q_norm", "blk.N.attn_q_norm"),
    same("decoder.blocks.N.attention.f.k_norm", "blk.N.attn_k_norm"),
    same("decoder.blocks.N.attention.f.out", "blk.N.attn_output"),
    same("decoder.blocks.N.feedforward.before", "blk.N.ffn_norm"),
    stack("decoder.blocks.N.feedforward.f.up", "blk.N.{ffn_gate,ffn_up}"),
    same("decoder.blocks.N.feedforward.f.down", "blk.N.ffn_down"),
    same("decoder.final", "output_norm"),
    same("readout.own", "output.weight"),
)
IGNORED = {"rope_freqs.weight"}  # a table that the scaling in the metadata gives as well

# Architecture: does it have biases on q, k and v; norms on q and k; neighbouring rotary pairs?
ARCHITECTURES = {"llama": (False, False, True), "qwen2": (True, False, False), "qwen3": (False, True, False)}

SPLITS: dict[str, Split] = {"gpt-2": "gpt2", "default": "gpt2", "smollm": "smollm"}
SPLITS |= {"llama-bpe": "llama3", "llama3": "llama3", "qwen2": "qwen2"}


def read(path: Path, *, weights: str = AUTO) -> Model:
    """The model in a file; "auto" keeps its blocks as they lie where our matrices hold the same, else float32."""
    check_choice(weights)
    file = GgufFile.open(path)
    kind = str(file.get("general.architecture"))
    if kind not in ARCHITECTURES:
        raise UnsupportedName("GGUF architecture", kind, ARCHITECTURES)
    file.check_tensors()
    try:
        spec = read_spec(file, kind)
        network = load_network(file, spec, neighbours=ARCHITECTURES[kind][2], weights=weights)
        tokenizer = read_tokenizer(file)
        template = file.metadata.get("tokenizer.chat_template")
        return Model(
            spec=spec,
            network=network,
            tokenizer=tokenizer,
            template=None if template is None else ChatTemplate(str(template), special=tokenizer.special),
            generation=GenerationDefaults(bos=tokenizer.bos, eos=tokenizer.eos),
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, TriformError):
            raise
        raise FileError(f"{path}: its metadata is damaged ({str(error)[:200]})") from None


# --- spec -------------------------------------------------------------------------------------------------------------


def read_spec(file: GgufFile, kind: str) -> ModelSpec:
    """The spec that a GGUF file's metadata describes."""

    def number(name: str, default: float | None = None) -> Any:
        return file.get_number(f"{kind}.{name}", default)

    bias, norms, _ = ARCHITECTURES[kind]
    heads = number("attention.head_count")
    width = number("embedding_length")
    eps = float(f"{number('attention.layer_norm_rms_epsilon'):.6g}")  # stored as float32: 9.99999974e-06
    return families.llama(
        vocab=len(file.get("tokenizer.ggml.tokens")),
        width=width,
        layers=number("block_count"),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_width=number("attention.key_length", width // max(1, heads)),
        ff_width=number("feed_forward_length"),
        context=number("context_length"),
        base=float(number("rope.freq_base", 10_000.0)),
        scaling=read_scaling(file, kind),
        eps=eps,
        bias=bias,
        qk_norm=NormSpec(kind="rms", eps=eps) if norms else None,
        tied="output.weight" not in file.tensors,
    )


def read_scaling(file: GgufFile, kind: str) -> Scaling:
    """The scaling of rotary positions in a GGUF file."""
    scaling = file.metadata.get(f"{kind}.rope.scaling.type", "none")
    factor = float(file.metadata.get(f"{kind}.rope.scaling.factor", 1.0))
    trained = int(file.metadata.get(f"{kind}.rope.scaling.original_context_length", 0))
    if "rope_freqs.weight" in file.tensors:
        return _read_llama3_scaling(file, trained or 8192)
    match scaling:
        case "none":
            return NoScaling()
        case "linear":
            return LinearScaling(factor=factor)
        case "yarn":
            return YarnScaling(factor=factor, trained=trained)
        case _:
            raise FileError(f"{file.path}: rotary scaling {scaling!r} is not known; known are linear and yarn")


def _read_llama3_scaling(file: GgufFile, trained: int) -> Llama3Scaling:
    """GGUF stores what each frequency is divided by; the largest is the factor."""
    factor = round(float(file.tensors["rope_freqs.weight"].dequantize().max()))
    return Llama3Scaling(factor=float(factor), low=1.0, high=4.0, trained=trained)


# --- weights ----------------------------------------------------------------------------------------------------------


def load_network(file: GgufFile, spec: ModelSpec, *, neighbours: bool, weights: str) -> Form:
    """The network with the tensors of a GGUF file."""
    parts = NameTable(NAMES).parts(spec)
    check_names(file, parts)
    pieces: dict[str, list[GgufRows]] = {}
    for part in parts:
        heads = count_turned_heads(part, spec) if neighbours else 0
        pieces.setdefault(part.path, []).append(GgufRows(file.tensors[part.name], heads))
    matrices: dict[str, PackedMatrix] = {}
    kinds = kinds_of_matrices(spec, "float32" if weights == AUTO else weight_kind_named(weights))
    for path, kind in kinds.items():
        found = join_exactly(pieces[path]) if weights != "float32" else None
        if found is not None and weights in (AUTO, found.kind):
            matrices[path] = found
        elif kind != "float32":
            shape = (sum(piece.tensor.shape[0] for piece in pieces[path]), pieces[path][0].tensor.shape[1])
            matrices[path] = pack_pieces((piece.numbers() for piece in pieces[path]), path, shape=shape, kind=kind)
    others = {
        path: torch.cat([piece.numbers() for piece in found]) for path, found in pieces.items() if path not in matrices
    }
    return build_quantized(spec, matrices=matrices, others=others)


def count_turned_heads(part: TensorPart, spec: ModelSpec) -> int:
    """Heads of a matrix of queries or keys; 0 for all others."""
    a = spec.stacks["decoder"].attention
    if part.name.endswith("attn_q.weight"):
        return a.heads
    return a.kv_heads if part.name.endswith("attn_k.weight") else 0


def check_names(file: GgufFile, parts: Sequence[TensorPart]) -> None:
    """Every tensor is there in its shape, and nothing else."""
    wanted = {part.name for part in parts}
    missing = sorted(wanted - file.tensors.keys())
    over = sorted(file.tensors.keys() - wanted - IGNORED)
    wrong = [
        f"{part.name} is {list(shape)}, not {list(part.shape)}"
        for part in parts
        if part.name in file.tensors
        if (shape := file.tensors[part.name].shape) != part.shape
    ]
    if missing or over or wrong:
        raise FileError(
            f"{file.path} does not hold the model it describes: missing {list_names(missing) or 'nothing'}; "
            f"left over {list_names(over) or 'nothing'}; of the wrong shape {list_names(wrong) or 'nothing'}"
        )


# --- tokenizer --------------------------------------------------------------------------------------------------------


def read_tokenizer(file: GgufFile) -> Tokenizer:
    """The tokenizer in a GGUF file's metadata."""
    tokens = [str(token) for token in file.get("tokenizer.ggml.tokens")]
    kinds = [int(kind) for kind in file.metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))]
    special = {}
    for role, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        id = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if id is not None and 0 <= int(id) < len(tokens):
            special[role] = tokens[int(id)]
    match file.get("tokenizer.ggml.model"):
        case "gpt2":
            core = _read_byte_level(file, tokens)
        case "llama":
            scores = [float(score) for score in file.get("tokenizer.ggml.scores")]
            pieces = tuple(map(Piece, tokens, scores, kinds))
            model = PieceModel(pieces=pieces, bpe=True, byte_fallback=BYTE in kinds, squeeze=False, special=special)
            core = build_from_pieces(model, what=str(file.path))
        case other:
            raise FileError(f"{file.path}: tokenizers of the kind {other!r} are not known; known are gpt2 and llama")
    from tokenizers import AddedToken

    core.add_special_tokens(
        [AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    )
    llama = file.get("tokenizer.ggml.model") == "llama"
    if file.metadata.get("tokenizer.ggml.add_bos_token", llama) and "bos" in special:
        add_ends(core, bos=special["bos"])
    return Tokenizer(core, special=special)


def _read_byte_level(file: GgufFile, tokens: list[str]) -> Any:
    kind = str(file.metadata.get("tokenizer.ggml.pre", "default"))
    if kind not in SPLITS:
        raise UnsupportedName("way of splitting words", kind, SPLITS)
    merges = [tuple(str(merge).split(" ")) for merge in file.get("tokenizer.ggml.merges")]
    vocab = {token: id for id, token in enumerate(tokens)}
    return build_byte_level(vocab, merges=[(pair[0], pair[1]) for pair in merges if len(pair) == 2], split=SPLITS[kind])
