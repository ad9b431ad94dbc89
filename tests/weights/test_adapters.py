"""LoRA adapters in PEFT's format: what the reference computes with W + alpha/r · B A, beside one base or merged."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from served_models import run, serving
from tiny_models import enlarge_weights
from tiny_tasks import tokenizer

import triform
from triform.cli import main
from triform.core.initial_weights import build_network
from triform.core.packed_linear import PackedLinear, pack_network
from triform.errors import TriformError
from triform.families import bert, gpt2, llama
from triform.model import Model
from triform.weights import model_folder
from triform.weights.low_rank import find_adapted

IDS = [[5, 17, 2, 9, 30], [1, 2, 3, 4, 5]]
SIZES: dict[str, Any] = {"width": 16, "layers": 2, "heads": 4, "context": 32}
MODULES = {
    "llama": ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"),
    "gpt2": ("attn.c_attn", "mlp.c_fc"),
    "bert": ("attention.self.query", "attention.self.value", "output.dense"),
}
AUTO = {"llama": "AutoModelForCausalLM", "gpt2": "AutoModelForCausalLM", "bert": "AutoModelForMaskedLM"}


def make_base(family: str, *, seed: int = 3) -> Model:
    words = tokenizer("encoder" if family == "bert" else "decoder")
    make = {"llama": llama, "gpt2": gpt2, "bert": bert}[family]
    more = {"kv_heads": 2} if family == "llama" else {}
    spec = make(vocab=words.vocab, **SIZES, **more)
    return Model(
        spec=spec, network=enlarge_weights(build_network(spec, seed=seed).double(), seed=seed), tokenizer=words
    )


def make_adapter(folder: Path, model: Path, modules: tuple[str, ...], *, seed: int, **config: Any) -> Path:
    """As PEFT writes it, for every module of the base whose name ends so."""
    generator = torch.Generator().manual_seed(seed)
    rank, tensors = 3, {}
    for name, weight in load_file(model / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if name.endswith(".weight") and module.endswith(modules):
            out, narrow = weight.shape[::-1] if "gpt2" in str(model) else weight.shape
            for side, shape in (("A", (rank, narrow)), ("B", (out, rank))):
                drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
                tensors[f"base_model.model.{module}.lora_{side}.weight"] = drawn
    said = {"peft_type": "LORA", "r": rank, "lora_alpha": 5, "target_modules": list(modules), "bias": "none"}
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(said | config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def theirs(model: Path, *adapters: Path, auto: str) -> torch.Tensor:
    """The reference's logits with every adapter added to its weights."""
    transformers = pytest.importorskip("transformers")
    reference = getattr(transformers, auto).from_pretrained(model, dtype=torch.float64).eval()
    weights = dict(reference.named_parameters())
    for adapter in adapters:
        config, tensors = (
            json.loads((adapter / "adapter_config.json").read_text()),
            load_file(adapter / "adapter_model.safetensors"),
        )
        for name in [name for name in tensors if ".lora_A." in name]:
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            root = math.sqrt(config["r"]) if config.get("use_rslora") else config["r"]
            added = config["lora_alpha"] / root * tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
            weight = weights[f"{module}.weight"]
            weight.data += added if weight.shape == added.shape and not config.get("fan_in_fan_out") else added.T
    with torch.no_grad():
        return reference(torch.tensor(IDS)).logits


@pytest.mark.parametrize("family", MODULES)
def test_an_adapter_adds_what_the_reference_adds(family: str, tmp_path: Path) -> None:
    place, auto = tmp_path / family, AUTO[family]
    make_base(family).save(place)
    turned = {"fan_in_fan_out": family == "gpt2"}
    one = make_adapter(tmp_path / "one", place, MODULES[family], seed=1, **turned)
    two = make_adapter(tmp_path / "two", place, MODULES[family][:1], seed=2, use_rslora=True, **turned)
    for adapters in ((one,), (one, two)):
        expected = theirs(place, *adapters, auto=auto)
        for merge in (False, True):
            model = triform.load(place, dtype="float64", adapter=adapters, merge=merge)
            bound = 1e-3 if family == "llama" else 1e-9  # their norm of Llama computes in float32
            torch.testing.assert_close(model.logits(IDS), expected, atol=bound, rtol=bound)
            assert bool(find_adapted(model.network)) == (not merge)
    plain = triform.load(place, dtype="float64").logits(IDS)
    assert float((plain - expected).abs().max()) > 0.1


@pytest.mark.parametrize("family", MODULES)
def test_there_and_back(family: str, tmp_path: Path) -> None:
    """Saved as one adapter, and merged into a whole model."""
    base = make_base(family)
    base.save(tmp_path / family)
    base = triform.load(tmp_path / family, dtype="float64")
    one = make_adapter(tmp_path / "one", tmp_path / family, MODULES[family], seed=1)
    two = make_adapter(tmp_path / "two", tmp_path / family, MODULES[family], seed=2)
    both = base.with_adapter(one).with_adapter(two)
    both.save_adapter(tmp_path / "both", base="the base")
    config = json.loads((tmp_path / "both" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["base_model_name_or_path"]) == ("LORA", 6, "the base")
    assert config["fan_in_fan_out"] == (family == "gpt2")
    again = base.with_adapter(tmp_path / "both")
    torch.testing.assert_close(again.logits(IDS), both.logits(IDS))
    both.save(tmp_path / "whole")
    torch.testing.assert_close(triform.load(tmp_path / "whole", dtype="float64").logits(IDS), both.logits(IDS))
    torch.testing.assert_close(theirs(tmp_path / family, tmp_path / "both", auto=AUTO[family]), both.logits(IDS),
                               atol=1e-3, rtol=1e-3)  # fmt: skip


def test_the_weights_of_the_base_are_there_once(tmp_path: Path) -> None:
    base = make_base("llama")
    base.save(tmp_path / "llama")
    adapter = make_adapter(tmp_path / "one", tmp_path / "llama", MODULES["llama"], seed=1)
    base = triform.load(tmp_path / "llama")
    before = base.logits(IDS)
    adapted = base.with_adapter(adapter)
    mine = dict(adapted.network.named_parameters())
    assert {path: p.data_ptr() for path, p in base.network.named_parameters()} == {
        path: p.data_ptr() for path, p in mine.items()
    }
    assert torch.equal(base.logits(IDS), before)
    packed, packed_adapted = pack_network(base.network), pack_network(adapted.network)
    layers, shared = (
        [one for one in each.modules() if isinstance(one, PackedLinear)] for each in (packed, packed_adapted)
    )
    assert shared
    assert {*map(id, shared)} < {*map(id, layers)}  # all but those that are adapted
    text = torch.tensor(IDS)
    assert float((packed_adapted(triform_text(text)).detach() - adapted.logits(IDS)).abs().max()) < 1e-4


def triform_text(ids: torch.Tensor) -> Any:
    from triform.core.texts import Text

    return Text.of(ids)


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    base, other = make_base("llama"), make_base("llama", seed=4)
    base.save(tmp_path / "llama")
    adapter = make_adapter(tmp_path / "one", tmp_path / "llama", MODULES["llama"], seed=1)
    base.with_adapter(adapter).save_adapter(tmp_path / "ours")
    with pytest.raises(TriformError, match=r"was made for a base with the hash \w{16}, this one has \w{16}; give the"):
        other.with_adapter(tmp_path / "ours")
    with pytest.raises(TriformError, match=r"is of another model: this one has no matrix 'model\.layers\.0\.mlp"):
        make_base("gpt2").with_adapter(adapter)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only LORA"),
        ({"use_dora": True}, "use_dora is True"),
        ({"modules_to_save": ["head"]}, "modules_to_save is"),
        ({"bias": "all"}, "bias is 'all'; only none"),
        ({"r": "x"}, "r is 'x'"),
    ],
)
def test_what_is_no_plain_adapter_is_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    base = make_base("llama")
    base.save(tmp_path / "llama")
    adapter = make_adapter(tmp_path / "one", tmp_path / "llama", MODULES["llama"], seed=1, **config)
    with pytest.raises(TriformError, match=message):
        base.with_adapter(adapter)


def test_shapes_and_files_are_checked(tmp_path: Path) -> None:
    base = make_base("llama")
    base.save(tmp_path / "llama")
    adapter = make_adapter(tmp_path / "one", tmp_path / "llama", MODULES["llama"], seed=1)
    with pytest.raises(TriformError, match=r"has no adapter_config\.json, so it is no adapter"):
        base.with_adapter(tmp_path / "llama")
    tensors = load_file(adapter / "adapter_model.safetensors")
    name = next(name for name in tensors if "q_proj.lora_A" in name)
    save_file(tensors | {name: torch.ones(3, 9)}, adapter / "adapter_model.safetensors")
    with pytest.raises(TriformError, match=r"does not fit this base: .*q_proj is 16 × 16 here"):
        base.with_adapter(adapter)
    save_file({key: value for key, value in tensors.items() if key != name}, adapter / "adapter_model.safetensors")
    with pytest.raises(TriformError, match="has only one of lora_A and lora_B"):
        base.with_adapter(adapter)
    with pytest.raises(TriformError, match="this model has no adapter to save"):
        base.save_adapter(tmp_path / "none")


# --- training, the command line, serving ----------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    assert (stop.value.code or 0) == code, err
    return str(out or err)


def test_what_training_learned_is_saved_beside_the_merged_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make_base("gpt2")
    base.replace(network=base.network.float()).save(tmp_path / "base")
    (tmp_path / "texts.txt").write_text("\n".join(f"Jack went to Rome {n}." for n in range(40)))
    out, folder = tmp_path / "out", str(tmp_path / "base")
    settings = ("--set", "lora=*.attention.f.qkv", "--set", "lora_rank=2", "--set", "learning_rate=0.01")
    said(capsys, "train", "complete", str(tmp_path / "texts.txt"), "--from", folder, "--out", str(out), "--steps", "3",
         *settings)  # fmt: skip
    merged, plain = triform.load(out), triform.load(folder)
    adapted = plain.with_adapter(out / "adapter")
    torch.testing.assert_close(adapted.logits(IDS), merged.logits(IDS), atol=1e-5, rtol=1e-5)
    assert float((plain.logits(IDS) - merged.logits(IDS)).abs().max()) > 1e-3
    texts = ("Jack went to", "--max-tokens", "5", "--temperature", "0")
    with_adapter = said(capsys, "complete", folder, *texts, "--adapter", str(out / "adapter"))
    assert with_adapter == said(capsys, "complete", str(out), *texts)
    said(capsys, "export", folder, "--adapter", str(out / "adapter"), "--out", str(tmp_path / "merged"))
    torch.testing.assert_close(triform.load(tmp_path / "merged").logits(IDS), merged.logits(IDS), atol=1e-5, rtol=1e-5)
    planned = json.loads(said(capsys, "serve", folder, "--adapter", f"rome={out / 'adapter'}", "--check", "--json"))
    weights = {one["model"]: one["weights"] for one in planned["models"]}
    assert weights["rome"] == 0 < weights["base"]
    assert "--adapter rome: use NAME=FOLDER" in said(capsys, "serve", folder, "--adapter", "rome", "--check", code=2)


def test_adapters_are_served_beside_their_base(tmp_path: Path) -> None:
    base = make_base("gpt2")
    model_folder.write(tmp_path / "gpt2", model=base.replace(network=base.network.float()))
    base = triform.load(tmp_path / "gpt2")
    one = make_adapter(tmp_path / "one", tmp_path / "gpt2", MODULES["gpt2"], seed=1)
    models = {"base": base, "one": base.with_adapter(one)}

    async def ask() -> None:
        async with serving(models) as (_, client):
            texts = {}
            for name, model in models.items():
                body = {"model": name, "prompt": "Jack went to", "max_tokens": 8, "temperature": 0}
                answer = (await client.post("/v1/completions", json=body)).json()
                texts[name] = answer["choices"][0]["text"]
                assert texts[name] == model.complete(["Jack went to"], max_tokens=8, temperature=0)[0].text
            assert texts["base"] != texts["one"]

    run(ask())
