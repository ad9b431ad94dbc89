"""A folder's generation defaults: every field of the reference has a class, and an honoured one gives its tokens.

Both sides read the same folder and are told nothing else, in float64, greedy and with four beams.
"""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from reference_models import NoStepDown, lively
from transformers import GenerationConfig

from triform.errors import TriformError
from triform.generate import sampling
from triform.generate.api import complete, resolve_beam_settings, resolve_settings
from triform.generate.settings import Settings, SettingsError
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.weights import generation_config, model_folder
from triform.weights.generation_config import GENERATION_FILE, HARMLESS, KNOWN_FIELDS, REFUSED

pytestmark = pytest.mark.usefixtures("unchecked")
EOS = 5
PROMPTS = ([7, 9, 11, 9], [30, 8, 30, 8, 41, 12, 30, 8])
OFTEN = {"gpt2": 10, "bart": 36}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": EOS, "decoder_start_token_id": 2}


class Both(NamedTuple):
    """One tiny model as the reference and as ours, and the folder they read their defaults from."""

    theirs: Any
    ours: Model
    path: Path

    def say(self, file: dict[str, Any] | None, **config: Any) -> "Both":
        """The folder with these generation defaults and nothing else, read again by both."""
        (self.path / GENERATION_FILE).unlink(missing_ok=True)
        if file is not None:
            (self.path / GENERATION_FILE).write_text(json.dumps(TOKENS | file))
        fields = json.loads((self.path / "config.json").read_text())
        fields = {name: value for name, value in fields.items() if name not in KNOWN_FIELDS and name not in REFUSED}
        (self.path / "config.json").write_text(json.dumps(fields | TOKENS | config))
        try:
            self.theirs.generation_config = GenerationConfig.from_pretrained(self.path)
        except OSError:  # as `from_pretrained` of a model does where that file is missing
            self.theirs.generation_config = GenerationConfig.from_pretrained(
                self.path, config_file_name="config.json", _from_model_config=True
            )
        return self._replace(ours=self.ours.replace(generation=generation_config.read(fields | TOKENS | config, file)))

    def compare(self, **asked: Any) -> list[list[int]]:
        """What ours writes; the reference writes the same."""
        written = [list(answer.tokens) for answer in complete(self.ours, PROMPTS, **asked)]
        assert written == [self._reference(prompt) for prompt in PROMPTS]
        return written

    def _reference(self, prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.no_grad(), NoStepDown():
            written = self.theirs.generate(ids, attention_mask=torch.ones_like(ids))
        row = written[0, len(prompt) if self.ours.spec.encoder is None else 1 :].tolist()
        return row[: row.index(EOS) + 1] if EOS in row else row


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def read(name: str) -> Both:
        path: Path = tmp_path_factory.mktemp(name)
        model = deepcopy(lively(name))
        with torch.no_grad():  # eos takes the place of a token that this model writes early
            token = model.get_input_embeddings().weight
            token[[EOS, OFTEN[name]]] = token[[OFTEN[name], EOS]]
        model.save_pretrained(path)
        return Both(model, model_folder.read(path, dtype=torch.float64), path)

    return read


CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "min_length": {"min_length": 15},
    "min_new_tokens": {"min_new_tokens": 9},
    "both lengths": {"min_new_tokens": 3, "min_length": 20},
    "max_length": {"max_length": 13},
    "suppress_tokens": {"suppress_tokens": [EOS, 7, 8, 9]},
    "begin_suppress_tokens": {"begin_suppress_tokens": [*range(4, 40)]},
    "begin_suppress_tokens behind a forced one": {
        "begin_suppress_tokens": [*range(4, 40)],
        "forced_bos_token_id": 33,
    },
    "bad_words_ids": {"bad_words_ids": [[EOS], [7], [30, 8, 41], *([a, b] for a in range(60) for b in (3, 9, 59))]},
    "sequence_bias": {"sequence_bias": [[[8], 2.0], [[EOS], -4.0], *([[a, a], -3.5] for a in range(60))]},
    "sequence_bias under a repetition penalty": {
        "sequence_bias": [[[a, 12], 4.0] for a in range(60)],
        "repetition_penalty": 1.7,
    },
    "exponential_decay_length_penalty": {
        "exponential_decay_length_penalty": [3, 1.6],
        "sequence_bias": [[[EOS], -6.0]],
    },
    "forced_bos_token_id": {"forced_bos_token_id": 21},
    "forced_eos_token_id": {"forced_eos_token_id": EOS, "suppress_tokens": [40]},
    "several forced_eos_token_id": {"forced_eos_token_id": [EOS, 44]},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.6},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 2, "sequence_bias": [[[30], 9.0], [[30, 8], 9.0]]},
    "renormalize_logits": {"renormalize_logits": True, "no_repeat_ngram_size": 1},
    "several eos": {"eos_token_id": [EOS, 22, 59], "min_new_tokens": 3},
    "length_penalty": {"length_penalty": 2.0, "min_new_tokens": 4},
    "early_stopping": {"early_stopping": True, "length_penalty": 2.0},
    "early_stopping never": {"early_stopping": "never", "length_penalty": 2.0},
    "as the CNN summarizers": {
        "min_length": 12, "max_length": 26, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "early_stopping": True,
        "forced_bos_token_id": 1, "forced_eos_token_id": EOS,
    },
}  # fmt: skip


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("name", ["gpt2", "bart"])
@pytest.mark.parametrize("case", CASES)
def test_the_folder_alone_gives_the_same_tokens(case: str, name: str, beams: int, both: Any) -> None:
    length = {} if "max_length" in CASES[case] else {"max_new_tokens": 14}
    both(name).say(length | CASES[case] | {"num_beams": beams}).compare()


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]])
def test_each_case_changes_something(case: str, both: Any) -> None:
    """A negative control: without its first field a case gives other tokens, so a field that is dropped would show."""
    length = {} if "max_length" in CASES[case] else {"max_new_tokens": 14}

    def written(file: dict[str, Any]) -> list[list[int]]:
        models = (both(name).say(file | {"num_beams": beams}).ours for name in ("gpt2", "bart") for beams in (1, 4))
        return [list(answer.tokens) for model in models for answer in complete(model, PROMPTS)]

    first, *others = CASES[case]
    without = {name: CASES[case][name] for name in others} | (
        {"max_new_tokens": 14} if first == "max_length" else length
    )
    assert written(length | CASES[case]) != written(without), first


def test_older_models_say_it_in_config_json(both: Any) -> None:
    """Only where there is no generation_config.json: the reference reads one file or the other."""
    old = {"max_length": 20, "min_length": 9, "num_beams": 4, "forced_eos_token_id": EOS, "no_repeat_ngram_size": 2}
    model = both("bart")
    assert all(len(row) >= 8 for row in model.say(None, **old).compare())
    assert model.say(None, **old, force_bos_token_to_be_generated=True).compare()[0][0] == TOKENS["bos_token_id"]
    assert model.say({"max_new_tokens": 6}, **old).ours.generation == GenerationDefaults(
        bos=1, eos=EOS, pad=0, first=2, most_new=6
    )
    model.say({"max_new_tokens": 6}, **old).compare()


def test_the_eos_of_config_json_ends_texts_too(both: Any) -> None:
    assert generation_config.read({"eos_token_id": 9}, {"temperature": 0.5}).ends == (9,)


# --- every field has a class -----------------------------------------------------------------------------------------


def test_every_field_of_the_reference_is_honoured_harmless_or_refused() -> None:
    fields = {name for name in vars(GenerationConfig()) if name != "_original_object_hash"}
    assert fields <= {*KNOWN_FIELDS, *HARMLESS, *REFUSED}
    assert len({*KNOWN_FIELDS, *HARMLESS, *REFUSED}) == len(KNOWN_FIELDS) + len(HARMLESS) + len(REFUSED)


ACTIVE = {
    "max_time": 1.5, "top_h": 0.5, "guidance_scale": 2.0, "watermarking_config": {"bias": 2.0}, "token_healing": True,
    "penalty_alpha": 0.6, "dola_layers": "low", "diversity_penalty": 0.5, "num_beam_groups": 2,
    "constraints": [[1]], "force_words_ids": [[7]], "a_field_of_tomorrow": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVE)
def test_what_cannot_be_done_is_refused_by_name(name: str, both: Any) -> None:
    model = both("gpt2").ours.replace(generation=generation_config.read({}, {name: ACTIVE[name]}))
    with pytest.raises(SettingsError, match=f"{name}=.*not supported"):
        complete(model, PROMPTS)
    for value in (None, *REFUSED.get(name, ())):
        assert generation_config.read({}, {name: value}).unsupported == ()
    older = generation_config.read({name: ACTIVE[name]}, None)
    assert bool(older.unsupported) == (name in REFUSED)


def test_harmless_fields_are_no_trouble() -> None:
    assert generation_config.read({}, dict.fromkeys(HARMLESS, 1)).unsupported == ()


def test_a_refused_default_travels_with_the_folder(both: Any, tmp_path: Path) -> None:
    """Written and read again it is still there, and still refused."""
    path = both("gpt2").say({"penalty_alpha": 0.6, "top_k": 4, "min_new_tokens": 3}).path
    model_folder.write(tmp_path / "again", model=model_folder.read(path))
    again = model_folder.read(tmp_path / "again").generation
    assert again.unsupported == ("penalty_alpha=0.6",)
    assert again.least_new == 3


# --- what is asked goes before ---------------------------------------------------------------------------------------


def test_new_tokens_go_before_lengths(both: Any) -> None:
    model = both("bart").say({"max_length": 20, "min_length": 10}).ours
    assert resolve_settings(model, {}).max_new_tokens(prompt_tokens=1, positions=99) == 19
    asked = resolve_settings(model, {"max_tokens": 30, "min_tokens": 2})
    assert (asked.max_length, asked.min_length) == (0, 0)
    assert asked.max_new_tokens(prompt_tokens=1, positions=99) == 30


def test_a_decoders_max_length_only_bounds(both: Any) -> None:
    model = both("gpt2").say({"max_length": 150}).ours
    assert resolve_settings(model, {}).max_new_tokens(prompt_tokens=4, positions=999) == Settings().max_tokens
    assert resolve_settings(model, {}).max_new_tokens(prompt_tokens=140, positions=999) == 10
    assert resolve_settings(model, {}).max_new_tokens(prompt_tokens=200, positions=999) == 1


def test_sampling_rules_a_folders_beams_out(both: Any) -> None:
    model = both("gpt2").say({"num_beams": 4, "length_penalty": 2.0, "early_stopping": True}).ours
    assert resolve_beam_settings(model, {}) == (4, 2.0, True)
    assert (
        resolve_beam_settings(model, {"temperature": 0.7}).width
        == resolve_beam_settings(model, {"stop": ("a",)}).width
        == 1
    )
    assert resolve_beam_settings(model, {}, beams=2, length_penalty=0.5) == (2, 0.5, True)
    both_at_once = both("gpt2").say({"num_beams": 4, "do_sample": True}).ours
    with pytest.raises(TriformError, match="beam sampling"):
        complete(both_at_once, PROMPTS)
    assert resolve_beam_settings(both_at_once, {"temperature": 0.0}).width == 4
    assert resolve_beam_settings(both_at_once, {}, beams=1).width == 1


# --- sampling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [
        {}, {"temperature": 0.7}, {"top_k": 0}, {"top_k": 7, "top_p": 0.8}, {"top_k": 0, "min_p": 0.05},
        {"top_k": 0, "typical_p": 0.6}, {"top_k": 0, "epsilon_cutoff": 0.02}, {"top_k": 0, "eta_cutoff": 0.1},
        {"top_k": 20, "epsilon_cutoff": 0.01, "eta_cutoff": 0.05},
    ],
    ids=str,
)  # fmt: skip
def test_a_folder_that_samples_gives_the_same_probabilities(file: dict[str, Any], both: Any) -> None:
    """Drawn numbers are each library's own; what they are drawn from is the same."""
    model = both("gpt2").say({"do_sample": True} | file)
    config, _ = model.theirs._prepare_generation_config(None)
    model.theirs._prepare_special_tokens(config, device=torch.device("cpu"))
    logits = torch.randn(61, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2
    processors = model.theirs._get_logits_processor(config, input_ids_seq_length=3, device="cpu")
    expected = processors(torch.tensor([[7, 8, 9]]), logits[None])[0].softmax(-1)
    weights = sampling.compute_weights(logits, resolve_settings(model.ours, {}))
    torch.testing.assert_close(weights / weights.sum(), expected)


# --- what does not fit the model -------------------------------------------------------------------------------------

WRONG: dict[str, Any] = {
    "eos_token_id": 100_000, "temperature": -1.0, "top_p": 7.0, "bad_words_ids": [[600]], "suppress_tokens": [600],
    "forced_bos_token_id": -1, "sequence_bias": [[[600], 1.0]], "num_beams": 0, "top_k": -3, "max_new_tokens": 0,
    "exponential_decay_length_penalty": [-1, 1.0], "early_stopping": "soon", "typical_p": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_default_that_does_not_fit_is_refused_by_file_and_field(name: str, both: Any) -> None:
    """Whatever the caller asks for, and however little."""
    model = both("gpt2").ours.replace(generation=generation_config.read({}, {name: WRONG[name]}), config={})
    for asked in ({}, {"max_tokens": 3, "temperature": 0.5}):
        with pytest.raises(SettingsError, match=f"^generation_config.json: {name}=.* does not fit this model"):
            complete(model, PROMPTS, **asked)


@pytest.mark.parametrize("eos", [-1, 10**18, [0, 100_000]])
def test_an_end_that_no_row_belongs_to(eos: Any, both: Any) -> None:
    model = both("gpt2").ours.replace(generation=generation_config.read({"eos_token_id": 0}, {"eos_token_id": eos}))
    model = model.replace(config={"eos_token_id": 0})
    with pytest.raises(SettingsError, match=r"^generation_config.json or config.json: eos_token_id="):
        complete(model, PROMPTS)


def test_the_first_token_of_a_target_has_a_row(both: Any) -> None:
    model = both("bart").ours
    model = model.replace(
        generation=generation_config.read({}, {"decoder_start_token_id": model.spec.vocab}), config={}
    )
    with pytest.raises(SettingsError, match=r"^generation_config.json: decoder_start_token_id="):
        complete(model, PROMPTS)


def test_a_padding_token_that_nothing_uses_is_no_trouble(both: Any) -> None:
    """The first folders of Llama say -1."""
    model = both("gpt2").ours.replace(generation=generation_config.read({}, {"pad_token_id": -1, "max_new_tokens": 1}))
    assert len(complete(model, PROMPTS)) == len(PROMPTS)
