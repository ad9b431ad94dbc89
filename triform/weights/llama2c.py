"""llama2.c's files: seven whole numbers, then the tensors of a Llama one behind another in float32.

The length of the file is checked before anything is read.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from triform import families
from triform.core.initial_weights import build_network
from triform.files.errors import FileError
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.spec import ModelSpec
from triform.text.build_tokenizer import add_ends
from triform.text.sentencepiece import build_from_pieces, parse_llama2c
from triform.text.tokenizer import Tokenizer

HEAD = struct.Struct("<7i")
MAX_TOKENIZER_BYTES = 16 << 20


class Llama2cSizes(NamedTuple):
    """The seven numbers at the beginning; with a negative vocabulary the output matrix is not tied."""

    width: int
    ff_width: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    context: int

    def spec(self) -> ModelSpec:
        sizes = self._asdict() | {"vocab": abs(self.vocab)}
        return families.llama(**sizes, tied=self.vocab > 0)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes in the order of the file; the names are ours."""
        layers, kv = self.layers, self.width // self.heads * self.kv_heads
        shapes: dict[str, tuple[int, ...]] = {
            "token": (abs(self.vocab), self.width),
            "attention norm": (layers, self.width),
            "q": (layers, self.width, self.width),
            "k": (layers, kv, self.width),
            "v": (layers, kv, self.width),
            "out": (layers, self.width, self.width),
            "feedforward norm": (layers, self.width),
            "gate": (layers, self.ff_width, self.width),
            "down": (layers, self.width, self.ff_width),
            "up": (layers, self.ff_width, self.width),
            "final": (self.width,),
            "cos": (self.context, self.width // self.heads // 2),  # tables that can be computed
            "sin": (self.context, self.width // self.heads // 2),
        }
        return shapes if self.vocab > 0 else shapes | {"own": (abs(self.vocab), self.width)}


def read(path: Path, *, tokenizer: Path | None) -> Model:
    """The model in a llama2.c file, with the tokenizer file that goes with it."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD.size)
            if len(head) < HEAD.size:
                raise FileError(f"{path} is not a llama2.c file: it has only {len(head)} bytes")
            sizes = Llama2cSizes(*HEAD.unpack(head))
            spec = _spec(sizes, path)
            shapes = sizes.tensors()
            wanted = HEAD.size + 4 * sum(torch.Size(shape).numel() for shape in shapes.values())
            if path.stat().st_size != wanted:
                raise FileError(f"{path} has {path.stat().st_size} bytes; a llama2.c file of {sizes} has {wanted}")
            read = {name: _floats(file.read(4 * torch.Size(shape).numel()), shape) for name, shape in shapes.items()}
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    network = build_network(spec)
    network.load_state_dict(_state(read, sizes))
    words = None if tokenizer is None else read_tokenizer(tokenizer, vocab=spec.vocab)
    return Model(spec=spec, network=network, tokenizer=words, generation=GenerationDefaults(bos=1, eos=2))


def _spec(sizes: Llama2cSizes, path: Path) -> ModelSpec:
    try:
        if min(sizes._replace(vocab=abs(sizes.vocab))) < 1 or max(map(abs, sizes)) > 2**24:
            raise FileError(f"its sizes would be {tuple(sizes)}")
        return sizes.spec()
    except ValueError as error:
        raise FileError(f"{path} is not a llama2.c file: {error}") from None


def _floats(data: bytes, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.float32).view(shape)


def _state(read: dict[str, Tensor], sizes: Llama2cSizes) -> dict[str, Tensor]:
    state = {"token.weight": read["token"], "decoder.final.weight": read["final"]}
    if "own" in read:
        state["readout.own"] = read["own"]
    for layer in range(sizes.layers):
        path = f"decoder.blocks.{layer}"
        q = half_split(read["q"][layer], heads=sizes.heads)
        k = half_split(read["k"][layer], heads=sizes.kv_heads)
        state |= {
            f"{path}.attention.before.weight": read["attention norm"][layer],
            f"{path}.attention.f.qkv.weight": torch.cat((q, k, read["v"][layer])),
            f"{path}.attention.f.out.weight": read["out"][layer],
            f"{path}.feedforward.before.weight": read["feedforward norm"][layer],
            f"{path}.feedforward.f.up.weight": torch.cat((read["gate"][layer], read["up"][layer])),
            f"{path}.feedforward.f.down.weight": read["down"][layer],
        }
    return state


def half_split(x: Tensor, *, heads: int) -> Tensor:
    """Rows of q or k with neighbouring rotary pairs (x0, x1), in the order of halves (x0, xK/2) that our core and
    Hugging Face files use. Meta's files, llama2.c and GGUF have neighbours."""
    return x.view(heads, -1, 2, *x.shape[1:]).transpose(1, 2).reshape(x.shape)


def read_tokenizer(path: Path, *, vocab: int) -> Tokenizer:
    """The tokenizer of a llama2.c model."""
    try:
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            raise FileError(f"{path} is larger than any tokenizer of llama2.c")
        model = parse_llama2c(path.read_bytes(), what=str(path))
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    if len(model.pieces) != vocab:
        raise FileError(f"{path} has {len(model.pieces)} pieces, the model {vocab} tokens: not a pair")
    core = build_from_pieces(model, what=str(path))
    add_ends(core, bos=model.special["bos"])
    return Tokenizer(core, special=model.special)
