"""A plan for many devices: memory, time and replicas follow from the spec and the limits of a device."""

import pytest

from triform.costs.machine import Machine
from triform.costs.overview import cost_of_context
from triform.costs.roofline import roofline
from triform.costs.scale_plan import USED_SHARE, Connection, make_plan, parse_rate
from triform.errors import TriformError
from triform.families import NAMED
from triform.parameters import count_parameters

SPEC = NAMED["gpt2-small"]
GPU = Machine(peak_flops=312e12, bandwidth=2e12)
LINK = Connection(bandwidth=50e9)


def test_replicated_memory_is_that_of_one_and_sharded_a_share() -> None:
    replicated, sharded = make_plan(SPEC, model="m", devices=8, batch=4).training
    one = cost_of_context(SPEC, phase="training", batch=4).memory
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(replicated, name) == getattr(one, name)
    assert replicated.memory - replicated.exchange == one.total
    for name in ("weights", "gradients", "optimizer"):
        assert 1 <= getattr(sharded, name) / (getattr(one, name) / 8) < 1.001
    assert sharded.activations == replicated.activations
    assert sharded.memory < replicated.memory


def test_products_in_16_bits_leave_weights_and_gradients_in_32() -> None:
    half, full = (make_plan(SPEC, model="m", devices=2, dtype=dtype).training[0] for dtype in ("bfloat16", "float32"))
    assert (half.weights, half.optimizer, half.traffic) == (full.weights, full.optimizer, full.traffic)
    assert half.activations < full.activations


def test_gradients_cross_the_connection_once_each_way() -> None:
    plan = make_plan(SPEC, model="m", devices=8, machine=GPU, connection=LINK).training[0]
    share = 4 * count_parameters(SPEC) * 7 / 8
    assert 1 <= sum(each.sent for each in plan.traffic) / (2 * share) < 1.001
    assert plan.sending == pytest.approx(sum(each.sent for each in plan.traffic) / 50e9)
    slow = make_plan(SPEC, model="m", devices=8, machine=GPU, connection=Connection(bandwidth=50e9, latency=0.1))
    assert slow.training[0].sending - plan.sending == pytest.approx(0.1 * sum(each.messages for each in plan.traffic))


def test_one_process_sends_nothing_and_takes_the_rooflines_time() -> None:
    (plan,) = make_plan(SPEC, model="m", processes=1, machine=GPU, batch=2).training
    bound = roofline(cost_of_context(SPEC, phase="training", batch=2), machine=GPU).seconds
    assert (plan.traffic, plan.sending, plan.computing) == ((), 0.0, pytest.approx(bound))
    assert plan.tokens_per_second == pytest.approx(2 * 1024 / bound)


def test_processes_on_one_device_share_it() -> None:
    apart, together = (make_plan(SPEC, model="m", processes=4, devices=count, machine=GPU) for count in (4, 2))
    assert together.training[0].computing == pytest.approx(2 * apart.training[0].computing)
    assert together.training[0].device_memory == 2 * apart.training[0].memory


@pytest.mark.parametrize("name", ["gpt2-small", "bert-base", "t5-small"])
def test_replicas_answer_the_rate(name: str) -> None:
    plan = make_plan(NAMED[name], model=name, rate=10_000, machine=GPU, batch=32).replicas
    assert plan is not None
    assert plan.per_replica == pytest.approx(32 / plan.seconds)
    assert (plan.replicas - 1) * USED_SHARE * plan.per_replica < 10_000 <= plan.replicas * USED_SHARE * plan.per_replica


@pytest.mark.parametrize(("text", "speed"), [("50GB/s", 50e9), ("100Gbit/s", 12.5e9), ("1MiB/s", 2.0**20)])
def test_speeds(text: str, speed: float) -> None:
    assert parse_rate(text) == speed


@pytest.mark.parametrize("text", ["50GB", "fast", "/s", "-3GB/s", "50GB/h"])
def test_what_is_no_speed_is_one_line(text: str) -> None:
    with pytest.raises(TriformError):
        parse_rate(text)


def test_what_cannot_be_planned_is_one_line() -> None:
    with pytest.raises(TriformError, match="processes=-1 is out of range"):
        make_plan(SPEC, model="m", processes=-1)
    with pytest.raises(TriformError, match="devices=0 is out of range"):
        make_plan(SPEC, model="m", devices=0)
    with pytest.raises(TriformError, match="give --peak and --bandwidth"):
        make_plan(SPEC, model="m", rate=10)
