"""The name tables: every tensor has a place, every place is a view, and both directions are one."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from triform.core.initial_weights import build_network
from triform.families import FAMILIES, NAMED, sized
from triform.parameters import list_tensors
from triform.spec import (
    Alibi,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NoPosition,
    NoScaling,
    Scaling,
    YarnScaling,
    replace,
)
from triform.weights.architectures import choose_architecture
from triform.weights.name_rules import NameTable, TensorPart, expand_braces, ignore, row, same, stack, transpose, twin

SMALL = {name: sized(name, "tiny", vocab=32) for name in FAMILIES}


def parts(spec: ModelSpec) -> tuple[TensorPart, ...]:
    family, name = choose_architecture(spec, {}).architecture
    return family.make_table(name, bare=False).parts(spec)


@pytest.mark.parametrize("name", NAMED)
def test_every_released_size_is_cut_up_without_gap_or_overlap(name: str) -> None:
    found = parts(NAMED[name])
    assert len({part.name for part in found}) == len(found)
    for entry in list_tensors(NAMED[name]).values():
        rows = [(part.first, part.last) for part in found if part.path == entry.path]
        assert [0, *(last for _, last in rows)] == [*(first for first, _ in rows), entry.shape[0]]


@pytest.mark.parametrize("name", SMALL)
def test_out_and_in_again_through_the_views(name: str) -> None:
    spec = SMALL[name]
    source = build_network(spec, seed=1).state_dict()
    file = {part.name: part.view(source[part.path]).clone() for part in parts(spec)}
    assert all(file[part.name].shape == part.shape for part in parts(spec))
    target = {path: torch.full_like(x, torch.nan) for path, x in source.items()}
    for part in parts(spec):
        part.copy_into(file[part.name], target[part.path])
        assert torch.equal(part.view(target[part.path]), file[part.name])
    assert all(torch.equal(x, target[path]) for path, x in source.items())


PLAIN = sorted(set(FAMILIES) - {"vaswani", "embedding_gemma", "smollm3"})
# XLM-RoBERTa and CamemBERT are RoBERTas in every number.
ALIKE = {"vaswani": "triform", "flan_t5": "t5", "xlm_roberta": "roberta", "camembert": "roberta"}
ALIKE |= {"electra_small": "electra", "embedding_gemma": "gemma3_text", "gemma3": "gemma3_text"}


@pytest.mark.parametrize("name", SMALL)
def test_a_family_is_written_as_itself(name: str) -> None:
    spec = SMALL[name]
    family, _ = choose_architecture(spec, {}).architecture
    model_type = ALIKE.get(name, name)
    # Without a window or a bias, these are Llamas in every number; Phi-3 has Mistral's.
    plain = name in ("mistral", "smollm3") and all(kind.rotary != NoPosition() for kind in spec.layer_kinds("decoder"))
    assert family.model_type == model_type or (plain and family.model_type == "llama") or name == "phi3"


sizes = st.fixed_dictionaries(
    {
        "vocab": st.integers(1, 99),
        "width": st.sampled_from([8, 16, 24]),
        "layers": st.integers(1, 3),
        "heads": st.sampled_from([1, 2, 4]),
        "context": st.integers(1, 99),
    }
)
scalings = st.sampled_from(
    [
        NoScaling(),
        LinearScaling(factor=2.5),
        Llama3Scaling(factor=8.0, low=1.0, high=4.0, trained=32),
        YarnScaling(factor=4.0, trained=32, fast=16.0),
        YarnScaling(factor=4.0, trained=32, sharpen=1.5, whole=False),
    ]
)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(PLAIN), sizes, scalings, st.booleans())
def test_whatever_a_family_makes_is_written_as_released(name: str, sizes: dict, scaling: Scaling, tied: bool) -> None:
    own: dict[str, object] = {}
    if name in ("t5", "flan_t5", "qwen3", "gemma3"):
        own["head_width"] = 6
    if name in ("mistral", "qwen2", "qwen3", "phi3", "starcoder2", "olmo2", "granite", "gemma3"):
        own |= {"kv_heads": 1, "ff_width": 10}
    if name == "llama":
        own |= {"scaling": scaling, "tied": tied, "base": 5e5}
    # GPT-NeoX rotates a quarter of a head in pairs.
    assume(name != "gpt_neox" or sizes["width"] // sizes["heads"] % 8 == 0)
    spec = FAMILIES[name](**sizes, **own)
    family, _ = choose_architecture(spec, {}).architecture
    assert family.model_type == (ALIKE | {"phi3": "mistral"}).get(name, name)


def test_what_no_release_can_say_is_ours() -> None:
    family, name = choose_architecture(replace(SMALL["gpt2"], position=Alibi()), {}).architecture
    assert (family.model_type, name) == ("triform", "Triform")


def test_rules() -> None:
    assert expand_braces("a.{b,c}.d") == ("a.b.d", "a.c.d")
    assert stack("x", "h.{q,k,v}").theirs == ("h.q", "h.k", "h.v")
    assert transpose("x", "y").turned
    assert row("x", "y").as_row
    table = NameTable([same("token", "wte"), twin("token.weight", "head.weight"), ignore("h.N.{bias,mask}")])
    assert table.ignores("h.12.bias")
    assert not table.ignores("h.12.weight")
