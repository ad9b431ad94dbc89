"""The native copy of a network beside the network itself: every family, cached and not, alone and among others."""

import copy
from collections.abc import Iterator
from random import Random

import pytest
import torch
from tiny_engines import WRITERS, alone, bits, some_request, tiny, tokens
from tiny_models import EVERY, enlarge_weights
from torch import Tensor, nn

from triform.core.build import make_cache
from triform.core.change_weights import change_weights
from triform.core.initial_weights import build_network
from triform.core.texts import PackedText, Pair, Text
from triform.families import gpt2
from triform.generate.engine import Engine
from triform.generate.model_runner import ModelRunner
from triform.generate.row_attention import FreshRows
from triform.generate.settings import Request, Settings
from triform.kernels import packed_matrix
from triform.kernels.library import VARIABLE, find_kernels
from triform.native.native_network import AnyNetwork, NativeStack, choose_network, free_native_copy, native_network
from triform.native.places import TokenSpan, split_chunks, split_into_pieces
from triform.weight_kinds import KINDS, WeightKind

pytestmark = pytest.mark.skipif(find_kernels() is None, reason="no native kernels for this machine")
BOUND = 1e-5  # relative to the largest number


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def native_or_skip(network: AnyNetwork) -> AnyNetwork:
    """The native copy; some parts of some families have no native twin yet."""
    native = native_network(network)
    if native is None:
        pytest.skip("a part of it has no native twin")
    return native


def test_most_families_are_native() -> None:
    found = [name for name, spec in EVERY.items() if native_network(build_network(spec, seed=1)) is not None]
    assert len(found) >= 29
    assert {"gpt2", "llama", "mistral", "qwen2", "qwen3", "bert", "roberta", "t5", "bart", "marian"} <= set(found)


def distance(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).abs().max() / want.double().abs().max())


def some_text(name: str, *lengths: int, packed: bool, seed: int = 0) -> Text | Pair:
    random = torch.Generator().manual_seed(seed)

    def draw(extra: int) -> Text:
        texts = [torch.randint(0, 29, (length + extra,), generator=random) for length in lengths]
        return PackedText.join(texts) if packed else Text.of(torch.stack(texts))

    return Pair(draw(2), draw(0)) if EVERY[name].form == "encoder-decoder" else draw(0)


@pytest.mark.parametrize("name", EVERY)
def test_every_family_computes_what_torch_does(name: str) -> None:
    """Rows of one length, and packed texts of unequal lengths; the reference in float64."""
    spec = EVERY[name]
    exact = enlarge_weights(build_network(spec, seed=1, dtype=torch.float64))
    network = copy.deepcopy(exact).float()
    native = native_or_skip(network)
    assert any(isinstance(module, NativeStack) for module in native.modules())
    for text in (some_text(name, 7, 7, 7, packed=False), some_text(name, 5, 1, 12, packed=True)):
        want, plain, got = exact(text), network(text), native(text)
        assert distance(got, want) < max(BOUND, 3 * distance(plain, want))


MISTAKEN = (
    "llama",
    "mistral",
    "qwen3",
    "gpt2",
    "alibi decoder",
    "sandwich norm",
    "bart",
    "t5",
    "bert",
    "mpnet",
    "nomic_bert",
)


@pytest.mark.parametrize("name", MISTAKEN)
def test_a_planted_mistake_is_noticed(name: str) -> None:
    """One wrong field of one operation, in turn: the comparison above must see it."""
    network = enlarge_weights(build_network(EVERY[name], seed=1))
    text = some_text(name, 9, 9, packed=False)
    want = network(text)
    for field, change in (
        ("score_scale", lambda x: x * 1.01), ("factor", lambda x: x * 1.01), ("adds", lambda x: 1 - x),
        ("activation", lambda x: 1 if x != 1 else 2), ("rotary", lambda x: 0), ("biased", lambda x: 0),
    ):  # fmt: skip
        free_native_copy(network)
        native = native_network(network)
        assert native is not None
        stack = native.encoder if EVERY[name].form == "encoder" else native.decoder
        operations = stack.program.operations
        values = ((each, getattr(each, field)) for each in operations)
        changed = next((each for each, value in values if value and value != change(value)), None)
        if changed is None:
            continue
        setattr(changed, field, change(getattr(changed, field)))
        assert distance(native(text), want) > 10 * BOUND, field
    free_native_copy(network)


@pytest.mark.parametrize("kind", ["q8", "q4"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "alibi decoder", "bert", "t5", "bart", "marian"])
def test_few_bits_compute_what_torch_does_with_the_same_numbers(
    name: str, kind: WeightKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The torch road multiplies de-quantised weights with activations rounded to 8 bits. Where a number lies on the
    edge between two codes, the last bit of a sum decides, and a token may come out a whole step apart: few do."""
    network = change_weights(enlarge_weights(build_network(EVERY[name], seed=1)), EVERY[name], kind=kind)
    native, text = native_or_skip(network), some_text(name, *[3] * 40, packed=True)
    got = native(text)[0]
    monkeypatch.setenv(VARIABLE, "off")
    assert share_within(BOUND, got, network(text)[0]) > 0.9
    monkeypatch.setattr(packed_matrix, "round_activations", lambda x: x)
    assert share_within(BOUND, got, network(text)[0]) < 0.1


def share_within(bound: float, got: Tensor, want: Tensor) -> float:
    """The share of the tokens whose every score is that near, relative to the largest."""
    return float(((got - want).abs().amax(-1) < bound * want.abs().max()).double().mean())


LENGTHS = (7, 33, 1, 70, 16, 129, 20)


@pytest.mark.parametrize("weights", KINDS)
@pytest.mark.parametrize(
    "name", ["bert", "mpnet", "nomic_bert", "alibi encoder of three heads", "single key head with a window"]
)
def test_texts_have_the_same_bits_alone_and_among_others(name: str, weights: WeightKind) -> None:
    """Texts that fill no tile, one tile, and several chains of 128 keys; with one thread and with two."""
    network = enlarge_weights(build_network(EVERY[name], seed=1))
    native = native_or_skip(change_weights(network, EVERY[name], kind=weights))
    text = some_text(name, *LENGTHS, packed=True)
    together = native.hidden(text)[0]
    for part, ids in zip(torch.split(together, list(LENGTHS)), torch.split(text.ids[0], list(LENGTHS)), strict=True):
        assert torch.equal(native.hidden(Text.of(ids[None]))[0], part)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        assert torch.equal(native.hidden(text)[0], together)
    finally:
        torch.set_num_threads(threads)


def test_texts_of_several_pieces_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of queries are cut at any length; a piece that begins one token late is noticed."""
    network = enlarge_weights(build_network(EVERY["bert"], seed=1))
    native, text = native_or_skip(network), some_text("bert", 100, 45, packed=True)
    want, whole = network.hidden(text), native.hidden(text)
    assert distance(whole, want) < BOUND
    monkeypatch.setattr("triform.native.places.PIECE_ROWS", 37)
    assert torch.equal(native.hidden(text), whole)
    late = split_into_pieces([TokenSpan(0, 0, 100, 0), TokenSpan(0, 0, 44, 101)])
    monkeypatch.setattr("triform.native.native_network.split_into_pieces", lambda spans: late)
    assert distance(native.hidden(text), want) > 10 * BOUND


def test_a_text_with_nan_harms_no_neighbour() -> None:
    network = build_network(EVERY["bert"], seed=1)
    network.token.weight[3] = torch.nan
    native = native_or_skip(network)
    text = PackedText.join([torch.tensor(ids) for ids in ([5, 3, 6], [7, 8, 9, 10], [11])])
    found, alone = native.hidden(text)[0], native.hidden(Text.of(torch.tensor([[7, 8, 9, 10]])))[0]
    assert bool(found[:3].isnan().all())
    assert torch.equal(found[3:7], alone)
    assert bool(found[7:].isfinite().all())


@pytest.mark.parametrize("name", [name for name in EVERY if EVERY[name].form == "decoder"])
def test_cached_is_uncached_at_every_split(name: str) -> None:
    spec = EVERY[name]
    network = enlarge_weights(build_network(spec, seed=1))
    native = native_or_skip(network)
    ids = torch.randint(0, 29, (3, 9), generator=torch.Generator().manual_seed(3))
    want = network.decode(Text.of(ids))
    for split in (1, 4, 8):
        cache = make_cache(spec, rows=3, capacity=4)
        first = native.decode(Text.of(ids[:, :split]), cache)
        rest = [native.decode(Text.of(ids[:, at : at + 1]), cache) for at in range(split, 9)]
        assert distance(torch.cat([first, *rest], dim=1), want) < BOUND
        cache.roll_back(4)
        again = native.decode(Text.of(ids[:, 5:]), cache)
        assert distance(again, want[:, 5:]) < BOUND
        cache.reorder([2, 0, 1])
        assert cache.lengths == (9, 9, 9)


CHUNKED = ["llama", "mistral", "qwen3", "gpt2", "alibi decoder", "single key head with a window", "no positions"]


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_of_prompts_are_those_of_torch_and_the_same_bits_amid_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two chunks that fill no piece, one, and several; whole prompts side by side; a mistake in a piece is noticed."""
    spec, lengths = EVERY[name], (20, 3, 70, 9, 1)
    network = enlarge_weights(build_network(spec, seed=1))
    native = native_or_skip(network)
    ids = torch.randint(0, 29, (2, 120), generator=torch.Generator().manual_seed(3))
    want = network.decode(Text.of(ids))

    def read_chunks(rows: Tensor) -> Tensor:
        cache = make_cache(spec, rows=len(rows), capacity=4)
        return torch.cat([native.decode(Text.of(part), cache) for part in torch.split(rows, [30, 79, 11], dim=1)], 1)

    found = read_chunks(ids)
    assert distance(found, want) < BOUND
    assert torch.equal(read_chunks(ids[1:]), found[1:])
    prompts = [ids[0, :length] for length in lengths]

    def read_prompts(texts: list[Tensor]) -> Tensor:
        cache = make_cache(spec, rows=len(texts), capacity=128)
        return native.decode(PackedText.join(texts), FreshRows(cache, 0, tuple(map(len, texts))))[0]

    together = torch.split(read_prompts(prompts), list(lengths))
    for part, prompt in zip(together, prompts, strict=True):
        assert torch.equal(part, read_prompts([prompt]))
        assert distance(part, want[0, : len(prompt)]) < BOUND
    monkeypatch.setattr("triform.native.native_network.split_chunks", lambda spans: split_chunks(spans)[:-1])
    assert distance(read_chunks(ids), want) > 10 * BOUND


@pytest.mark.parametrize("name", WRITERS)
def test_generation_is_that_of_torch_and_the_same_bits_amid_others(name: str) -> None:
    """Tokens and log-probabilities: native against plain float64, alone against beside others."""
    model, exact, random = tiny(name, torch.float32), tiny(name), Random(name)
    native_or_skip(model.network)
    requests = [some_request(random, model.spec, longest=30, temperature=0.0, top_p=1.0, top_k=0) for _ in range(4)]
    apart = [bits(alone(model, request, pack=True, chunk=16)) for request in requests]
    engine = Engine(model.network, model.spec, start=0, rows=4, chunk=16, pack=True)
    assert isinstance(engine.runner.network.decoder, NativeStack)
    numbers = [engine.add(request) for request in requests]
    together: dict[int, list[tuple[int | None, float]]] = {number: [] for number in numbers}
    while engine.busy:
        for event in engine.step():
            together[event.request].append((event.token, event.logprob))
    assert [together[number] for number in numbers] == apart
    for request, written in zip(requests, apart, strict=True):
        slow = alone(exact, request, pack=False, chunk=16)
        assert tokens(slow) == [token for token, _ in written]
        assert all(abs(event.logprob - logprob) < 1e-4 for event, (_, logprob) in zip(slow, written, strict=True))


def test_a_cache_of_another_engine_is_never_mixed_up() -> None:
    """The addresses of a cache are remembered: a freed cache may leave its first address to the next one."""
    model = tiny("llama", torch.float32)
    request = Request(prompt=(1, 2, 3, 4), settings=Settings(max_tokens=8))
    want = bits(alone(model, request, pack=True))
    for rows in (1, 3, 1, 2, 5, 1) * 4:
        engine = Engine(model.network, model.spec, start=0, rows=rows, pack=True)
        number, written = engine.add(request), []
        while engine.busy:
            written += [(event.token, event.logprob) for event in engine.step() if event.request == number]
        assert written == want


# --- what stays on torch ----------------------------------------------------------------------------------------------


class OwnNorm(nn.LayerNorm):
    """A norm that the kernels do not know."""


def test_a_module_without_native_twin_is_said_once_and_computed_by_torch(capsys: pytest.CaptureFixture[str]) -> None:
    spec = gpt2(vocab=29, width=16, layers=1, heads=2, context=32)
    for seed in (1, 2):
        network = build_network(spec, seed=seed)
        network.decoder.final = OwnNorm(16)
        assert native_network(network) is None
        runner = ModelRunner(network, spec, rows=1, pack=True)
        assert not isinstance(runner.network.decoder, NativeStack)
    assert capsys.readouterr().err.count("no native kernel for OwnNorm") == 1


def test_other_numbers_and_no_kernels_mean_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EVERY["llama"]
    assert native_network(build_network(spec, dtype=torch.float64)) is None
    network = build_network(spec, seed=1)
    assert native_network(network) is not None
    monkeypatch.setenv(VARIABLE, "off")
    assert native_network(network) is None


def test_new_weights_make_a_new_copy() -> None:
    with torch.inference_mode(mode=False):
        network = build_network(EVERY["gpt2"], seed=1)
        first = native_network(network)
        assert native_network(network) is first
        with torch.no_grad():
            network.decoder.blocks[0].get_submodule("feedforward.f.up").weight.mul_(2)
        second = native_network(network)
        assert second is not None
        assert second is not first
        text = Text.of(torch.arange(6)[None])
        with torch.no_grad():
            assert distance(second(text), network(text)) < BOUND


def test_a_network_with_hooks_is_read_by_itself() -> None:
    """A copy for speed has no hooks: taps and interventions would be passed by."""
    network = build_network(EVERY["bert"], seed=1)
    assert choose_network(network, pack=True)[0] is native_network(network)
    assert choose_network(network)[0] is network, "too small to be worth a copy"
    handle = network.encoder.blocks[0].register_forward_hook(lambda *given: None)
    assert choose_network(network, pack=True) == (network, False)
    handle.remove()
