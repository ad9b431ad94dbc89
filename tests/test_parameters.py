"""What the spec alone predicts is what the network has, and what the released models have."""

import subprocess
import sys

import pytest
import torch
from tiny_models import EVERY

import triform
from triform.core.build import build_skeleton
from triform.families import NAMED
from triform.parameters import bytes_of_weights, count_by_part, count_parameters, kinds_of_matrices, list_tensors

PUBLISHED = {
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "distilbert-base": 66_362_880,
    "roberta-base": 124_645_632,
    "xlm-roberta-base": 278_043_648,
    "bge-m3": 567_754_752,
    "multilingual-e5-small": 117_653_760,
    "camembert-base": 110_621_952,
    "electra-base": 109_483_009,
    "t5-small": 60_506_624,
    "flan-t5-small": 76_961_152,
    "bart-base": 139_420_416,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-135m": 134_515_008,
    "mistral-7b": 7_241_732_096,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "bloom-560m": 559_214_592,
    "bloom-1.1b": 1_065_314_304,
    "bloom-7.1b": 7_069_016_064,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_957_200_896,
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "mt5-small": 300_176_768,
    "mt5-base": 582_401_280,
    "mbart-large-cc25": 610_851_840,
    "mbart-large-50": 610_879_488,
    "pegasus-large": 568_699_904,  # without its sinusoids, which are computed
    "gpt-neox-20b": 20_554_567_680,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "granite-3.1-2b": 2_533_531_648,
    "granite-3.1-8b": 8_170_848_256,
    "m2m100-418m": 483_905_536,
    "m2m100-1.2b": 1_239_470_080,
    "nllb-200-distilled-600m": 615_073_792,
    "nllb-200-1.3b": 1_370_638_336,
    "nllb-200-3.3b": 3_344_863_232,
    "qwen2-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_equal_the_released_models(name: str) -> None:
    assert count_parameters(NAMED[name]) == PUBLISHED[name]


@pytest.mark.parametrize("name", EVERY | NAMED)
def test_every_tensor_is_predicted(name: str) -> None:
    spec = (EVERY | NAMED)[name]
    network = build_skeleton(spec)
    assert {path: entry.shape for path, entry in list_tensors(spec).items()} == {
        path: tuple(tensor.shape) for path, tensor in network.state_dict().items()
    }
    assert count_parameters(spec) == sum(parameter.numel() for parameter in network.parameters())


def test_the_skeleton_allocates_nothing() -> None:
    assert all(tensor.is_meta for tensor in build_skeleton(NAMED["llama-3-8b"]).state_dict().values())


def test_the_lectures_third_and_where_it_holds() -> None:
    """Weight matrices only, as the lecture's claim is checked: a plain layer is 1/3 attention, 2/3 feed-forward."""

    def shares(name: str) -> tuple[float, float]:
        parts = count_by_part(NAMED[name])
        attention, forward = parts["attention"] + parts["cross-attention"], parts["feed-forward"]
        return round(100 * attention / (attention + forward), 1), round(100 * attention / sum(parts.values()), 1)

    assert shares("gpt2-small") == (33.3, 22.8)
    assert shares("bert-base") == (33.3, 25.9)
    assert shares("vaswani-base") == (42.9, 30.0)
    assert shares("llama-3-8b") == (19.2, 16.7)
    assert shares("t5-small") == (42.9, 31.2)
    assert shares("flan-t5-small") == (42.9, 24.5)


def test_the_same_seed_gives_the_same_numbers_in_any_precision() -> None:
    spec = EVERY["gpt2"]
    one, two, other = (triform.build(spec, seed=seed).network.state_dict() for seed in (4, 4, 5))
    assert all(torch.equal(one[path], two[path]) for path in one)
    assert any(not torch.equal(one[path], other[path]) for path in one)
    precise = triform.build(spec, seed=4, dtype=torch.float64).network.state_dict()
    assert all(torch.equal(precise[path].float(), one[path]) for path in one)


def test_counting_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom triform.families import NAMED\n"
    code += "from triform.parameters import count_parameters\nprint(count_parameters(NAMED['llama-3-8b']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "8030261248"


@pytest.mark.parametrize("name", EVERY)
def test_matrices_in_few_bits_are_those_of_blocks_the_table_and_an_own_head(name: str) -> None:
    kinds = kinds_of_matrices(EVERY[name], "q4")
    tensors = list_tensors(EVERY[name])
    assert kinds["token.weight"] == "q8"
    assert {kinds[path] for path in kinds if ".blocks." in path} == {"q4"}
    left = [path for path, tensor in tensors.items() if path not in kinds and len(tensor.shape) == 2]
    assert all(path.startswith("readout.") or ".entry." in path or "score_bias" in path for path in left)
    assert bytes_of_weights(EVERY[name], "float32") == 4 * sum(tensor.size for tensor in tensors.values())
    assert bytes_of_weights(EVERY[name], "q8") < bytes_of_weights(EVERY[name], "float32")
