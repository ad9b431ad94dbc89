"""Specs are values: equal when equal, at home in JSON, and refused with the thing, the value and the way out."""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import EVERY

from triform import families
from triform.errors import SpecError, TriformError, UnknownName
from triform.families import FAMILIES, NAMED, even_heads, named, sized
from triform.spec import (
    AttentionSpec,
    Buckets,
    Classify,
    FeedForwardSpec,
    ModelSpec,
    NormSpec,
    Rotary,
    Sinusoid,
    StackSpec,
    Tag,
    from_json,
    replace,
    to_json,
)


@pytest.mark.parametrize("name", EVERY | NAMED)
def test_round_trip_through_json(name: str) -> None:
    spec = (EVERY | NAMED)[name]
    assert from_json(to_json(spec)) == spec
    assert hash(from_json(to_json(spec))) == hash(spec)


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        NAMED["gpt2-small"].width = 3


IMPOSSIBLE = {
    "heads=12 is not a multiple of kv_heads=5; use kv_heads in {1, 2, 3, 4, 6, 12}": lambda: AttentionSpec(
        heads=12, kv_heads=5, head_width=64
    ),
    "width=100 is not a multiple of heads=12": lambda: even_heads(100, 12, bias=True),
    "attention: heads=0 is not a size": lambda: AttentionSpec(heads=0, kv_heads=1, head_width=64),
    "attention: head_width=2.5 is not a size": lambda: AttentionSpec(heads=1, kv_heads=1, head_width=2.5),
    "attention: heads=True is not a size": lambda: AttentionSpec(heads=True, kv_heads=1, head_width=2),
    "feed-forward: act='swish' is not known; use one of relu": lambda: FeedForwardSpec(width=3, act="swish"),
    "norm: eps=0 is out of range": lambda: NormSpec(eps=0),
    "norm: eps=nan is out of range": lambda: NormSpec(eps=float("nan")),
    "norm: kind='batch' is not known": lambda: NormSpec(kind="batch"),
    "rotary rotates pairs, head_width=3 is odd": lambda: families.llama(width=9, heads=3, layers=1),
    "sinusoids come in pairs, width=9 is odd": lambda: families.vaswani(width=9, heads=3, layers=1),
    "rotary: base=0.5 is out of range": lambda: Rotary(base=0.5),
    "buckets: count=30": lambda: Buckets(count=30),
    "sinusoid: layout='both' is not known": lambda: Sinusoid(layout="both"),
    "a Tag head needs an encoder": lambda: replace(families.gpt2(), head=Tag(labels=2)),
    "the first token of a decoder sees only itself": lambda: replace(
        families.gpt2(), head=Classify(labels=2, pick="first")
    ),
    "a Classify head needs a single stack": lambda: replace(families.t5(), head=Classify(labels=2, pick="last")),
    "neither encoder nor decoder is given": lambda: replace(families.gpt2(), decoder=None),
    "dropout=1.0 is out of range": lambda: replace(families.gpt2(), dropout=1.0),
    "vocab=0 is not a size": lambda: families.gpt2(vocab=0),
    "stack: layers=-1 is not a size": lambda: families.gpt2(layers=-1),
    "segment ids are for models with one stack": lambda: replace(families.t5(), embedding=families.bert().embedding),
}


@pytest.mark.parametrize("sentence", IMPOSSIBLE)
def test_impossible_specs_say_the_thing_the_value_and_the_way_out(sentence: str) -> None:
    with pytest.raises(SpecError) as error:
        IMPOSSIBLE[sentence]()
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_an_impossible_spec_in_json_says_where() -> None:
    text = to_json(families.gpt2()).replace('"kv_heads":12', '"kv_heads":5')
    with pytest.raises(SpecError, match=r"use kv_heads in .* at `\$\.decoder\.attention`"):
        from_json(text)


@given(st.binary(max_size=200) | st.text(max_size=200))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_no_text_breaks_the_reader(text: bytes | str) -> None:
    with pytest.raises(TriformError):
        from_json(text)


@given(data=st.data())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_damaged_json_is_refused_or_is_a_spec(data: st.DataObject) -> None:
    text = bytearray(to_json(families.t5()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TriformError):
        assert isinstance(from_json(bytes(text)), ModelSpec)


def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'gpt2-small'"):
        named("gpt2-smal")
    with pytest.raises(UnknownName, match="unknown family 'gpt3'; did you mean 'gpt2'"):
        sized("gpt3", "tiny")
    with pytest.raises(UnknownName, match="Known: mini, small, tiny"):
        sized("gpt2", "enormous")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", families.SMALL_SIZES)
def test_every_family_has_our_sizes(family: str, size: str) -> None:
    spec = sized(family, size, vocab=100)
    assert (spec.vocab, spec.width) == (100, families.SMALL_SIZES[size]["width"])


def test_replace_checks_again() -> None:
    with pytest.raises(SpecError):
        msgspec.structs.replace(AttentionSpec(heads=4, kv_heads=2, head_width=8), kv_heads=3)


def test_stacks_in_the_order_of_the_data() -> None:
    assert list(families.t5().stacks) == ["encoder", "decoder"]
    assert [NAMED[name].form for name in ("bert-base", "gpt2-small", "t5-small")] == [
        "encoder",
        "decoder",
        "encoder-decoder",
    ]
    assert isinstance(families.t5().stacks["encoder"], StackSpec)
