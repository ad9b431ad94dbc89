"""Text in, text out: pieces join to the whole, stop strings cut exactly, streamed is whole is batched."""

from typing import Any

import pytest
import tokenizers
import torch
from tiny_engines import START, tiny
from tokenizers import decoders, models, pre_tokenizers

from triform.core.initial_weights import build_network
from triform.errors import InputError, UnknownName
from triform.families import gpt2, t5
from triform.generate.api import GeneratedText, complete, make_engine, stream
from triform.generate.settings import Request, Settings
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.text.stream_decoder import BYTE_OF
from triform.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("unchecked")
EOS = 256


def letters() -> Tokenizer:
    """A byte a token: every character beyond ASCII straddles tokens."""
    core = tokenizers.Tokenizer(models.BPE(vocab=dict(BYTE_OF), merges=[]))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    core.add_special_tokens(["<end>"])
    return Tokenizer(core, special={"eos": "<end>"})


def model(form: str = "decoder", **more: Any) -> Model:
    sizes = {"vocab": 257, "width": 16, "layers": 2, "heads": 2, "context": 200}
    spec = gpt2(**sizes) if form == "decoder" else t5(**sizes, head_width=8)
    network = build_network(spec, seed=3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return Model(spec, network, letters(), **more)


DECODER, PAIR = model(), model("pair", generation=GenerationDefaults(first=START))
ONLY_TEXT = {"banned": tuple(range(0x80, 0x101))}


@pytest.mark.parametrize("of", [DECODER, PAIR], ids=["decoder", "pair"])
def test_pieces_join_to_the_full_decoding(of: Model) -> None:
    broken = 0
    for seed in range(12):
        events = list(stream(of, "Grüße", max_tokens=40, temperature=1.5, seed=seed))
        ids = [event.token for event in events if event.token != EOS]
        whole = of.tokenizer.decode(ids)
        assert "".join(event.text for event in events) == whole
        broken += whole.count("\ufffd")
    assert broken > 0  # random bytes: there was something to hold back


def test_stop_strings_cut_exactly_where_they_begin() -> None:
    free = "".join(event.text for event in stream(DECODER, "ab", max_tokens=60, temperature=1.0, seed=1, **ONLY_TEXT))
    assert len(free) == 60
    for at in range(0, 50, 13):
        for stop in (free[at : at + 1], free[at : at + 3], free[at : at + 9]):
            events = list(
                stream(DECODER, "ab", max_tokens=60, temperature=1.0, seed=1, stop=["~~~~", stop], **ONLY_TEXT)
            )
            assert "".join(event.text for event in events) == free[: free.index(stop)]
            assert events[-1].finish == "stop"
            assert len(events) == free.index(stop) + len(stop)  # a token a letter, and none after the stop


def test_text_held_back_for_a_stop_string_comes_at_the_end() -> None:
    free = list(stream(DECODER, "ab", max_tokens=6, temperature=1.0, seed=1, **ONLY_TEXT))
    text = "".join(event.text for event in free)
    events = list(stream(DECODER, "ab", max_tokens=6, temperature=1.0, seed=1, stop=text[3:] + "~", **ONLY_TEXT))
    assert [event.text for event in events] == [*text[:3], "", "", text[3:]]
    assert events[-1].finish == "length"


@pytest.mark.parametrize("of", [DECODER, PAIR], ids=["decoder", "pair"])
def test_streamed_is_whole_is_batched(of: Model) -> None:
    prompts = ["a", "a longer prompt here", "Käse", "zz"]
    asked = {"max_tokens": 12, "temperature": 0.9, "top_p": 0.95, "seed": 7, "n": 3}
    answers = complete(of, prompts, **asked)
    assert [(answer.prompt, answer.sample) for answer in answers] == [(p, n) for p in range(4) for n in range(3)]
    for at, prompt in enumerate(prompts):
        events = list(stream(of, prompt, **asked))
        for sample in range(3):
            row = [event for event in events if event.sample == sample]
            answer = answers[3 * at + sample]
            assert answer.text == "".join(event.text for event in row)
            assert answer.tokens == tuple(event.token for event in row)
            assert answer.logprob == sum(event.logprob for event in row)
            assert answer.finish == row[-1].finish
    ids = [list(of.tokenizer.encode(prompt).ids) for prompt in prompts]
    assert complete(of, ids, **asked) == answers


def test_the_end_of_the_tokenizer_ends_a_text_unless_told_otherwise() -> None:
    bias = {"logit_bias": {EOS: 1000.0}}
    answer = complete(DECODER, ["a"], max_tokens=5, **bias)[0]
    assert (answer.tokens, answer.text, answer.finish) == ((EOS,), "", "eos")
    assert complete(DECODER, ["a"], max_tokens=5, ignore_eos=True, **bias)[0].tokens == (EOS,) * 5
    assert complete(DECODER, ["a"], max_tokens=5, eos=(), **bias)[0].finish == "length"


def test_what_the_model_likes_is_what_it_does() -> None:
    likes = DECODER.replace(generation=GenerationDefaults(eos=(EOS, 1), forced_first=65, forced_last=66))
    answer = complete(likes, ["a"], max_tokens=4)[0]
    assert answer.text[0] == letters().decode([65])
    assert answer.tokens[-1] == 66
    assert (
        complete(likes, ["a"], max_tokens=4, forced={}, forced_bos=None)[0] == complete(DECODER, ["a"], max_tokens=4)[0]
    )


@pytest.mark.parametrize("of", [DECODER, PAIR], ids=["decoder", "pair"])
def test_beams_are_the_best_first(of: Model) -> None:
    answers = complete(of, ["abc", "d"], beams=4, n=3, max_tokens=8, length_penalty=0.0)
    assert [(answer.prompt, answer.sample) for answer in answers] == [(p, n) for p in range(2) for n in range(3)]
    for first in (0, 3):
        scores = [answer.logprob for answer in answers[first : first + 3]]
        assert scores == sorted(scores, reverse=True)
    sampling = of.replace(generation=GenerationDefaults(sample=True, first=START))
    assert complete(sampling, ["abc", "d"], beams=4, n=3, max_tokens=8, length_penalty=0.0) == answers
    greedy = complete(of, ["abc", "d"], max_tokens=8)
    assert answers[0].logprob >= greedy[0].logprob - 1e-9
    assert all(answer.text == of.tokenizer.decode([t for t in answer.tokens if t != EOS]) for answer in answers)


def test_an_engine_of_a_model_speaks_its_text() -> None:
    engine = make_engine(PAIR, rows=2)
    engine.add(Request(prompt=PAIR.tokenizer.encode("abc").ids, settings=Settings(max_tokens=3, stop=("x",))))
    assert isinstance("".join(event.text for _ in range(4) for event in engine.step()), str)


@pytest.mark.parametrize(
    ("of", "prompts", "asked", "said"),
    [
        (DECODER, "not a list", {}, "list of prompts"),
        (DECODER, [], {}, "list of prompts"),
        (DECODER, [1, 2], {}, "list of prompts"),
        (DECODER, [""], {}, "empty"),
        (DECODER, ["a" * 201], {}, "201 tokens, the model reads 200"),
        (DECODER, ["a"], {"max_tokens": 0}, "max_tokens=0"),
        (DECODER, ["a"], {"stop": 5}, "stop=5"),
        (DECODER.replace(tokenizer=None), ["a"], {}, "no tokenizer"),
        (DECODER.replace(tokenizer=None), [[1]], {"stop": "x"}, "tokenizer"),
        (PAIR.replace(generation=GenerationDefaults()), ["a"], {}, "start"),
        (tiny("bert"), [[1]], {}, "encoder"),
    ],
)
def test_bad_input_is_one_clear_line(of: Any, prompts: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError if "=" not in said else ValueError, match=said) as caught:
        complete(of, prompts, **asked)
    assert "\n" not in str(caught.value)


def test_errors_come_before_the_first_event() -> None:
    with pytest.raises(UnknownName):
        stream(DECODER, "a", max_token=3)
    with pytest.raises(InputError, match="empty"):
        stream(DECODER, [])


def test_answers_are_values() -> None:
    assert complete(DECODER, ["a"], max_tokens=2) == complete(DECODER, ["a"], max_tokens=2)
    assert isinstance(complete(DECODER, ["a"], max_tokens=2)[0], GeneratedText)


def test_one_text_has_one_answer() -> None:
    (in_a_list,) = DECODER.complete(["a"], max_tokens=2)
    assert DECODER.complete("a", max_tokens=2) == in_a_list
    assert PAIR.complete("a", max_tokens=2, beams=2) == PAIR.complete(["a"], max_tokens=2, beams=2)[0]
    assert len(DECODER.complete(["a"], max_tokens=2, n=3)) == 3
    with pytest.raises(InputError, match="n=3 gives several answers; put the prompt into a list"):
        DECODER.complete("a", max_tokens=2, n=3)  # type: ignore[call-overload]
