"""Networks changed for experiments are what they say."""

import pytest
import torch

from triform.core.forms import Form
from triform.core.initial_weights import build_network
from triform.core.texts import PackedText, Text
from triform.families import gpt2
from triform_lectures import ablation_modules

SPEC = gpt2(vocab=20, width=16, layers=2, heads=2, context=16)


@pytest.fixture
def network() -> Form:
    return build_network(SPEC, seed=0, dtype=torch.float64)


@pytest.fixture(params=[Text.of(torch.tensor([[1, 2, 3, 4]])), PackedText.join([torch.arange(3), torch.arange(5)])])
def text(request: pytest.FixtureRequest) -> Text:
    found: Text = request.param
    return found


@torch.no_grad()
def test_masked_after_and_divided_is_the_mask(network: Form, text: Text) -> None:
    want = network(text)
    torch.testing.assert_close(ablation_modules.move_mask_after_softmax(network, divided=True)(text), want)


@torch.no_grad()
def test_masked_after_and_not_divided_is_not(network: Form) -> None:
    text, later = Text.of(torch.tensor([[1, 2, 3, 4]])), Text.of(torch.tensor([[1, 2, 3, 9]]))
    want = network(text)
    leaky = ablation_modules.move_mask_after_softmax(network, divided=False)
    assert not torch.allclose(leaky(text), want)
    assert not torch.equal(leaky(text)[0, 0], leaky(later)[0, 0])  # the first answer knows of the last token


@torch.no_grad()
def test_without_feedforward_each_block_is_attention_alone(network: Form) -> None:
    text = Text.of(torch.tensor([[1, 2, 3]]))
    before = network(text)
    changed = ablation_modules.remove_feedforward(network)
    assert not torch.allclose(changed(text), before)
    assert not any("feedforward.f" in path for path, _ in changed.named_parameters())


@torch.no_grad()
def test_without_residuals_the_stream_is_only_the_last_part(network: Form) -> None:
    text = Text.of(torch.tensor([[1, 2, 3]]))
    seen = []
    changed = ablation_modules.remove_residuals(network)
    last = changed.get_submodule("decoder.blocks.1.feedforward.part.f")
    last.register_forward_hook(lambda module, inputs, output: seen.append(output))
    stream = []
    changed.get_submodule("decoder.blocks.1").register_forward_hook(lambda module, inputs, out: stream.append(out))
    changed(text)
    assert torch.equal(seen[0], stream[0])


def test_joined_positions_are_told_apart_and_learn(network: Form) -> None:
    changed = ablation_modules.concatenate_positions(network, width=16).double()
    with torch.no_grad():
        one, other = changed(Text.of(torch.tensor([[5, 5]])))[0]
    assert not torch.allclose(one, other)
    assert "decoder.entry.position.weight" in dict(changed.named_parameters())
