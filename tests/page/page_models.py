"""A model of each form that reads words and has opinions, with a word that attacks every screen among them."""

from functools import cache

import tokenizers
import torch

from triform import families
from triform.core.initial_weights import build
from triform.generation_defaults import Generation
from triform.model import Model
from triform.page.requests import Run
from triform.page.session import Looker
from triform.spec import ModelSpec
from triform.text.tokenizer import Tokenizer

HOSTILE = '</script><img/src=x/onerror="document.title=1">\u202e\u2066&amp;'
WORDS = ["the", "fat", "ginger", "cat", "sat", "on", "a", "mat", "mole", "sea", "lion", HOSTILE, "<mask>"]
SIZES = {"vocab": len(WORDS), "width": 16, "layers": 2, "heads": 4, "context": 2100}
SPECS: dict[str, ModelSpec] = {
    "encoder": families.bert(**SIZES),
    "decoder": families.llama(**SIZES, kv_heads=2),
    "encoder-decoder": families.vaswani(**SIZES),
}
FORMS = list(SPECS)
SPECS["long decoder"] = families.llama(**SIZES | {"context": 4096}, kv_heads=2)
TEXT = f"the fat ginger cat sat on {HOSTILE} a mat"
LONG = " ".join(WORDS[i * i % 11] for i in range(2000))
LONGEST = " ".join(WORDS[i * i % 11] for i in range(4096))


@cache
def words() -> Tokenizer:
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, "the"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return Tokenizer(core, special={"mask": "<mask>"})  # without an end: it writes on


@cache
def loaded(form: str) -> Model:
    """First numbers are too small for heads to matter: matrices are made larger."""
    network = build(SPECS[form])
    dice = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=dice) * 1.5 / parameter.shape[-1] ** 0.5)
    return Model(SPECS[form], network, words(), generation=Generation(first=0))


def looker(form: str) -> Looker:
    return Looker(f"tiny {form}", loaded(form))


def run(text: str = TEXT, **more: object) -> Run:
    return Run(text=text, **more)  # type: ignore[arg-type]
