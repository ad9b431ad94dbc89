"""Reference → ours → reference: the same bits, the same answers, the same config; in all spellings of a folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from reference_models import CASES, CASTS, COMPUTED_TABLES, EVERY, answer, apart, real, reference, texts
from safetensors.torch import load_file, save_file

from triform.model import Model
from triform.weights import model_folder

# Tensors of the reference that we lay aside; a folder of ours does not have them.
ASIDE = {"bert-pretraining": ("bert.pooler", "cls.seq_relationship")}


def edited(source: Path, target: Path, **changes: Any) -> Path:
    """A copy of the folder with other fields in its config; None takes a field away."""
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return target


def back(name: str, path: Path) -> Any:
    model, info = getattr(transformers, CASES[name].architecture).from_pretrained(
        path, dtype=torch.float64, output_loading_info=True
    )
    aside = (*ASIDE.get(name, ()), *computed_tables(name), "roformer.encoder.embed", "encoder.embed_positions")
    missing = [key for key in info["missing_keys"] if not key.startswith(aside)]
    assert not missing
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


def computed_tables(name: str) -> tuple[str, ...]:
    """Sinusoids of the reference that no file needs to hold: it computes them itself."""
    places = tuple(f"{prefix}{side}.embed_positions" for prefix in ("", "model.") for side in ("encoder", "decoder"))
    return places if CASES[name].architecture.startswith(COMPUTED_TABLES) else ()


def same_tensors(name: str, model: Any) -> None:
    theirs, again = reference(name).state_dict(), model.state_dict()
    assert set(theirs) == set(again)
    for key, x in theirs.items():
        aside = (*ASIDE.get(name, ()), *computed_tables(name), "roformer.encoder.embed")
        if not key.startswith(aside) and not (name.startswith("roformer") and "embed_positions" in key):
            assert x.dtype == again[key].dtype
            assert torch.equal(x, again[key]), key


@EVERY
@torch.no_grad()
def test_bits_and_answers_come_back(name: str, ours: Any, tmp_path: Path) -> None:
    model_folder.write(tmp_path / "out", model=ours(name))
    model = back(name, tmp_path / "out")
    same_tensors(name, model)
    given = texts(3, 33, "right")
    their = reference(name)
    their.set_attn_implementation("sdpa")
    # Not in the file but computed anew, in float32: the rotary and sinusoid tables of the families that step down.
    limit = 1e-6 if CASES[name].family in CASTS else 1e-12
    assert apart(real(answer(name, model, given), given, name), real(answer(name, their, given), given, name)) <= limit
    assert same_config(their, model)


def same_config(one: Any, other: Any) -> bool:
    """But for what says who saved it and how."""
    free = {"transformers_version", "_name_or_path", "architectures", "dtype", "id2label", "label2id"}

    def keep(config: dict[str, Any]) -> dict[str, Any]:
        return {k: keep(v) if isinstance(v, dict) else v for k, v in config.items() if k not in free}

    one, other = (keep(x.config.to_dict()) for x in (one, other))
    wrong = {k: (one.get(k), other.get(k)) for k in one.keys() | other.keys() if one.get(k) != other.get(k)}
    assert not wrong
    return True


@pytest.mark.parametrize("name", ["bert-masked", "gpt2", "llama", "t5-v1.1", "bart"])
def test_shards_both_ways(name: str, ours: Any, tmp_path: Path) -> None:
    reference(name).save_pretrained(tmp_path / "theirs", max_shard_size="9KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 3
    read = model_folder.read(tmp_path / "theirs", dtype=torch.float64)
    assert read.spec == ours(name).spec
    assert same_state(read, ours(name))
    model_folder.write(tmp_path / "ours", model=read, shard_bytes=9000)
    shards = sorted((tmp_path / "ours").glob("*.safetensors"))
    assert len(shards) > 3
    assert all(path.stat().st_size < 9000 + 4000 for path in shards if len(load_file(path)) > 1)
    same_tensors(name, back(name, tmp_path / "ours"))


def same_state(one: Model, other: Model) -> bool:
    pairs = zip(one.network.state_dict().items(), other.network.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


# --- spellings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "llama-linear", "llama-3", "llama-yarn", "qwen3"])
def test_both_generations_of_rope(name: str, folders: Any, ours: Any, tmp_path: Path) -> None:
    """v5: rope_parameters; v4: rope_theta and rope_scaling, whose kind is called rope_type or, older still, type."""
    rope = json.loads((folders(name) / "config.json").read_text())["rope_parameters"]
    theta, kind = rope.pop("rope_theta"), rope.pop("rope_type")
    for called in ("rope_type", "type"):
        scaling = rope | {called: kind} if kind != "default" else None
        old = edited(
            folders(name), tmp_path / called, rope_parameters=None, rope_theta=theta, rope_scaling=scaling,
            dtype=None, torch_dtype="float64",
        )  # fmt: skip
        assert model_folder.read(old, dtype=torch.float64).spec == ours(name).spec


@pytest.mark.parametrize("name", ["llama-3", "llama-yarn", "qwen2-windowed", "mistral-unwindowed"])
def test_ours_says_it_in_both_generations(name: str, ours: Any, tmp_path: Path) -> None:
    model_folder.write(tmp_path / "out", model=ours(name).replace(config={}))
    for gone in (("rope_parameters", "dtype"), ("rope_theta", "rope_scaling", "torch_dtype")):
        half = edited(tmp_path / "out", tmp_path / gone[0], **dict.fromkeys(gone))
        (half / "manifest.json").unlink()
        assert model_folder.read(half, dtype=torch.float64).spec == ours(name).spec


def test_both_generations_of_t5(folders: Any, ours: Any, tmp_path: Path) -> None:
    """v4 says an own head by tie_word_embeddings; v5 says tied of every T5 and only that the outputs are not scaled."""
    newer = json.loads((folders("t5-v1.1") / "config.json").read_text())
    assert newer["tie_word_embeddings"]
    assert not newer["scale_decoder_outputs"]
    older = {"tie_word_embeddings": False, "scale_decoder_outputs": None, "dense_act_fn": None, "is_gated_act": None}
    assert (
        model_folder.read(edited(folders("t5-v1.1"), tmp_path / "4", **older), dtype=torch.float64).spec
        == ours("t5-v1.1").spec
    )
    plain = {"tie_word_embeddings": None, "scale_decoder_outputs": None}
    assert (
        model_folder.read(edited(folders("t5"), tmp_path / "plain", **plain), dtype=torch.float64).spec
        == ours("t5").spec
    )


@pytest.mark.parametrize("name", ["bert-masked", "distilbert-tag", "roberta-span", "gpt2", "llama", "bart", "marian"])
def test_names_without_the_prefix(name: str, folders: Any, ours: Any, tmp_path: Path) -> None:
    prefix = {"GPT2": "transformer.", "Llama": "model.", "Bart": "model.", "Marian": "model."}.get(
        CASES[name].family, f"{CASES[name].family.lower()}."
    )
    rewritten(folders(name), tmp_path / "bare", lambda key: key.removeprefix(prefix))
    assert same_state(model_folder.read(tmp_path / "bare", dtype=torch.float64), ours(name))


@pytest.mark.parametrize("name", ["gpt2-bare", "llama-bare", "bart-bare", "distilbert", "bert"])
def test_names_with_a_prefix_of_a_model_without_a_head(name: str, folders: Any, ours: Any, tmp_path: Path) -> None:
    prefix = {"gpt2-bare": "transformer.", "llama-bare": "model.", "bart-bare": "model."}.get(name, f"{name}.")
    rewritten(folders(name), tmp_path / "prefixed", lambda key: prefix + key)
    assert same_state(model_folder.read(tmp_path / "prefixed", dtype=torch.float64), ours(name))


def test_norms_called_gamma_and_beta(folders: Any, ours: Any, tmp_path: Path) -> None:
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def older(key: str) -> str:
        return next((key.replace(new, name) for new, name in old.items() if key.endswith(new)), key)

    rewritten(folders("bert-masked"), tmp_path / "old", older)
    assert same_state(model_folder.read(tmp_path / "old", dtype=torch.float64), ours("bert-masked"))


def rewritten(source: Path, target: Path, rename: Any) -> None:
    shutil.copytree(source, target)
    tensors = load_file(target / "model.safetensors")
    save_file({rename(key): x for key, x in tensors.items()}, target / "model.safetensors")


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_labels_defaults_and_unknown_fields_are_kept(folders: Any, tmp_path: Path) -> None:
    labels = {"0": "sad", "1": "so so", "2": "glad"}
    source = edited(
        folders("bert-classify"), tmp_path / "in", id2label=labels, label2id=None, problem_type="regression"
    )
    read = model_folder.read(source, dtype=torch.float64)
    assert read.labels == ("sad", "so so", "glad")
    model_folder.write(tmp_path / "out", model=read)
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["id2label"] == labels
    assert config["label2id"] == {"sad": 0, "so so": 1, "glad": 2}
    assert config["problem_type"] == "regression"
    assert config["attention_probs_dropout_prob"] == 0.1


def test_generation_defaults_come_and_go(folders: Any, tmp_path: Path) -> None:
    source = edited(folders("llama"), tmp_path / "in")
    said = {"eos_token_id": [2, 5], "do_sample": True, "temperature": 0.6, "top_p": 0.9, "renormalize_logits": True}
    (source / "generation_config.json").write_text(json.dumps(said))
    read = model_folder.read(source, dtype=torch.float64)
    assert read.generation.ends == (2, 5)
    assert read.generation.temperature == 0.6
    assert read.generation.bos == 1  # said in config.json only
    model_folder.write(tmp_path / "out", model=read)
    again = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert again.items() >= said.items()
    assert transformers.GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id == [2, 5]


@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float16])
def test_half_precision_files_come_back_bit_equal(kept: torch.dtype, tmp_path: Path, ours: Any) -> None:
    model_folder.write(tmp_path / "half", model=ours("llama"), dtype=kept)
    wide = model_folder.read(tmp_path / "half")
    assert wide.network.token.weight.dtype == torch.float32
    model_folder.write(tmp_path / "again", model=wide, dtype=kept)
    one, other = (load_file(tmp_path / path / "model.safetensors") for path in ("half", "again"))
    assert all(x.dtype == kept and torch.equal(x, other[key]) for key, x in one.items())
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "half")
    assert model.dtype == kept


def test_a_planted_mistake_in_a_table_is_noticed(ours: Any, monkeypatch: pytest.MonkeyPatch, folders: Any) -> None:
    """Gate and up have the same shape: only the numbers can tell that they were exchanged."""
    from triform.weights import architectures
    from triform.weights.name_rules import TensorRule
    from triform.weights.tables import llama

    def exchanged(rule: Any) -> Any:
        swapped = isinstance(rule, TensorRule) and "gate_proj" in rule.theirs[0]
        return rule._replace(theirs=rule.theirs[::-1]) if swapped else rule

    wrong = llama.LLAMA._replace(names=tuple(map(exchanged, llama.LLAMA.names)))
    monkeypatch.setattr(architectures, "FAMILIES", (wrong,))
    assert not same_state(model_folder.read(folders("llama"), dtype=torch.float64), ours("llama"))
