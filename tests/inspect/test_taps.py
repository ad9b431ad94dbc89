"""Taps see what flows, may replace it, and leave nothing behind."""

import pytest
import torch
from torch import nn

from triform.errors import InputError
from triform.inspect import taps
from triform.inspect.taps import record_calls, tap_inputs, tap_outputs


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).double()


def hooks(net: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules())


def test_a_pattern_finds_its_modules() -> None:
    net, seen = network(), []
    with tap_outputs(net, "[02]", lambda path, inputs, output: seen.append((path, output))) as paths:
        y = net(torch.ones(1, 3).double())
    assert paths == [path for path, _ in seen] == ["0", "2"]
    assert seen[1][1] is y


def test_outputs_and_inputs_can_be_replaced() -> None:
    net, x = network(), torch.ones(1, 3).double()
    with tap_outputs(net, "1", lambda path, inputs, output: torch.zeros_like(output)):
        assert torch.equal(net(x)[0], net[2].bias)
    with tap_inputs(net, "2", lambda path, inputs: (torch.zeros_like(inputs[0]),)):
        assert torch.equal(net(x)[0], net[2].bias)
    assert not torch.equal(net(x)[0], net[2].bias)


@pytest.mark.parametrize("tap", [tap_outputs, tap_inputs])
def test_taps_are_gone_after_an_exception(tap: object) -> None:
    net = network()

    def fail(*_: object) -> None:
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="middle"), tap(net, "*", fail):  # type: ignore[operator]
        net(torch.ones(1, 3).double())
    assert hooks(net) == 0


def test_a_record_keeps_every_call_and_copies_nothing() -> None:
    net, x = network(), torch.ones(1, 3).double()
    with record_calls(net) as record:
        first = net(x)
        second = net(2 * x)
    assert [call.output is y for call, y in zip(record.calls_of("2"), (first, second), strict=True)] == [True, True]
    assert record.last_call("2").output is second
    assert record.last_call("0").inputs[0].sum() == 6
    with pytest.raises(InputError, match=r"'3' is not in this view"):
        record.last_call("3")


def test_what_would_be_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    monkeypatch.setattr(taps, "MAX_RECORDED_BYTES", 100)
    with pytest.raises(InputError, match=r"record fewer modules"), record_calls(net):
        net(torch.ones(20, 3).double())
    assert hooks(net) == 0
    with record_calls(net):  # 24 + 24 + 24 + 16 bytes: memory that modules hand on is counted once
        net(torch.ones(1, 3).double())


def test_a_pattern_that_fits_nothing_is_said() -> None:
    with (
        pytest.raises(InputError, match=r"no module path matches 'x\.\*'; paths look like 0, 2"),
        record_calls(network(), "x.*"),
    ):
        pass
