"""Every setting out of range is one clear line that names it, its value and what would do."""

import math
from typing import Any

import pytest

from triform.errors import TriformError
from triform.generate.settings import Settings, SettingsError, make_settings
from triform.generation_defaults import GenerationDefaults

BAD: list[tuple[str, Any]] = [
    ("max_tokens", 0),
    ("max_tokens", -3),
    ("max_tokens", 2.5),
    ("max_tokens", True),
    ("max_tokens", 10**12),
    ("temperature", math.nan),
    ("temperature", -0.1),
    ("temperature", math.inf),
    ("temperature", "hot"),
    ("top_k", -1),
    ("top_p", 0.0),
    ("top_p", 1.5),
    ("top_p", math.nan),
    ("min_p", -0.1),
    ("typical", 0.0),
    ("repetition_penalty", 0.0),
    ("presence_penalty", math.inf),
    ("frequency_penalty", None),
    ("no_repeat_ngram", -1),
    ("logit_bias", [1, 2]),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {-1: 1.0}),
    ("banned", (-1,)),
    ("banned", "a"),
    ("forced", {-2: 3}),
    ("forced", {0: -3}),
    ("stop", 5),
    ("stop", ("",)),
    ("stop", (b"bytes",)),
    ("stop", {"a": 1}),
    ("stop_ids", ("x",)),
    ("eos", (1.5,)),
    ("ignore_eos", 1),
    ("seed", -1),
    ("seed", 2**64),
    ("logprobs", -1),
    ("n", 0),
    ("lookup", "yes"),
    ("min_tokens", -1),
    ("max_length", 1.5),
    ("min_length", -1),
    ("epsilon", -0.1),
    ("eta", 2.0),
    ("source_penalty", 0.0),
    ("no_source_ngram", -1),
    ("sequence_bias", {(1, -2): 1.0}),
    ("sequence_bias", {(): 1.0}),
    ("sequence_bias", {(1,): math.inf}),
    ("banned_first", (-1,)),
    ("banned_sequences", ((1, 2), ())),
    ("banned_sequences", (1,)),
    ("forced", {0: (1, -3)}),
    ("forced_bos", -1),
    ("length_decay", (-1, 1.0)),
    ("length_decay", (1, 0.0)),
    ("renormalize", 1),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}={value!r}" for name, value in BAD])
def test_a_bad_value_is_one_clear_line(name: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        make_settings({name: value})
    said = str(caught.value)
    assert name in said
    assert "\n" not in said


def test_an_unknown_setting_says_which_is_meant() -> None:
    with pytest.raises(TriformError, match="did you mean 'temperature'"):
        make_settings({"temprature": 1.0})


def test_one_or_many() -> None:
    asked = make_settings({"stop": "x", "eos": 3, "banned": [1, 2]})
    assert (asked.stop, asked.eos, asked.banned) == (("x",), (3,), (1, 2))


def test_what_the_model_likes_gives_way_to_what_is_asked() -> None:
    liked = GenerationDefaults(
        eos=(5, 6), sample=True, top_k=7, forced_last=2, forbidden=((9,), (1, 2)), repetition_penalty=1.1
    )
    asked = make_settings({"top_k": 3}, liked, known={"eos": (1,)})
    assert asked == Settings(
        eos=(5, 6), temperature=1.0, top_k=3, forced={-1: (2,)}, banned=(9,), banned_sequences=((1, 2),),
        repetition_penalty=1.1,
    )  # fmt: skip
    assert make_settings({}, GenerationDefaults(), known={"eos": (1,)}) == Settings(eos=(1,))
