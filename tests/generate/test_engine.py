"""The engine: exact amid any traffic, rows come and go, one bad row harms nobody, memory as predicted."""

from random import Random
from typing import Any

import pytest
import torch
from tiny_engines import START, WRITERS, Tiny, alone, amid_traffic, bits, finish, some_request, tiny, tokens
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from triform.core.initial_weights import build_network
from triform.errors import InputError
from triform.families import gpt2, llama, t5
from triform.generate.engine import DRAFT_TOKENS, Engine
from triform.generate.events import Event
from triform.generate.settings import Request, Settings

pytestmark = pytest.mark.usefixtures("unchecked")


# --- batch independence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "t5", "marian"])
@pytest.mark.parametrize("kind", ["plain float32", "packed float32", "float64"])
def test_two_hundred_times_amid_traffic_one_answer(name: str, kind: str) -> None:
    """To the last bit of every log-probability, over all models and kinds of numbers 200 runs and more."""
    model = tiny(name, torch.float64 if kind == "float64" else torch.float32)
    random = Random(f"{name} {kind}")
    for _ in range(2):
        request = some_request(random, model.spec, longest=40, max_tokens=12)
        answer = bits(alone(model, request, chunk=16, pack="packed" in kind))
        for _ in range(7):
            assert bits(amid_traffic(model, request, random, chunk=16, pack="packed" in kind)) == answer


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_thousand_times_amid_traffic_one_answer(dtype: torch.dtype) -> None:
    model, random = tiny("llama", dtype), Random(0)
    request = some_request(random, model.spec, longest=40, max_tokens=20, temperature=1.0, lookup=True)
    answer = bits(alone(model, request))
    for _ in range(500):
        assert bits(amid_traffic(model, request, random)) == answer


@pytest.mark.parametrize("name", ["gpt2", "t5", "mistral", "alibi decoder"])
def test_lookup_changes_nothing(name: str) -> None:
    """Bit for bit; and drafts are in fact used and rolled back."""
    model, random, saved = tiny(name, torch.float32), Random(name), 0
    for _ in range(6):
        prompt = tuple(random.randrange(model.spec.vocab) for _ in range(5)) * 4
        asked = {"max_tokens": 40, "temperature": random.choice([0.0, 0.3]), "seed": 3}
        engine = model.engine(rows=1)
        engine.add(Request(prompt=prompt, settings=Settings(**asked, lookup=True)))
        events, passes = [], 0
        while engine.busy:
            events += engine.step()
            passes += 1
        assert bits(events) == bits(alone(model, Request(prompt=prompt, settings=Settings(**asked))))
        saved += len(events) - passes
    assert saved > 0


@pytest.mark.parametrize(("name", "pack"), [("mistral", True), ("mistral", False), ("gemma3", False)])
def test_positions_that_windows_leave_behind_change_no_token(
    name: str, pack: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches with few slots beside a window, and such that drop nothing: long prompts from the prefix cache, more
    samples than rows, drafts that are rolled back, rows that move; on torch and on native kernels."""
    model, random = tiny(name, torch.float32), Random(name)
    requests = [
        Request(
            prompt=tuple([random.randrange(29) for _ in range(9)] * 8)[: random.randrange(40, 72)],
            settings=Settings(max_tokens=30, seed=seed, temperature=0.7, n=2, lookup=True),
        )
        for seed in range(3)
    ]

    def write(spare: int) -> tuple[list[list[tuple[int | None, float]]], int]:
        monkeypatch.setattr("triform.spec.SPARE_POSITIONS", spare)
        engine = model.engine(rows=3, chunk=8, pack=pack)
        for request in (*requests, *requests):
            engine.add(request)
        written, dropped = {}, 0
        while engine.busy:
            for event in engine.step():
                written.setdefault((event.request, event.sample), []).append((event.token, event.logprob))
            dropped = max(dropped, max(engine.runner.cache.count_dropped(1, row) for row in range(3)))
        assert engine.runner.bytes <= engine.runner.max_bytes
        return [written[key] for key in sorted(written)], dropped

    (few, dropped), (all_of_them, none) = write(40), write(1000)
    for some, others in zip(few, all_of_them, strict=True):
        assert [token for token, _ in some] == [token for token, _ in others]
        # On torch a chunk of a prompt has fewer masked keys beside those it sees, which may round its sums otherwise.
        bound = 0.0 if pack else 1e-4
        assert all(abs(a - b) <= bound for (_, a), (_, b) in zip(some, others, strict=True))
    assert dropped > 20
    assert none == 0


def test_drafts_are_left_off_where_they_do_not_pay() -> None:
    """A row that never repeats itself pays for no more than a few drafts."""
    model = tiny("gpt2")
    engine = model.engine(rows=1)
    random = Random(1)
    prompt = tuple(random.randrange(29) for _ in range(40))
    engine.add(Request(prompt=prompt, settings=Settings(max_tokens=60, temperature=3.0, seed=1, lookup=True)))
    wide = 0
    plain = engine.runner.decode

    def counted(ids: Any) -> Any:
        nonlocal wide
        wide += len(ids[0]) == 1 + DRAFT_TOKENS
        return plain(ids)

    engine.runner.decode = counted  # type: ignore[method-assign]
    finish(engine)
    assert wide <= 3


# --- rows that come and go ------------------------------------------------------------------------------------------


def test_samples_of_one_prompt_share_its_reading() -> None:
    model = tiny("gpt2")
    asked = Settings(max_tokens=6, temperature=1.0, seed=5, n=5)
    request = Request(prompt=tuple(range(20)), settings=asked)
    single = model.engine(rows=1)
    single.add(request)
    expected = finish(single)
    for rows in (2, 5, 8):  # with fewer places than samples the rest wait
        engine = model.engine(rows=rows)
        read = counting(engine, "prefill")
        engine.add(request)
        written = finish(engine)
        assert len(written) == 5
        assert len({tuple(tokens(row)) for row in written.values()}) > 1
        if rows >= 5:
            assert read() == 1
        assert all(bits(written[row]) == bits(expected[row]) for row in expected)
    assert bits(written[0, 0]) == bits(alone(model, Request(prompt=request.prompt, settings=Settings(
        max_tokens=6, temperature=1.0, seed=5
    ))))  # fmt: skip


def counting(engine: Engine, name: str) -> Any:
    """How often the engine's passes were asked to do something."""
    calls, method = [], getattr(engine.runner, name)

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return method(*args, **named)

    setattr(engine.runner, name, counted)
    return lambda: len(calls)


def test_a_long_prompt_does_not_hold_up_the_others() -> None:
    """While a prompt of many chunks is read, the writing row writes a token in every step."""
    model = tiny("gpt2")
    engine = model.engine(rows=2, chunk=8)
    first = engine.add(Request(prompt=(1, 2), settings=Settings(max_tokens=20)))
    engine.step()
    second = engine.add(Request(prompt=tuple(range(29)) * 3, settings=Settings(max_tokens=2)))
    for _ in range(87 // 8):
        assert [event.request for event in engine.step()] == [first]
    assert {event.request for event in engine.step()} == {first, second}


def test_short_prompts_begin_in_one_step() -> None:
    engine = tiny("gpt2").engine(rows=4, chunk=8)
    for _ in range(4):
        engine.add(Request(prompt=(1, 2), settings=Settings(max_tokens=3)))
    assert len(engine.step()) == 4


def test_a_cancelled_request_leaves_at_once() -> None:
    model = tiny("gpt2")
    asked = Settings(max_tokens=30)
    engine = model.engine(rows=2, chunk=4)
    ids = [engine.add(Request(prompt=(id, 1, 2, 3, 4, 5, 6, 7, 8), settings=asked)) for id in range(4)]
    events = [event for _ in range(4) for event in engine.step()]
    for id in (ids[0], ids[3], 99):  # writing, waiting, unknown
        engine.cancel(id)
    engine.step()
    engine.cancel(ids[2])  # reading
    written = finish(engine, first=events)
    assert ids[3] not in {request for request, _ in written}
    assert tokens(written[ids[1], 0])[-5:] == tokens(alone(model, Request(
        prompt=(1, 1, 2, 3, 4, 5, 6, 7, 8), settings=asked
    ), chunk=4))[-5:]  # fmt: skip
    assert not any(engine.runner.cache.lengths)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_nothing_is_left_of_finished_rows(name: str) -> None:
    engine = tiny(name).engine(rows=3)
    for id in range(5):
        engine.add(Request(prompt=(id, 2, 3), settings=Settings(max_tokens=4 + id)))
    finish(engine)
    assert not any(engine.runner.cache.lengths)
    assert engine.runner.sources is None or not any(engine.runner.sources.lengths)


def test_a_common_beginning_is_read_once() -> None:
    model = tiny("llama")
    asked = Settings(max_tokens=4)
    common = tuple(range(20))
    engine = model.engine(rows=2, chunk=8)
    read = counting(engine, "prefill")
    for end in (21, 22, 23):
        engine.add(Request(prompt=(*common, end), settings=asked))
    written = finish(engine)
    assert read() == 3 + 1 + 1
    for id, end in enumerate((21, 22, 23)):
        assert bits(written[id, 0]) == bits(alone(model, Request(prompt=(*common, end), settings=asked), chunk=8))
    another = engine.add(Request(prompt=(*common[:8], 5, *common[9:]), settings=asked))
    assert bits(finish(engine)[another, 0]) == bits(
        alone(model, Request(prompt=(*common[:8], 5, *common[9:]), settings=asked), chunk=8, prefix_bytes=0)
    )


def test_kept_beginnings_stay_within_their_bytes() -> None:
    model = tiny("gpt2")
    piece = 2 * 2 * 16 * 8 * 8  # layers · keys and values · width · chunk · bytes of a number
    engine = model.engine(rows=1, chunk=8, prefix_bytes=3 * piece)
    for id in range(6):
        engine.add(Request(prompt=(id, *range(20)), settings=Settings(max_tokens=1)))
        finish(engine)
        assert engine.prefix_cache.bytes <= 3 * piece
    assert engine.prefix_cache.bytes == 3 * piece
    read = counting(engine, "prefill")
    engine.add(Request(prompt=(5, *range(20)), settings=Settings(max_tokens=1)))
    finish(engine)
    assert read() == 1


def test_the_context_is_the_last_word() -> None:
    """A prompt as long as the context may still be continued by one token."""
    model = tiny("gpt2")
    for room in range(4):
        prompt = tuple(id % 29 for id in range(model.spec.context - room))
        events = alone(model, Request(prompt=prompt, settings=Settings(max_tokens=50, lookup=True)))
        assert len(events) == room + 1
        assert events[-1].finish == "length"


def test_endings() -> None:
    model = tiny("gpt2")
    free = tokens(alone(model, Request(prompt=(1, 2), settings=Settings(max_tokens=8))))
    for asked, finish_reason in (({"eos": (free[3],)}, "eos"), ({"stop_ids": (free[3],)}, "stop")):
        events = alone(model, Request(prompt=(1, 2), settings=Settings(max_tokens=8, **asked)))
        assert events[-1].finish == finish_reason
        assert tokens(events) == free[: free.index(free[3]) + 1]
    ignored = alone(model, Request(prompt=(1, 2), settings=Settings(max_tokens=8, eos=(free[3],), ignore_eos=True)))
    assert tokens(ignored) == free


def test_log_probabilities_are_the_model_s_own() -> None:
    model = tiny("gpt2")
    asked = {"max_tokens": 3, "logprobs": 29, "temperature": 1.0, "seed": 2, "banned": (4,)}
    for event in alone(model, Request(prompt=(1, 2), settings=Settings(**asked))):
        said = {alternative.token: alternative.logprob for alternative in event.alternatives}
        assert said[event.token] == event.logprob
        assert torch.tensor(list(said.values())).exp().sum() == pytest.approx(1.0)
        assert list(said.values()) == sorted(said.values(), reverse=True)


# --- one bad row ----------------------------------------------------------------------------------------------------

POISON = 7


def poisoned(name: str) -> Tiny:
    """A model for which one token is poison: its embedding is not a number."""
    spec = tiny(name).spec
    network = build_network(spec, seed=1, dtype=torch.float64)
    network.load_state_dict(tiny(name).network.state_dict())
    with torch.no_grad():
        network.token.weight[POISON] = torch.nan
    return Tiny(spec, network)


@pytest.mark.parametrize("name", ["llama", "flan_t5"])  # with heads of their own: only the prompt is poisoned
def test_a_row_of_nans_fails_alone(name: str) -> None:
    model = poisoned(name)
    engine = model.engine(rows=4)
    asked = Settings(max_tokens=8, temperature=1.0, seed=4, banned=(POISON,))
    good = [Request(prompt=(id, 2, 3), settings=asked) for id in range(3)]
    ids = [engine.add(request) for request in good]
    bad = engine.add(Request(prompt=(1, POISON, 2), settings=asked))
    ids.append(engine.add(Request(prompt=(5, 5), settings=asked)))  # takes the place of the failed row
    written = finish(engine)
    assert [(event.finish, event.token) for event in written[bad, 0]] == [("error", None)]
    assert "not finite" in written[bad, 0][0].error
    for id, request in zip(ids, [*good, Request(prompt=(5, 5), settings=asked)], strict=True):
        assert bits(written[id, 0]) == bits(alone(tiny(name), request))
    assert all(bool(kv.isfinite().all()) for kv in engine.runner.cache.store)


@pytest.mark.parametrize(("number", "why"), [(0.0, "all the same number"), (-torch.inf, "not finite")])
def test_logits_that_say_nothing_fail_alone(number: float, why: str) -> None:
    """A vector of zeros stays one through every part of a Llama, and all its logits are 0; −inf is no number either."""
    model = poisoned("llama")
    with torch.no_grad():
        model.network.token.weight[POISON] = number
    engine = model.engine(rows=2)
    asked = Settings(max_tokens=4, temperature=1.0, seed=4, banned=(POISON,))
    good, bad = (engine.add(Request(prompt=prompt, settings=asked)) for prompt in ((1, 2), (POISON,)))
    written = finish(engine)
    assert [(event.finish, event.token) for event in written[bad, 0]] == [("error", None)]
    assert why in written[bad, 0][0].error
    assert "load it in float32" in written[bad, 0][0].error
    assert bits(written[good, 0]) == bits(alone(tiny("llama"), Request(prompt=(1, 2), settings=asked)))


def test_a_row_that_turns_to_nans_fails_alone() -> None:
    """The poison is written, not read: the row fails in the middle, the others do not notice."""
    model = poisoned("llama")
    engine = model.engine(rows=3)
    free = Settings(max_tokens=8, banned=(POISON,))
    good = [engine.add(Request(prompt=(id, 2, 3), settings=free)) for id in range(2)]
    bad = engine.add(Request(prompt=(4, 4), settings=Settings(max_tokens=8, forced={2: POISON})))
    written = finish(engine)
    assert [event.finish for event in written[bad, 0]] == [None, None, None, "error"]
    for id, request in enumerate(good):
        assert bits(written[request, 0]) == bits(alone(tiny("llama"), Request(prompt=(id, 2, 3), settings=free)))


def test_an_exception_in_one_row_fails_alone() -> None:
    class Broken:
        def stream(self) -> "Broken":
            return self

        def push(self, id: int) -> str:
            raise RuntimeError("no such token")

        def finish(self) -> str:
            return ""

    class Choosy:
        """Breaks for the second row only."""

        made = 0

        def stream(self) -> Any:
            Choosy.made += 1
            return Broken() if Choosy.made == 2 else Plain()

    class Plain:
        def push(self, id: int) -> str:
            return chr(65 + id)

        def finish(self) -> str:
            return ""

    model = tiny("gpt2")
    engine = Engine(model.network, model.spec, Choosy(), rows=3)
    ids = [engine.add(Request(prompt=(id, 2, 3), settings=Settings(max_tokens=5))) for id in range(3)]
    written = finish(engine)
    assert written[ids[1], 0][-1].error == "RuntimeError: no such token"
    for id in (0, 2):
        request = Request(prompt=(id, 2, 3), settings=Settings(max_tokens=5))
        assert bits(written[ids[id], 0]) == bits(alone(model, request))


def test_banning_everything_fails_alone() -> None:
    request = Request(prompt=(1,), settings=Settings(banned=tuple(range(29))))
    assert "no token is left" in alone(tiny("gpt2"), request)[-1].error


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(prompt=()), "empty"),
        (Request(prompt=(1,) * 131), "131 tokens, the model reads 130"),
        (Request(prompt=(1, 29)), "token 29 is outside the vocabulary of 29"),
        (Request(prompt=(-1,)), "token -1"),
        (Request(prompt=(1.5,)), "token 1.5"),  # type: ignore[arg-type]
        (Request(prompt=(1,), settings=Settings(banned=(29,))), "banned: token 29"),
        (Request(prompt=(1,), settings=Settings(forced={0: 30})), "forced: token 30"),
        (Request(prompt=(1,), settings=Settings(logit_bias={31: 1.0})), "logit_bias: token 31"),
        (Request(prompt=(1,), settings=Settings(eos=(32,))), "eos: token 32"),
        (Request(prompt=(1,), settings=Settings(logprobs=30)), "logprobs=30"),
        (Request(prompt=(1,), settings=Settings(stop=("x",))), "tokenizer"),
    ],
)
def test_a_bad_request_is_refused_with_one_clear_line(request_: Request, said: str) -> None:
    engine = tiny("gpt2").engine()
    with pytest.raises(InputError, match=said) as caught:
        engine.add(request_)
    assert "\n" not in str(caught.value)
    assert not engine.busy


def test_models_that_cannot_write_say_so() -> None:
    for name, said in (("bert", "encoder"), ("classify by a decoder", "Classify")):
        with pytest.raises(InputError, match=said):
            tiny(name).engine()
    model = tiny("t5")
    with pytest.raises(InputError, match="start"):
        Engine(model.network, model.spec).add(Request(prompt=(1,)))
    with pytest.raises(InputError, match="float64"):
        tiny("gpt2").engine(pack=True)
    with pytest.raises(InputError, match="rows=0"):
        tiny("gpt2").engine(rows=0)


def test_half_precision_writes_too() -> None:
    events = alone(tiny("gpt2", torch.bfloat16), Request(prompt=(1, 2), settings=Settings(max_tokens=4, logprobs=29)))
    assert torch.tensor([one.logprob for one in events[-1].alternatives]).exp().sum() == pytest.approx(1.0, abs=1e-5)


# --- memory ---------------------------------------------------------------------------------------------------------


class Allocated(TorchDispatchMode):
    """Bytes of every tensor that an operation makes; views make none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in known:
                self.bytes += x.nbytes
        return out


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "t5", "alibi decoder"])
@pytest.mark.parametrize("rows", [1, 3])
def test_no_step_allocates_in_proportion_to_the_past(name: str, rows: int) -> None:
    model = tiny(name)
    engine = model.engine(rows=rows)
    for id in range(rows):
        engine.add(Request(prompt=(1, 2, 3 + id), settings=Settings(max_tokens=120)))
    made = []
    for _ in range(110):
        with Allocated() as allocated:
            engine.step()
        made.append(allocated.bytes)
    assert len(set(made[5:])) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cache_bytes_are_as_predicted(dtype: torch.dtype) -> None:
    """2 · layers · rows · key heads · head width · positions · bytes, and the same again for the sources."""
    size = dtype.itemsize
    spec = llama(vocab=29, width=16, layers=2, heads=4, kv_heads=2, context=256)
    engine = Engine(build_network(spec, dtype=dtype), spec, rows=16)
    assert engine.runner.bytes == 2 * 2 * 16 * 2 * 4 * 64 * size
    engine.add(Request(prompt=(1,) * 100, settings=Settings(max_tokens=400)))
    engine.step()
    assert engine.runner.bytes == 2 * 2 * 16 * 2 * 4 * 256 * size
    pair = t5(vocab=29, width=16, layers=3, heads=2, head_width=5, context=128)
    both = Engine(build_network(pair, dtype=dtype), pair, rows=16, start=START)
    both.add(Request(prompt=(1,) * 70, settings=Settings(max_tokens=10)))
    both.step()
    assert both.runner.bytes == 2 * 3 * 16 * 2 * 5 * (64 + 128) * size
    assert both.runner.max_bytes == 2 * 3 * 16 * 2 * 5 * (128 + 128) * size


def test_a_row_never_outgrows_its_positions() -> None:
    spec = gpt2(vocab=29, width=16, layers=1, heads=2, context=1000)
    engine = Engine(build_network(spec), spec, rows=4, positions=300)
    with pytest.raises(InputError, match="301 tokens, the model reads 300"):
        engine.add(Request(prompt=(1,) * 301))
    engine.add(Request(prompt=(1,) * 299, settings=Settings(max_tokens=9)))
    events = finish(engine)[0, 0]
    assert len(events) == 2
    assert engine.runner.cache.capacity == 300


# --- short prompts read together ------------------------------------------------------------------------------------


def together(model: Tiny, requests: list[Request], **options: Any) -> tuple[list[list[Event]], int]:
    """What each request writes where all come at once, and how many were read in company."""
    engine = model.engine(rows=8, chunk=64, pack=True, **options)
    joined, read_fresh = [], engine.runner.prefill_batch
    engine.runner.prefill_batch = lambda *given: joined.append(len(given[1])) or read_fresh(*given)  # type: ignore[method-assign, func-returns-value]
    ids = [engine.add(request) for request in requests]
    written = finish(engine)
    return [written[id, 0] for id in ids], sum(joined)


@pytest.mark.parametrize("name", WRITERS)
def test_prompts_read_together_are_answered_as_alone(name: str) -> None:
    model, random = tiny(name, torch.float32), Random(7)
    requests = [some_request(random, model.spec, longest=12) for _ in range(20)]
    answers, joined = together(model, requests)
    assert joined >= 10
    for request, answer in zip(requests, answers, strict=True):
        assert bits(answer) == bits(alone(model, request, chunk=64, pack=True))


def test_where_reading_together_fails_each_is_read_by_itself() -> None:
    model, random = tiny("gpt2", torch.float32), Random(8)
    requests = [some_request(random, model.spec, longest=12) for _ in range(4)]
    engine = model.engine(rows=4, chunk=64, pack=True)

    def broken(*_: object) -> Tensor:
        raise RuntimeError("no")

    engine.runner.prefill_batch = broken  # type: ignore[method-assign]
    ids = [engine.add(request) for request in requests]
    written = finish(engine)
    for id, request in zip(ids, requests, strict=True):
        assert bits(written[id, 0]) == bits(alone(model, request, chunk=64, pack=True))
