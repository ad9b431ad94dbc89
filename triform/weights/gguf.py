"""GGUF files as float32 models: Llama and its relatives, whatever their quantisation.

GGUF's tensor names, and how its metadata becomes a spec, a tokenizer and a template; `gguf_file.py` reads the file
itself. Other architectures are refused by name, before any tensor is read.
"""

from pathlib import Path
from typing import Any

import torch

from triform import families
from triform.core.build import skeleton
from triform.errors import TriformError, UnsupportedName
from triform.files.errors import WeightsError, listed
from triform.generation_defaults import Generation
from triform.model import Model
from triform.spec import LinearScaling, Llama3Scaling, ModelSpec, NormSpec, NoScaling, Scaling, YarnScaling
from triform.text.build_tokenizer import Split, byte_level, put_ends
from triform.text.chat_template import ChatTemplate
from triform.text.sentencepiece import BYTE, CONTROL, Piece, PieceModel, core_of
from triform.text.tokenizer import Tokenizer
from triform.weights.gguf_file import GgufFile
from triform.weights.llama2c import half_split
from triform.weights.name_rules import Rule, Table, same, stack

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


def read(path: Path) -> Model:
    file = GgufFile.open(path)
    kind = str(file.get("general.architecture"))
    if kind not in ARCHITECTURES:
        raise UnsupportedName("GGUF architecture", kind, ARCHITECTURES)
    file.check_tensors()
    try:
        spec = spec_of(file, kind)
        network = numbers(file, spec, neighbours=ARCHITECTURES[kind][2])
        tokenizer = tokenizer_of(file)
        template = file.metadata.get("tokenizer.chat_template")
        return Model(
            spec=spec,
            network=network,
            tokenizer=tokenizer,
            template=None if template is None else ChatTemplate(str(template), special=tokenizer.special),
            generation=Generation(bos=tokenizer.bos, eos=tokenizer.eos),
        )
    except (TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, TriformError):
            raise
        raise WeightsError(f"{path}: its metadata is damaged ({str(error)[:200]})") from None


# --- spec -------------------------------------------------------------------------------------------------------------


def spec_of(file: GgufFile, kind: str) -> ModelSpec:
    def number(name: str, default: float | None = None) -> Any:
        return file.number(f"{kind}.{name}", default)

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
        scaling=scaling_of(file, kind),
        eps=eps,
        bias=bias,
        qk_norm=NormSpec(kind="rms", eps=eps) if norms else None,
        tied="output.weight" not in file.tensors,
    )


def scaling_of(file: GgufFile, kind: str) -> Scaling:
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
            raise WeightsError(f"{file.path}: rotary scaling {scaling!r} is not known; known are linear and yarn")


def _read_llama3_scaling(file: GgufFile, trained: int) -> Llama3Scaling:
    """GGUF stores what each frequency is divided by; the largest is the factor."""
    factor = round(float(file.tensors["rope_freqs.weight"].dequantize().max()))
    return Llama3Scaling(factor=float(factor), low=1.0, high=4.0, trained=trained)


# --- weights ----------------------------------------------------------------------------------------------------------


def numbers(file: GgufFile, spec: ModelSpec, *, neighbours: bool) -> Any:
    parts = Table(NAMES).parts(spec)
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
        raise WeightsError(
            f"{file.path} does not hold the model it describes: missing {listed(missing) or 'nothing'}; "
            f"left over {listed(over) or 'nothing'}; of the wrong shape {listed(wrong) or 'nothing'}"
        )
    network = skeleton(spec).to_empty(device="cpu")
    ours, a = dict(network.named_parameters()), spec.stacks["decoder"].attention
    with torch.no_grad():
        for part in parts:
            x = torch.from_numpy(file.tensors[part.name].dequantize())
            if neighbours and part.name.endswith(("attn_q.weight", "attn_k.weight")):
                x = half_split(x, heads=a.heads if part.name.endswith("attn_q.weight") else a.kv_heads)
            part.view(ours[part.path]).copy_(x)
    return network.eval()


# --- tokenizer --------------------------------------------------------------------------------------------------------


def tokenizer_of(file: GgufFile) -> Tokenizer:
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
            core = core_of(model, what=str(file.path))
        case other:
            raise WeightsError(f"{file.path}: tokenizers of the kind {other!r} are not known; known are gpt2 and llama")
    from tokenizers import AddedToken

    core.add_special_tokens(
        [AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    )
    llama = file.get("tokenizer.ggml.model") == "llama"
    if file.metadata.get("tokenizer.ggml.add_bos_token", llama) and "bos" in special:
        put_ends(core, bos=special["bos"])
    return Tokenizer(core, special=special)


def _read_byte_level(file: GgufFile, tokens: list[str]) -> Any:
    kind = str(file.metadata.get("tokenizer.ggml.pre", "default"))
    if kind not in SPLITS:
        raise UnsupportedName("way of splitting words", kind, SPLITS)
    merges = [tuple(str(merge).split(" ")) for merge in file.get("tokenizer.ggml.merges")]
    vocab = {token: id for id, token in enumerate(tokens)}
    return byte_level(vocab, merges=[(pair[0], pair[1]) for pair in merges if len(pair) == 2], split=SPLITS[kind])
