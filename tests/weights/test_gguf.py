"""Other people's files: llama2.c and GGUF become model folders with the same numbers."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import SIZES

import triform
from triform import families
from triform.core.quantized_network import find_matrices
from triform.core.texts import Text
from triform.errors import TriformError
from triform.weights import gguf, llama2c, model_folder
from triform.weights.llama2c import half_split
from triform.weights.model_folder import load

gguf_package = pytest.importorskip("gguf")

SPEC = families.llama(**(SIZES | {"vocab": 300}), kv_heads=2, ff_width=24, tied=True)


def neighbours(x: torch.Tensor, *, heads: int) -> torch.Tensor:
    """The inverse of `half_split`: halves become neighbouring pairs."""
    return x.view(heads, 2, -1, *x.shape[1:]).transpose(1, 2).reshape(x.shape)


def test_layouts_are_inverse() -> None:
    x = torch.arange(24.0).view(12, 2)
    assert half_split(x, heads=3)[:4, 0].tolist() == [0, 4, 2, 6]
    assert torch.equal(neighbours(half_split(x, heads=3), heads=3), x)


def parts(model: triform.Model) -> dict[str, list[torch.Tensor]]:
    """The tensors of a Llama as both formats want them: q, k, v apart, pairs side by side."""
    state, a = model.network.state_dict(), model.spec.decoder.attention
    rows: dict[str, list[torch.Tensor]] = {}
    for layer in range(model.spec.decoder.layers):
        path = f"decoder.blocks.{layer}"
        shares = [a.heads * a.head_width, a.kv_heads * a.head_width, a.kv_heads * a.head_width]
        q, k, v = state[f"{path}.attention.f.qkv.weight"].split(shares)
        gate, up = state[f"{path}.feedforward.f.up.weight"].chunk(2)
        for name, x in {
            "attn_norm": state[f"{path}.attention.before.weight"],
            "attn_q": neighbours(q, heads=a.heads),
            "attn_k": neighbours(k, heads=a.kv_heads),
            "attn_v": v,
            "attn_output": state[f"{path}.attention.f.out.weight"],
            "ffn_norm": state[f"{path}.feedforward.before.weight"],
            "ffn_gate": gate,
            "ffn_down": state[f"{path}.feedforward.f.down.weight"],
            "ffn_up": up,
        }.items():
            rows.setdefault(name, []).append(x)
    return rows


def write_llama2c(path: Path, model: triform.Model) -> None:
    spec, state = model.spec, model.network.state_dict()
    stack = spec.decoder
    head = (spec.width, stack.feedforward.width, stack.layers, stack.attention.heads, stack.attention.kv_heads)
    body = [
        state["token.weight"],
        *(torch.stack(rows) for rows in parts(model).values()),
        state["decoder.final.weight"],
    ]
    body += [torch.zeros(spec.context, stack.attention.head_width // 2)] * 2
    path.write_bytes(struct.pack("<7i", *head, spec.vocab, spec.context) + b"".join(x.numpy().tobytes() for x in body))


def write_words(path: Path, count: int) -> None:
    words = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), " ", "a", "b", " a", "ab"]
    words += [f"w{n}" for n in range(count - len(words))]
    data = [struct.pack("<fI", -float(n), len(word.encode())) + word.encode() for n, word in enumerate(words)]
    path.write_bytes(struct.pack("<I", 8) + b"".join(data))


def test_llama2c_there_and_into_a_folder(tmp_path: Path) -> None:
    model = triform.build(SPEC, seed=2)
    write_llama2c(tmp_path / "m.bin", model)
    write_words(tmp_path / "t.bin", 300)
    got = llama2c.read(tmp_path / "m.bin", tokenizer=tmp_path / "t.bin")
    assert got.spec == SPEC
    model_folder.write(tmp_path / "out", model=got)
    again = load(tmp_path / "out")
    ids = [[1, 5, 280, 7]]
    torch.testing.assert_close(again.logits(ids), model.logits(ids))
    assert again.tokenizer.decode(again.tokenizer.encode("a ab").ids) == "a ab"


BROKEN = {
    "it has only 5 bytes": lambda data: data[:5],
    "a llama2.c file of": lambda data: data[:-4],
    "its sizes would be": lambda data: struct.pack("<7i", 2**30, 1, 1, 1, 1, 1, 1) + data[28:],
    "is not a multiple of heads": lambda data: struct.pack("<7i", 16, 24, 2, 5, 5, 300, 130) + data[28:],
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_llama2c_file_gets_one_line(tmp_path: Path, says: str) -> None:
    write_llama2c(tmp_path / "m.bin", triform.build(SPEC))
    (tmp_path / "m.bin").write_bytes(BROKEN[says]((tmp_path / "m.bin").read_bytes()))
    with pytest.raises(TriformError, match=says):
        llama2c.read(tmp_path / "m.bin", tokenizer=None)


def test_the_real_little_llama_tells_of_lily(shared: Path, tmp_path: Path) -> None:
    files = shared / "fixture-stories260K"
    model_folder.write(
        tmp_path / "stories", model=llama2c.read(files / "stories260K.bin", tokenizer=files / "tok512.bin")
    )
    model = load(tmp_path / "stories")
    ids, cache = list(model.tokenizer.encode("").ids), model.cache()
    new = torch.tensor([ids])
    with torch.no_grad():
        for _ in range(60):
            ids.append(int(model.network.head(model.network.decode(Text.of(new), cache)[:, -1]).argmax()))
            new = torch.tensor([ids[-1:]])
    assert model.tokenizer.decode(ids).startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    )


# --- GGUF ------------------------------------------------------------------------------------------------------------


def write_gguf(path: Path, model: triform.Model, *, quant: object = None, **changes: object) -> None:
    spec = model.spec
    stack, a = spec.decoder, spec.decoder.attention
    writer = gguf_package.GGUFWriter(str(path), "llama")
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.width)
    writer.add_block_count(stack.layers)
    writer.add_feed_forward_length(stack.feedforward.width)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_layer_norm_rms_eps(stack.norm.eps)
    writer.add_rope_freq_base(10_000.0)
    alphabet = gguf_alphabet()
    tokens = [*alphabet, "ab", "<|end|>", *(f"w{n}" for n in range(spec.vocab - len(alphabet) - 2))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(str(changes.get("pre", "smollm")))
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token == "<|end|>" else 1 for token in tokens])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(tokens.index("<|end|>"))
    writer.add_chat_template("{{ messages[0].content }}")
    state = model.network.state_dict()
    tensors = {"token_embd.weight": state["token.weight"], "output_norm.weight": state["decoder.final.weight"]}
    for name, rows in parts(model).items():
        tensors |= {f"blk.{layer}.{name}.weight": x for layer, x in enumerate(rows)}
    for name, x in tensors.items():
        if name == changes.get("without"):
            continue
        data = x.numpy().astype(np.float32)
        if quant is not None and x.dim() == 2 and x.shape[1] % 32 == 0:
            writer.add_tensor(name, gguf_package.quants.quantize(data, quant), raw_dtype=quant)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def test_gguf_into_a_folder(tmp_path: Path) -> None:
    model = triform.build(SPEC, seed=2)
    write_gguf(tmp_path / "m.gguf", model)
    got = gguf.read(tmp_path / "m.gguf")
    assert got.spec == SPEC
    model_folder.write(tmp_path / "out", model=got)
    again = load(tmp_path / "out")
    torch.testing.assert_close(again.logits([[1, 2, 3]]), model.logits([[1, 2, 3]]))
    assert again.tokenizer.decode(again.tokenizer.encode("ab ca").ids) == "ab ca"
    assert again.template.render([{"role": "user", "content": "hello"}]) == "hello"


@pytest.mark.parametrize("quant", ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "F16"])
def test_quantised_gguf_is_close(tmp_path: Path, quant: str) -> None:
    spec = families.llama(vocab=300, width=64, layers=1, heads=4, ff_width=64, context=32, tied=True)
    model = triform.build(spec)
    write_gguf(tmp_path / "m.gguf", model, quant=getattr(gguf_package.GGMLQuantizationType, quant))
    got = gguf.read(tmp_path / "m.gguf", weights="float32").network.state_dict()
    for path, x in model.network.state_dict().items():
        assert float((got[path] - x).abs().max()) <= 0.1 * float(x.abs().max()), path


@pytest.mark.parametrize(("quant", "kind"), [("Q4_0", "q4"), ("Q4_1", "q4"), ("Q8_0", "q8"), ("Q5_0", "q8")])
def test_a_file_keeps_its_blocks(tmp_path: Path, quant: str, kind: str) -> None:
    spec = families.llama(vocab=300, width=64, layers=1, heads=4, ff_width=64, context=32, tied=True)
    path = tmp_path / "m.gguf"
    write_gguf(path, triform.build(spec), quant=getattr(gguf_package.GGMLQuantizationType, quant))
    kept, plain = gguf.read(path), gguf.read(path, weights="float32")
    assert kept.weights == kind
    floats = plain.network.state_dict()
    for name, matrix in find_matrices(kept.network):
        assert torch.equal(matrix.to_float(), floats[name])
    kept.save(tmp_path / "folder")
    again = load(tmp_path / "folder")
    assert torch.equal(again.logits([[1, 2, 3]]), kept.logits([[1, 2, 3]]))
    assert gguf.read(path, weights="q8").weights == "q8"


def test_what_gguf_cannot_be_read_says_why(tmp_path: Path) -> None:
    model = triform.build(SPEC)
    write_gguf(tmp_path / "a.gguf", model, without="blk.1.ffn_up.weight")
    with pytest.raises(TriformError, match=r"missing blk\.1\.ffn_up\.weight"):
        gguf.read(tmp_path / "a.gguf")
    write_gguf(tmp_path / "b.gguf", model, pre="klingon")
    with pytest.raises(TriformError, match="the way of splitting words 'klingon' is not supported"):
        gguf.read(tmp_path / "b.gguf")
    (tmp_path / "c.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(TriformError, match="not a GGUF file that can be read"):
        gguf.read(tmp_path / "c.gguf")


def test_an_unknown_architecture_is_refused_before_its_tensors_are_looked_at(tmp_path: Path) -> None:
    """The file has tensors of a type that cannot be read, and is cut off: neither is worth a word yet."""
    key, value = b"general.architecture", b"mamba"
    pair = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    tensor = struct.pack("<Q", 1) + b"x" + struct.pack("<IQIQ", 1, 1 << 40, 16, 0)
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + pair + tensor)
    with pytest.raises(TriformError, match="the GGUF architecture 'mamba' is not supported"):
        gguf.read(tmp_path / "m.gguf")


def test_a_gguf_file_is_read_without_the_package(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", triform.build(SPEC))
    script = (
        "import sys; sys.modules['gguf'] = None; from triform.cli import main; "
        f"main(['import', {str(tmp_path / 'm.gguf')!r}, '--out', {str(tmp_path / 'out')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "out").spec == SPEC


def test_cut_off_gguf_files_never_crash(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", triform.build(SPEC))
    data = (tmp_path / "m.gguf").read_bytes()
    for length in range(0, len(data), len(data) // 40):
        (tmp_path / "cut.gguf").write_bytes(data[:length])
        with pytest.raises(TriformError, match=r"fetch it again|does not begin with GGUF"):
            gguf.read(tmp_path / "cut.gguf")
