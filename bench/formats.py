"""Random-weight models of a shape, made by the bench itself in every contender's format, all with the same numbers.

A transformers folder comes first; the other formats are made from it. Runs in a process of its own:
`python -m bench.formats gpt2-small FOLDER`
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SEED = 7
GGUF = ("F32", "Q8_0", "Q4_0")


class Made:
    """Where the formats of one model stand, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.transformers = folder / "transformers"
        self.ctranslate2 = folder / "ctranslate2"
        self.ctranslate2_int8 = folder / "ctranslate2-int8"
        self.gguf = {kind: folder / f"{kind}.gguf" for kind in GGUF}


def made(shape: str, scratch: Path) -> Made:
    folder = scratch / shape
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "bench.formats", shape, str(folder)], check=True)
    return Made(folder)


# --- shapes ---------------------------------------------------------------------------------------------------------


def gpt2_small() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def llama_small() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32_000, max_position_embeddings=2048, **sizes))


def t5_small() -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(decoder_start_token_id=0))


def marian_base() -> Any:
    """The released translation models: 6 + 6 layers, width 512, their start token is the padding token."""
    from transformers import MarianConfig, MarianMTModel

    pad = 58_100
    sizes = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "vocab_size": pad + 1}
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    ff = {"encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "max_position_embeddings": 512}
    tokens = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": None}
    config = MarianConfig(**sizes, **heads, **ff, **tokens, scale_embedding=True, activation_function="swish")
    return MarianMTModel(config)


def smollm2() -> Any:
    """SmolLM2-135M with room for long texts: grouped heads, one table for both ends."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    more = {"max_position_embeddings": 10_240, "tie_word_embeddings": True}
    return LlamaForCausalLM(LlamaConfig(vocab_size=49_152, **sizes, **heads, **more))


SHAPES: dict[str, Callable[[], Any]] = {
    "gpt2-small": gpt2_small,
    "llama-small": llama_small,
    "t5-small": t5_small,
    "marian-base": marian_base,
    "smollm2": smollm2,
}

# --- formats --------------------------------------------------------------------------------------------------------


def make(shape: str, folder: Path) -> None:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(SEED)
    model = SHAPES[shape]()
    to = Made(folder)
    model.save_pretrained(to.transformers)
    if shape != "smollm2":
        convert(to.transformers, to.ctranslate2, "float32")
    if shape in ("gpt2-small", "llama-small"):
        convert(to.transformers, to.ctranslate2_int8, "int8")
    if shape in ("gpt2-small", "llama-small", "smollm2"):
        for kind, path in to.gguf.items():
            write_gguf(model, path, kind)


class Words:
    """A tokenizer for models without words: the token of id 7 is "t7"."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bos_token = self.eos_token = self.unk_token = self.pad_token = "t0"

    def get_vocab(self) -> dict[str, int]:
        return {f"t{i}": i for i in range(self.size)}

    def convert_ids_to_tokens(self, id: int) -> str:
        return f"t{id}"


def convert(source: Path, target: Path, kind: str) -> None:
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):
        def load_model(self, model_class: Any, *args: Any, **kwargs: Any) -> Any:
            self.model = super().load_model(model_class, *args, **kwargs)
            return self.model

        def load_tokenizer(self, *_: Any, **__: Any) -> Words:
            size = self.model.config.vocab_size
            return Words(size - (self.model.config.model_type == "marian"))  # it has no padding token there

    Converter(str(source)).convert(str(target), quantization=kind)


# --- GGUF -----------------------------------------------------------------------------------------------------------

# transformers' names, turned where they are stored [in, out], and llama.cpp's
GPT2_BLOCK = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
LLAMA_BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(model: Any, path: Path, kind: str) -> None:
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "gpt2" if config.model_type == "gpt2" else "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    add_words(writer, config.vocab_size)
    for name, x in tensors(model):
        array = x.detach().contiguous().numpy()
        quantised = kind != "F32" and array.ndim == 2 and name != "position_embd.weight"
        if quantised:
            kept = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(array, kept), raw_dtype=kept)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_words(writer: Any, size: int) -> None:
    """SentencePiece's kind: three control tokens, the bytes, then words nobody will read."""
    import gguf

    kinds = gguf.TokenType
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*words, *(f"t{i}" for i in range(len(words), size))])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([*types, *[kinds.NORMAL] * (size - len(words))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)


def tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """llama.cpp's names and layout: [out, in], rotary pairs as neighbours."""
    state = model.state_dict()
    if model.config.model_type == "gpt2":
        yield "token_embd.weight", state["transformer.wte.weight"]
        yield "position_embd.weight", state["transformer.wpe.weight"]
        yield from block_tensors(state, "transformer.h", GPT2_BLOCK, turned=True)
        for end in ("weight", "bias"):
            yield f"output_norm.{end}", state[f"transformer.ln_f.{end}"]
        return
    yield "token_embd.weight", state["model.embed_tokens.weight"]
    if not model.config.tie_word_embeddings:
        yield "output.weight", state["lm_head.weight"]
    yield "output_norm.weight", state["model.norm.weight"]
    paired = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    for name, x in block_tensors(state, "model.layers", LLAMA_BLOCK, turned=False):
        heads = paired.get(name.split(".")[2])
        yield name, x if heads is None else neighbours(x, heads)


def block_tensors(
    state: dict[str, Any], prefix: str, names: dict[str, str], *, turned: bool
) -> Iterator[tuple[str, Any]]:
    for key, x in state.items():
        if key.startswith(f"{prefix}."):
            number, rest = key.removeprefix(f"{prefix}.").split(".", 1)
            theirs, end = rest.rsplit(".", 1)
            if theirs in names:
                yield f"blk.{number}.{names[theirs]}.{end}", x.T if turned and x.ndim == 2 else x


def neighbours(x: Any, heads: int) -> Any:
    """Rows of q and k: rotary pairs side by side instead of half a head apart."""
    return x.reshape(heads, 2, -1, x.shape[-1]).transpose(1, 2).reshape(x.shape)


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
