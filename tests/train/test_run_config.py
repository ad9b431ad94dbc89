"""The config: there and back as TOML, set key by key, and clear about what it does not know."""

import math
import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triform.errors import TriformError, UnknownName
from triform.train.run_config import RANGES, Config, find_differences, parse_config, read_toml


def test_there_and_back() -> None:
    config = Config(steps=100, lora=("*.qkv", 'odd"name\\'), dropout=0.1, schedule="linear", compile=True, minutes=1.5)
    assert parse_config(config.to_toml()) == config
    assert parse_config(Config().to_toml()) == Config()
    assert parse_config("") == Config()


@given(st.text(), st.floats(1e-300, 99), st.integers(0, 2**63 - 1))
def test_any_value_there_and_back(glob: str, rate: float, seed: int) -> None:
    config = Config(freeze=(glob,), learning_rate=rate, seed=seed)
    if "\x7f" not in glob:  # TOML has no place for this one
        assert parse_config(config.to_toml()) == config


def test_settings_as_they_are_typed() -> None:
    typed = ["learning_rate=1e-3", "steps=20", "schedule=linear", "freeze=token.weight, *.bias"]
    typed += ["dropout=none", "recompute=true"]
    config = Config(dropout=0.5).with_settings(typed)
    expected = Config(
        learning_rate=1e-3, steps=20, schedule="linear", freeze=("token.weight", "*.bias"), recompute=True
    )
    assert config == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learning_rat = 0.1", "did you mean 'learning_rate'"),
        ("steps = -1", "steps=-1 is out of range; use 0 to"),
        ("steps = 'many'", "steps=many is not valid; use a whole number or none"),
        ("schedule = 'square'", "schedule=square is not valid; use cosine, linear, "),
        ("learning_rate = nan", "out of range"),
        ("clip = inf", "clip=inf is out of range; use 0 to 1e+09"),
        ("minutes = inf", "minutes=inf is out of range"),
        ("steps = ", "not valid TOML"),
        ("[table]", "unknown config key 'table'"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(TriformError) as error:
        parse_config(text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "typed", ["lora=*.qkv,*.out", 'lora=["*.qkv", "*.out"]', "lora='*.qkv', '*.out'", "lora= *.qkv , *.out ,"]
)
def test_lists_as_they_are_typed_and_as_toml_has_them(typed: str) -> None:
    assert Config().with_settings([typed]).lora == ("*.qkv", "*.out")


def test_every_setting_is_taken_as_run_toml_writes_it() -> None:
    config = Config(
        task="tag", base="a b", family="bert", width=8, layers=1, heads=2, context=9, tokenizer="bpe", steps=3,
        epochs=2, minutes=0.5, dropout=0.5, columns={"text": "a b", "labels": 2}, format="csv",
        freeze=("*.bias", "token, x"), lora=('odd"name',), compile=True,
    )  # fmt: skip
    lines = config.to_toml().splitlines()
    assert len(lines) == len(Config.__struct_fields__)
    assert Config().with_settings(lines) == config


@pytest.mark.parametrize("name", Config.__struct_fields__)
def test_a_value_that_does_not_fit_is_answered_with_those_that_do(name: str) -> None:
    """No setting answers with a library's words, or with more than a line."""
    wrong = "[1]" if name in ("freeze", "lora", "task", "base", "family", "size") else "bf16,"
    if Config.__annotations__[name] in (str, str | None):
        assert getattr(Config().with_settings([f"{name}=12"]), name) == "12"
        return
    with pytest.raises(TriformError) as error:
        Config().with_settings([f"{name}={wrong}"])
    said = str(error.value)
    assert said.startswith(f"{name}=")
    assert "; use " in said
    assert "`" not in said
    assert len(said) < 160


def test_precision_names_its_values() -> None:
    with pytest.raises(TriformError, match="precision=bf16 is not valid; use float32 or bfloat16"):
        Config().with_settings(["precision=bf16"])
    with pytest.raises(TriformError, match="is not a list; write a,b"):
        Config().with_settings(['lora=["*.qkv"'])


def test_settings_that_set_nothing() -> None:
    with pytest.raises(UnknownName, match="did you mean 'batch_tokens'"):
        Config().with_settings(["batch_token=3"])
    with pytest.raises(TriformError, match="write key=value"):
        Config().with_settings(["steps"])
    with pytest.raises(TriformError, match="cannot read"):
        read_toml("/nowhere/run.toml")


def test_differences_are_named() -> None:
    assert find_differences(Config(), Config(save_every=9)) == []
    assert find_differences(Config(), Config(seed=2, steps=5)) == ["seed was 0, is 2", "steps was None, is 5"]


def test_every_number_has_a_range() -> None:
    fields = {field.name: field.default for field in msgspec.structs.fields(Config)}
    numbers = {name for name, value in fields.items() if type(value) in (int, float)}
    assert numbers <= RANGES.keys()
    assert all(math.isfinite(end) for ends in RANGES.values() for end in ends), "JSON has no word for infinity"
    assert tomllib.loads(Config().to_toml())["seed"] == 0


def test_a_long_list_of_names_is_told_in_part() -> None:
    paths = [f"encoder.blocks.{n}.attention.f.qkv.weight" for n in range(80)]
    said = str(UnknownName("path of weights to freeze", "encoder.blocks.7.attention.qkv", paths))
    assert "encoder.blocks.7.attention.f.qkv.weight" in said
    assert said.endswith("and 75 more")
    assert len(said) < 500
