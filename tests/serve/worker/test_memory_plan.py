"""A service that does not fit is told what would make it fit; whoever follows that is not refused again."""

import re
from pathlib import Path

import pytest
import torch

import triform
from triform import families
from triform.cli.serve import parse_limits
from triform.core.quantized_network import bytes_of_network
from triform.errors import TriformError
from triform.serve.http.limits import Limits
from triform.serve.worker import memory_plan
from triform.serve.worker.memory_plan import PROCESS_BYTES, ModelSource, check_fits, plan_memory
from triform.spec import ModelSpec, replace

SIZES = {"vocab": 1000, "width": 256, "layers": 4, "heads": 4, "context": 512}
SPECS = {
    "encoder": families.bert(**SIZES),
    "decoder": families.llama(**SIZES, kv_heads=4),
    "encoder-decoder": families.vaswani(**SIZES),
}


def refused(spec: ModelSpec, memory: int, limits: Limits) -> str:
    try:
        check_fits([ModelSource("m", None, spec)], limits=limits, indexes=(), most=memory)
    except TriformError as error:
        return str(error)
    return ""


def least_of(spec: ModelSpec) -> int:
    lower = Limits(look_bytes=2**22, prefix_bytes=2**20, rows=1, batch_characters=2**10)
    return plan_memory([ModelSource("m", None, spec)], limits=lower).total


@pytest.mark.parametrize("form", SPECS)
def test_the_advice_helps_when_it_is_followed(form: str) -> None:
    spec = SPECS[form]
    whole, least = plan_memory([ModelSource("m", None, spec)], limits=Limits()).total, least_of(spec)
    for share in (0.0, 0.02, 0.1, 0.3, 0.7, 0.999):
        memory = least + int(share * (whole - least))
        said = refused(spec, memory, Limits())
        advised = re.findall(r"--limit (\S+=\d+)", said)
        assert advised, said
        assert refused(spec, memory, parse_limits(tuple(advised))) == ""
        for one in advised:  # and none of it is in vain
            assert refused(spec, memory, parse_limits(tuple(name for name in advised if name != one)))
    assert refused(spec, whole, Limits()) == ""


@pytest.mark.parametrize("form", SPECS)
def test_where_no_bound_helps_none_is_advised(form: str) -> None:
    said = refused(SPECS[form], 10_000_000, Limits())
    assert "--limit" not in said
    assert f"available: 10 MiB; lower limits are not enough: at least {-(-least_of(SPECS[form]) // 2**20)} MiB" in said
    assert PROCESS_BYTES > 10_000_000


@pytest.mark.parametrize(("compiled", "largest"), [(True, "activations"), (False, "cache")])
def test_a_context_that_fits_no_machine_is_named(compiled: bool, largest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With native kernels one sequence can be decoded alone; without, a small model decodes several at once."""
    monkeypatch.setattr(memory_plan, "find_kernels", lambda: object() if compiled else None)
    said = refused(replace(SPECS["decoder"], context=2**31), 2**34, Limits())
    assert "--limit" not in said
    assert f"most of it the {largest} of 'm'" in said
    assert "context in tokens: m 2,147,483,648" in said


@pytest.mark.parametrize("form", SPECS)
def test_few_bits_are_planned_with_their_bytes_and_without_a_second_copy(form: str) -> None:
    spec = replace(SPECS[form], vocab=20_000)
    plain, small = (
        plan_memory([ModelSource("m", None, spec, weights=weights)], limits=Limits()).models[0]
        for weights in ("auto", "q8")
    )
    assert plain.packed == plain.weights
    assert small.packed == 0
    assert small.weights < 0.3 * plain.weights
    model = ModelSource("m", None, SPECS[form], weights="q8").load()
    assert model.weights == "q8"
    planned = plan_memory([ModelSource("m", None, SPECS[form], weights="q8")], limits=Limits()).models[0].weights
    assert bytes_of_network(model.network) == pytest.approx(planned, rel=0.01)


@pytest.mark.parametrize("weights", ["q8", "q4", "bfloat16"])
def test_what_becomes_of_the_folder_changes_nothing_that_is_served(tmp_path: Path, weights: str) -> None:
    triform.build(replace(SPECS["decoder"], vocab=32, context=16), seed=1).with_weights(weights).save(tmp_path / "m")
    served = ModelSource("m", tmp_path / "m", SPECS["decoder"]).load()
    before = served.logits([[1, 2, 3]])
    (path,) = (tmp_path / "m").glob("*.safetensors")
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert torch.equal(served.logits([[1, 2, 3]]), before)
    with path.open("r+b") as file:
        file.truncate(0)  # a mapped file would end the process here
    assert torch.equal(served.logits([[1, 2, 3]]), before)
