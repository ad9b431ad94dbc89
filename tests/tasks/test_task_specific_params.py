"""`task_specific_params`: the released summarizers' and T5's defaults, for the task that is asked for."""

from typing import Any

import pytest
import torch

from triform import families
from triform.core.initial_weights import build_network
from triform.errors import TriformError
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.tasks.summarize import SummarizeTask
from triform.tasks.translate import TranslateTask
from triform.text.train_tokenizer import train_tokenizer

CNN = {
    "early_stopping": True, "length_penalty": 2.0, "max_length": 24, "min_length": 12, "no_repeat_ngram_size": 3,
    "num_beams": 4,
}  # fmt: skip
PAIRS = {
    "translation_en_to_de": {"max_length": 12, "num_beams": 2, "prefix": "translate English to German: "},
    "translation_en_to_fr": {"max_length": 12, "num_beams": 2, "prefix": "translate English to French: "},
}


@pytest.fixture(scope="module")
def model() -> Model:
    """A model that ends its texts at once where nothing keeps it from that."""
    tokenizer = train_tokenizer(["the cat sat on a mat"] * 4, kind="bpe", vocab=280, ends=True)
    spec = families.bart(vocab=tokenizer.vocab, width=16, layers=1, heads=2, context=64)
    network = build_network(spec, dtype=torch.float64)
    with torch.no_grad():
        network.readout.shift[tokenizer.eos] = 9.0
    return Model(
        spec=spec,
        network=network,
        tokenizer=tokenizer,
        generation=GenerationDefaults(eos=tokenizer.eos, first=tokenizer.eos),
    )


class ShortTokens(SummarizeTask):
    def answer(self, question: str, prompt: Any, written: Any, *, model: Model) -> Any:
        return prompt.ids, written.tokens


class PairTokens(TranslateTask):
    def answer(self, question: str, prompt: Any, written: Any, *, model: Model) -> Any:
        return prompt.ids, written.tokens


def saying(model: Model, **config: Any) -> Model:
    return model.replace(config={"task_specific_params": config})


def test_a_summarizer_writes_as_long_as_its_task_says(model: Model) -> None:
    (_, short), *_ = ShortTokens().run(["the cat sat"], model=model)
    assert short == (model.require_tokenizer().eos,)
    (_, long), *_ = ShortTokens().run(["the cat sat"], model=saying(model, summarization=CNN))
    assert len(long) == 12  # min_length counts the token that a target begins with
    assert long[-1] == model.require_tokenizer().eos
    (_, asked), *_ = ShortTokens().run(
        ["the cat sat"], model=saying(model, summarization=CNN), options=ShortTokens().options(min_tokens=3, beams=1)
    )
    assert len(asked) == 4


def test_the_folders_max_length_is_the_length_of_an_answer(model: Model) -> None:
    folder_says = model.replace(
        generation=GenerationDefaults(eos=model.require_tokenizer().eos, first=1, longest=40, shortest=40)
    )
    (_, long), *_ = ShortTokens().run(["the cat sat"], model=folder_says)
    assert len(long) == 39
    (_, asked), *_ = ShortTokens().run(["the cat sat"], model=folder_says, options=ShortTokens().options(max_tokens=5))
    assert len(asked) == 5


def test_a_prefix_stands_before_every_text_once(model: Model) -> None:
    said = saying(model, summarization={"prefix": "summarize: "})
    read = [ids for ids, _ in ShortTokens().run(["a cat", "summarize: a cat"], model=said)]
    assert read[0] == read[1] == model.require_tokenizer().encode("summarize: a cat").ids
    trained_here = said.replace(memo={"task": "summarize"})
    assert (
        next(iter(ShortTokens().run(["a cat"], model=trained_here)))[0] == model.require_tokenizer().encode("a cat").ids
    )


def test_a_language_pair_is_the_one_that_is_asked_for(model: Model) -> None:
    said = saying(model, **PAIRS)
    expected = model.require_tokenizer().encode("translate English to French: a cat").ids
    for pair in ("en-fr", "en_to_fr", "translation_en_to_fr"):
        assert (
            next(iter(PairTokens().run(["a cat"], model=said, options=PairTokens().options(pair=pair))))[0] == expected
        )
    assert next(iter(PairTokens().run(["translate English to French: a cat"], model=said)))[0] == expected
    with pytest.raises(TriformError, match="several pairs; say which: pair='en-de' or 'en-fr'"):
        list(PairTokens().run(["a cat"], model=said))
    with pytest.raises(TriformError, match="unknown language pair 'en-it'"):
        list(PairTokens().run(["a cat"], model=said, options=PairTokens().options(pair="en-it")))
    with pytest.raises(TriformError, match="names no language pairs"):
        list(PairTokens().run(["a cat"], model=model, options=PairTokens().options(pair="en-it")))
    only = saying(model, translation_en_to_de=PAIRS["translation_en_to_de"])
    german = model.require_tokenizer().encode("translate English to German: a cat").ids
    assert next(iter(PairTokens().run(["a cat"], model=only)))[0] == german


def test_what_cannot_be_done_is_refused_by_name(model: Model) -> None:
    """A field of a task is used, harmless or refused, as in generation_config.json."""
    for field, value, shown in (("num_beam_groups", 2, "2"), ("sharpness", 0.5, "0.5")):
        said = saying(model, summarization=CNN | {field: value})
        with pytest.raises(TriformError, match=f"use {field}={shown}, which is not supported"):
            list(ShortTokens().run(["the cat sat"], model=said))
    harmless = {"use_cache": True, "num_beam_groups": 1, "diversity_penalty": 0.0, "sharpness": None, "prefix": "s: "}
    assert list(ShortTokens().run(["the cat sat"], model=saying(model, summarization=CNN | harmless)))


def test_a_task_takes_back_what_the_folder_asks_for(model: Model) -> None:
    asks = model.replace(
        generation=GenerationDefaults(eos=model.require_tokenizer().eos, first=1, unsupported=("num_beam_groups=2",))
    )
    assert list(ShortTokens().run(["the cat"], model=saying(asks, summarization=CNN | {"num_beam_groups": 1})))
    with pytest.raises(TriformError, match="use num_beam_groups=2"):
        list(ShortTokens().run(["the cat"], model=saying(asks, summarization=CNN)))
