"""What a researcher gets here is what TransformerLens gives: cache, logit lens, patching, on GPT-2 and Pythia shapes.

The same is proved against the reference implementation with hooks, which is always there; TransformerLens is compared
where it is installed. `docs/transformer-lens.md` has the table of names; every row of it is compared here.
"""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference_models import VOCAB, reference
from torch import Tensor

from triform.inspect.changes import patch
from triform.inspect.labelled_array import LabelledArray
from triform.inspect.view import View, look
from triform.model import Model

NAMES = ("gpt2", "gpt-neox")
LIMIT = 1e-5
IDS, OTHER = [3, 17, 5, 17, 40, 8, 3, 17, 5], [9, 2, 5, 30, 41, 8, 7, 17, 6]
TABLE = Path(__file__).resolve().parents[2] / "docs" / "transformer-lens.md"


class HookedReference:
    """The reference's model; what its modules gave in the last pass, by path."""

    def __init__(self, name: str) -> None:
        self.model = deepcopy(reference(name)).eval()
        self.model.set_attn_implementation("eager")
        body = self.model.transformer if name == "gpt2" else self.model.gpt_neox
        self.layers, self.final = (body.h, body.ln_f) if name == "gpt2" else (body.layers, body.final_layer_norm)
        self.head = self.model.lm_head
        self.attention = "attn" if name == "gpt2" else "attention"

    @torch.no_grad()
    def run(self, ids: list[int], patched: dict[int, tuple[int, Tensor]] | None = None) -> dict[str, Any]:
        """Streams, what the sublayers give, weights and logits; `patched`: layer → (position, vector)."""
        found: dict[str, Any] = {}
        hooks = []

        def keep(name: str, layer: int) -> Any:
            def hook(module: Any, inputs: Any, output: Any) -> Any:
                first = output[0] if isinstance(output, tuple) else output
                if name == "stream" and layer in (patched or {}):
                    at, vector = patched[layer]  # type: ignore[index]
                    first = first.clone()
                    first[0, at] = vector
                    output = (first, *output[1:]) if isinstance(output, tuple) else first
                found[f"{name} {layer}"] = first[0]
                return output

            return hook

        for i, layer in enumerate(self.layers):
            hooks += [layer.register_forward_hook(keep("stream", i)), layer.mlp.register_forward_hook(keep("mlp", i))]
            hooks.append(getattr(layer, self.attention).register_forward_hook(keep("attention", i)))
        try:
            output = self.model(torch.tensor([ids]), output_attentions=True)
        finally:
            for hook in hooks:
                hook.remove()
        weights = {f"weights {i}": x[0] for i, x in enumerate(output.attentions)}
        return found | weights | {"logits": output.logits[0]}


def to_tensor(found: Any) -> Tensor:
    """Of a view's labelled array, an array or a tensor."""
    if isinstance(found, Tensor):
        return found.double()
    return torch.tensor(np.array(found.values if isinstance(found, LabelledArray) else found)).double()


def distance(ours: Any, theirs: Tensor) -> float:
    """max |a − b| / max |b|"""
    a = to_tensor(ours)
    assert a.shape == theirs.shape, (a.shape, theirs.shape)
    return float((a - theirs.double()).abs().max() / theirs.double().abs().max())


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str, ours: Any) -> Model:
    found: Model = ours(name)
    return found


def test_the_cache_is_the_references(name: str, model: Model) -> None:
    theirs, view = HookedReference(name).run(IDS), look(model, IDS)
    for layer in range(model.spec.decoder.layers):
        block = f"decoder.blocks.{layer}"
        assert distance(view.read(block), theirs[f"stream {layer}"]) < LIMIT
        assert distance(view.read(f"{block}.attention.drop"), theirs[f"attention {layer}"]) < LIMIT
        assert distance(view.read(f"{block}.feedforward.drop"), theirs[f"mlp {layer}"]) < LIMIT
        assert distance(view.attention(layer), theirs[f"weights {layer}"]) < LIMIT
    assert distance(view.logits[0], theirs["logits"]) < LIMIT


@torch.no_grad()
def test_the_logit_lens_is_the_references(name: str, model: Model) -> None:
    hooked = HookedReference(name)
    theirs, lens = hooked.run(IDS), look(model, IDS).lens()
    for layer in range(model.spec.decoder.layers - 1):
        chances = hooked.head(hooked.final(theirs[f"stream {layer}"])).softmax(-1).max(-1)
        row = list(lens.axes[0].labels).index(f"block {layer}")
        assert distance(lens.values[row], chances.values) < LIMIT
        assert lens.words is not None
        assert lens.words[row].tolist() == [str(id) for id in chances.indices.tolist()]


@pytest.mark.parametrize("at", [0, 4, 8])
def test_a_patched_stream_gives_the_references_logits(name: str, model: Model, at: int) -> None:
    """Planted: the patch of another position gives other logits."""
    hooked, other = HookedReference(name), look(model, OTHER)
    source = hooked.run(OTHER)
    theirs = hooked.run(IDS, {0: (at, source["stream 0"][at])})["logits"]
    patched = model.patched(patch(other, f"L0@{at}"))
    assert distance(look(patched, IDS).logits[0], theirs) < LIMIT
    elsewhere = model.patched(patch(other, f"L0@{(at + 1) % 9}"))
    assert distance(look(elsewhere, IDS).logits[0], theirs) > LIMIT


# --- TransformerLens itself -----------------------------------------------------------------------------------------


def read_table() -> dict[str, str]:
    """Hook name → what to write here; both for layer 1."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


def evaluate(expression: str, view: View) -> Tensor:
    """A row's expression, as it stands in the table."""
    return to_tensor(eval(expression, {"view": view}))


def test_every_row_of_the_table_can_be_written(name: str, ours: Any) -> None:
    table = read_table()
    assert len(table) >= 12
    view = look(ours(name), IDS)
    for expression in table.values():
        assert len(evaluate(expression, view)) > 0, expression


@pytest.mark.slow
@torch.no_grad()
def test_every_row_of_the_table_is_transformer_lens_own_tensor(name: str, model: Model, folders: Any) -> None:
    lens = pytest.importorskip("transformer_lens.model_bridge", reason="TransformerLens is not installed")
    bridge = lens.TransformerBridge.boot_transformers(
        str(folders(name)), hf_model=deepcopy(reference(name)), dtype=torch.float64
    )
    logits, cache = bridge.run_with_cache(torch.tensor([IDS]))
    view = look(model, IDS)
    assert distance(view.logits[0], logits[0]) < LIMIT
    turned = (
        {"blocks.1.attn.hook_q", "blocks.1.attn.hook_k"} if name == "gpt-neox" else set()
    )  # ours: behind the rotation
    table = {hook: expression for hook, expression in read_table().items() if hook not in turned}
    for hook, expression in table.items():
        theirs, own = cache[hook][0], evaluate(expression, view)
        theirs = theirs.transpose(0, 1) if theirs.shape != own.shape and theirs.dim() == 3 else theirs
        assert distance(own, theirs) < LIMIT, hook
    assert logits.shape[-1] == VOCAB
