"""Networks in few bits: every form and family, layer by layer beside the written-out formula, batched = single."""

import copy
from collections.abc import Callable

import pytest
import torch
from tiny_models import EVERY, FAMILIES, enlarge_weights
from torch import Tensor, nn
from torch.nn import functional as F

import triform
from triform.core.change_weights import change_weights, to_float32
from triform.core.forms import Form
from triform.core.quantized_network import (
    QuantizedHead,
    QuantizedLinear,
    bytes_of_network,
    find_matrices,
    is_quantized,
    name_kind,
)
from triform.errors import TriformError
from triform.kernels.quantize import round_activations
from triform.model import Model
from triform.parameters import kinds_of_matrices
from triform.precision import relative_error
from triform.spec import ModelSpec
from triform.train.loop import train
from triform.weight_kinds import KINDS, WeightKind

IDS = torch.arange(24).view(2, 12) % 29


def few_bits(spec: ModelSpec, kind: WeightKind) -> tuple[Model, Model]:
    """In float32, and quantised."""
    model = triform.build(spec, seed=3)
    enlarge_weights(model.network)
    return model, model.with_weights(kind)


def scores(model: Model) -> Tensor:
    return model.logits(IDS, target=IDS.flip(0)) if model.spec.form == "encoder-decoder" else model.logits(IDS)


def compare_layers(network: Form, run: Callable[[], object]) -> list[float]:
    """The error of every layer against its own numbers in float64, for the inputs that really come."""
    errors: list[float] = []

    def compare(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x = module.ready(inputs[0]) if isinstance(module, QuantizedHead) else inputs[0]
        bias = module.bias() if isinstance(module, QuantizedHead) else module.bias
        rounded = round_activations(x) if module.matrix.kind in ("q8", "q4") else x
        weight = module.matrix.to_float()
        want = F.linear(rounded.double(), weight.double(), None if bias is None else bias.double())
        errors.append(relative_error(output, want))

    layers = [module for module in network.modules() if isinstance(module, QuantizedLinear | QuantizedHead)]
    hooks = [module.register_forward_hook(compare) for module in layers]
    run()
    for hook in hooks:
        hook.remove()
    # The keys and values of a source are projected once, outside the module's own call.
    assert len(errors) >= len(layers)
    return errors


@pytest.mark.parametrize("kind", ["q8", "q4"])
@pytest.mark.parametrize("name", EVERY)
def test_every_layer_is_the_product_with_its_numbers_and_rounded_activations(name: str, kind: WeightKind) -> None:
    _, small = few_bits(EVERY[name], kind)
    assert max(compare_layers(small.network, lambda: scores(small)), default=0.0) <= 1e-5


@pytest.mark.parametrize("name", EVERY)
def test_without_rounded_activations_the_whole_network_is_that_of_its_numbers(name: str) -> None:
    model, small = few_bits(EVERY[name], "bfloat16")
    plain = small.with_weights("float32")
    assert not is_quantized(plain.network)
    assert relative_error(scores(small), scores(plain)) <= 1e-5
    assert 1e-5 < relative_error(scores(small), scores(model)) < 0.5


@pytest.mark.parametrize("name", FAMILIES)
def test_eight_bits_are_nearer_than_four(name: str) -> None:
    errors = []
    for kind in ("q8", "q4"):
        model, small = few_bits(FAMILIES[name], kind)
        errors.append(relative_error(scores(small), scores(model)))
    assert errors[0] < min(0.4, errors[1])


@pytest.mark.parametrize("name", EVERY)
def test_paths_shapes_and_kinds_are_those_of_the_spec(name: str) -> None:
    spec = EVERY[name]
    model, small = few_bits(spec, "q4")
    kinds = kinds_of_matrices(spec, "q4")
    found = dict(find_matrices(small.network))
    assert {path: matrix.kind for path, matrix in found.items()} == kinds
    floats = model.network.state_dict()
    assert {*small.network.state_dict(), *found} == set(floats)
    assert all(matrix.shape == tuple(floats[path].shape) for path, matrix in found.items())
    assert all(small.network.get_submodule(path.removesuffix(".weight")) for path in found if path != "readout.own")
    assert (small.weights, model.weights, name_kind(find_matrices(model.network))) == ("q4", "float32", "float32")


def test_a_mistake_in_one_matrix_is_noticed() -> None:
    """Planted: one layer computes with the weights of another."""
    _, small = few_bits(FAMILIES["llama"], "q8")
    out = [m for path, m in small.network.named_modules() if path.endswith("attention.f.out")]
    out[0].forward = out[1].forward
    assert max(compare_layers(small.network, lambda: scores(small))) > 1e-2


def test_rows_have_the_same_bits_alone_and_batched() -> None:
    _, small = few_bits(FAMILIES["llama"], "q8")
    prompts = [[1, 2, 3, 4], [7, 8], [9, 10, 11, 12, 13, 14, 15]]
    together = small.complete(prompts, max_tokens=6, temperature=0.0)
    for prompt, batched in zip(prompts, together, strict=True):
        (alone,) = small.complete([prompt], max_tokens=6, temperature=0.0)
        assert (alone.tokens, alone.logprob) == (batched.tokens, batched.logprob)


def test_it_is_copied_and_looked_into() -> None:
    _, small = few_bits(FAMILIES["gpt2"], "q8")
    assert torch.equal(scores(small.replace(network=copy.deepcopy(small.network))), scores(small))
    view = small.look([1, 2, 3, 4])
    assert view.attention(1, 2).error < 1e-5


def test_bytes_are_counted_once_and_are_fewer() -> None:
    model, small = few_bits(triform.families.gpt2(vocab=512, width=128, layers=2, heads=4, context=32), "q8")
    assert bytes_of_network(model.network) == sum(4 * p.numel() for p in model.network.parameters())
    assert bytes_of_network(small.network) < 0.3 * bytes_of_network(model.network)


def test_a_change_of_kind_keeps_what_is_already_so() -> None:
    model, small = few_bits(FAMILIES["bert"], "q8")
    again = change_weights(small.network, small.spec, kind="q8")
    assert all(x is y for (_, x), (_, y) in zip(find_matrices(again), find_matrices(small.network), strict=True))
    assert to_float32(model.network, model.spec) is model.network
    assert set(KINDS) == {"float32", "bfloat16", "q8", "q4"}


def test_training_is_refused_in_one_line() -> None:
    _, small = few_bits(FAMILIES["gpt2"], "q8")
    from triform.train.examples import ExampleList, TokenExample
    from triform.train.run_config import Config
    from triform.train.token_objectives import NextToken

    examples = ExampleList([TokenExample([1, 2, 3])], lengths=[3])
    with pytest.raises(TriformError, match="weights in few bits cannot be trained; load the model with"):
        train(small.network, objective=NextToken(), examples=examples, config=Config(steps=1))


@pytest.mark.parametrize("bad", [float("nan"), 1e6])
def test_a_weight_that_has_no_code_is_named_by_its_path(bad: float) -> None:
    model = triform.build(FAMILIES["llama"], seed=3)
    with torch.no_grad():
        model.network.decoder.blocks[1].get_submodule("feedforward.f.down").weight[3, 5] = bad
    with pytest.raises(TriformError, match=r"^decoder\.blocks\.1\.feedforward\.f\.down\.weight: a weight is"):
        model.with_weights("q8")
    with pytest.raises(TriformError, match=r"unknown kind of weights 'q3'"):
        model.with_weights("q3")
