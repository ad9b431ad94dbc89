"""The same tokens as the reference implementation writes, greedy and with beams, on tiny random models."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from reference_models import CASES, PAD, T5S, VOCAB, NoStepDown, is_pair, lively

from triform.generate.api import complete
from triform.weights import model_folder

pytestmark = pytest.mark.usefixtures("unchecked")
NAMES = ["gpt2", "llama", "mistral", "qwen3", "gpt-neox", "olmo2", "t5", "t5-v1.1", "bart", "marian", "m2m100"]
MORE = ["opt", "phi3", "phi3-longrope", "starcoder2", "bloom", "granite", "mt5", "mbart", "pegasus"]
EVERY = [*NAMES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
EOS, START, COUNT = 5, 2, 14


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def read(name: str) -> Any:
        path: Path = tmp_path_factory.mktemp(name)
        lively(name).save_pretrained(path)
        return model_folder.read(path, dtype=torch.float64)

    return read


def prompts(name: str) -> list[list[int]]:
    generator = torch.Generator().manual_seed(len(name))
    return [torch.randint(6, VOCAB, (length,), generator=generator).tolist() for length in (1, 4, 9, 17)]


def theirs(name: str, prompt: list[int], **asked: Any) -> list[list[int]]:
    model = lively(name)
    asked = {"max_new_tokens": COUNT, "eos_token_id": EOS, "pad_token_id": PAD, "do_sample": False} | asked
    asked |= {"forced_eos_token_id": asked.get("forced_eos_token_id")}
    ids = torch.tensor([prompt])
    if is_pair(name):
        asked["decoder_start_token_id"] = START
        asked["use_cache"] = CASES[name].family not in T5S  # theirs counts the encoder's layers, and fails
    with torch.no_grad(), NoStepDown():
        written = model.generate(ids, attention_mask=torch.ones_like(ids), **asked)
    rows = written[:, 1 if is_pair(name) else len(prompt) :].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]


def mine(model: Any, given: list[list[int]], **asked: Any) -> list[list[int]]:
    answers = complete(model, given, start=START, **({"max_tokens": COUNT, "eos": EOS, "forced": {}} | asked))
    assert all(answer.finish == ("eos" if answer.tokens[-1] == EOS else "length") for answer in answers)
    return [list(answer.tokens) for answer in answers]


@pytest.mark.parametrize("name", EVERY)
def test_greedy(name: str, ours: Any) -> None:
    given = prompts(name)
    assert mine(ours(name), given) == [theirs(name, prompt)[0] for prompt in given]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("width", "penalty", "stopping"), [(2, 1.0, False), (4, 1.0, True), (4, 0.5, "never"), (3, 2.0, False)]
)
def test_beams(name: str, width: int, penalty: float, stopping: Any, ours: Any) -> None:
    given = prompts(name)
    found = mine(ours(name), given, beams=width, length_penalty=penalty, early_stopping=stopping, n=2)
    expected = [
        theirs(
            name, prompt, num_beams=width, length_penalty=penalty, early_stopping=stopping, num_return_sequences=2
        )
        for prompt in given
    ]  # fmt: skip
    assert found == [row for rows in expected for row in rows]


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_penalties_bans_and_forced_endings(name: str, ours: Any) -> None:
    given = prompts(name)[1::2]
    for their_names, our_names in (
        ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram": 2}),
        ({"bad_words_ids": [[7], [9], [11]]}, {"banned": (7, 9, 11)}),
        ({"forced_eos_token_id": EOS}, {"forced": {-1: EOS}}),
        ({"sequence_bias": [[[8], 2.0]]}, {"logit_bias": {8: 2.0}}),
    ):
        for beams in (1, 3):
            found = mine(ours(name), given, beams=beams, **our_names)
            assert found == [theirs(name, prompt, num_beams=beams, **their_names)[0] for prompt in given], our_names


def test_the_models_do_not_all_say_the_same() -> None:
    """A negative control for this file: texts are of several lengths and end in several ways."""
    texts = [tuple(theirs(name, prompt)[0]) for name in ("gpt2", "t5") for prompt in prompts(name)]
    assert len(set(texts)) == len(texts)
    assert {CASES[name].family for name in NAMES} >= {"GPT2", "Llama", "T5", "Marian"}
