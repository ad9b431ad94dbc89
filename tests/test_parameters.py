"""What the spec alone predicts is what the network has, and what the released models have."""

import subprocess
import sys

import pytest
import torch
from tiny_models import EVERY

import triform
from triform.core.build import skeleton
from triform.families import NAMED
from triform.parameters import count, inventory, parameters

PUBLISHED = {
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "distilbert-base": 66_362_880,
    "roberta-base": 124_645_632,
    "t5-small": 60_506_624,
    "flan-t5-small": 76_961_152,
    "bart-base": 139_420_416,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-135m": 134_515_008,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_equal_the_released_models(name: str) -> None:
    assert parameters(NAMED[name]) == PUBLISHED[name]


@pytest.mark.parametrize("name", EVERY | NAMED)
def test_every_tensor_is_predicted(name: str) -> None:
    spec = (EVERY | NAMED)[name]
    network = skeleton(spec)
    assert {path: entry.shape for path, entry in inventory(spec).items()} == {
        path: tuple(tensor.shape) for path, tensor in network.state_dict().items()
    }
    assert parameters(spec) == sum(parameter.numel() for parameter in network.parameters())


def test_the_skeleton_allocates_nothing() -> None:
    assert all(tensor.is_meta for tensor in skeleton(NAMED["llama-3-8b"]).state_dict().values())


def test_the_lectures_third_and_where_it_holds() -> None:
    """Weight matrices only, as the lecture's claim is checked: a plain layer is 1/3 attention, 2/3 feed-forward."""

    def shares(name: str) -> tuple[float, float]:
        parts = count(NAMED[name])
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
    code += "from triform.parameters import parameters\nprint(parameters(NAMED['llama-3-8b']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "8030261248"
