"""Beam search against an oracle that tries everything, against its written-out definition, and against greedy."""

from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from tiny_engines import START, Tiny, alone, tiny, tokens
from torch import Tensor

from triform.core.initial_weights import build_network
from triform.core.texts import Pair, Text
from triform.errors import InvalidScores, TriformError
from triform.families import llama, marian
from triform.generate import beam_search
from triform.generate.beam_search import Hypothesis, search
from triform.generate.model_runner import ModelRunner
from triform.generate.row_attention import DistanceBiases, KeySpan, NextOfBeams
from triform.generate.settings import Request, Settings

pytestmark = pytest.mark.usefixtures("unchecked")
VOCAB, LENGTH, EOS = 4, 5, 3
SIZES = {"vocab": VOCAB, "width": 8, "layers": 1, "heads": 2, "context": 32}
PROMPTS = ((0, 1, 2), (2,), (1, 1, 0, 2, 0))
PENALTIES = (-1.0, 0.0, 0.6, 1.0, 2.0)
STOPPING = (True, False, "never")


@cache
def small(form: str, seed: int) -> Tiny:
    spec = llama(**SIZES) if form == "decoder" else marian(**SIZES)
    network = build_network(spec, seed=seed, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return Tiny(spec, network)


def request(prompt: tuple[int, ...], **asked: Any) -> Request:
    return Request(prompt=prompt, settings=Settings(**({"max_tokens": LENGTH, "eos": (EOS,)} | asked)))


def find(model: Tiny, requests: list[Request], **plan: Any) -> list[list[Hypothesis]]:
    return search(model.network, model.spec, requests, plan=beam_search.BeamSettings(**plan), start=START, rows=10)


@cache
def every_text(form: str, seed: int, prompt: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """All texts of LENGTH tokens, or fewer where eos ends them, and their log-probabilities, without a cache."""
    model = small(form, seed)
    written = torch.tensor(list(product(range(VOCAB), repeat=LENGTH)))
    logits = answers(model, prompt, written)
    logprobs = logits.log_softmax(-1).gather(-1, written[..., None])[..., 0]
    texts = {}
    for text, each in zip(written.tolist(), logprobs.tolist(), strict=True):
        length = text.index(EOS) + 1 if EOS in text else LENGTH
        texts[tuple(text[:length])] = sum(each[:length])
    return texts


@torch.no_grad()
def answers(model: Tiny, prompt: tuple[int, ...], written: Tensor) -> Tensor:
    """The logits of every written token, [texts, length, V]."""
    read = torch.tensor(prompt if model.spec.encoder is None else (START,)).expand(len(written), -1)
    target = Text.of(torch.cat((read, written[:, :-1]), dim=1))
    if model.spec.encoder is None:
        x = model.network(target)
    else:
        x = model.network(Pair(Text.of(torch.tensor(prompt).expand(len(written), -1)), target))
    return x[:, read.shape[1] - 1 :]


@pytest.mark.parametrize("form", ["decoder", "pair"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_wide_enough_it_finds_what_trying_everything_finds(form: str, penalty: float) -> None:
    """Nothing is pruned where there is room for every beginning: the n best are those of brute force."""
    ended = 0
    for seed in range(3):
        texts = [every_text(form, seed, prompt) for prompt in PROMPTS]
        found = find(
            small(form, seed),
            [request(prompt, n=8) for prompt in PROMPTS],
            width=VOCAB**LENGTH,
            length_penalty=penalty,
            early_stopping="never",
        )
        for endings, known in zip(found, texts, strict=True):
            best = sorted(known, key=lambda text: -known[text] / len(text) ** penalty)[:8]
            assert [ending.tokens for ending in endings] == best
            ended += sum(len(text) < LENGTH for text in best)
            for ending in endings:
                assert ending.logprob == pytest.approx(known[ending.tokens], abs=1e-9)
                assert ending.score == pytest.approx(ending.logprob / len(ending.tokens) ** penalty, abs=1e-12)
    assert ended > 0


def written_out(
    model: Tiny, prompt: tuple[int, ...], plan: beam_search.BeamSettings
) -> list[tuple[tuple[int, ...], float]]:
    """The definition with plain lists: rank the continuations, put endings aside, go on with the rest."""
    running: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    done: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, LENGTH + 1):
        ranked = []
        for text, logprob in running:
            filled = torch.tensor([[*text, 0]])
            row = answers(model, prompt, filled)[0, -1].log_softmax(-1).tolist()
            ranked += [((*text, token), logprob + row[token]) for token in range(VOCAB)]
        ranked = sorted(ranked, key=lambda one: -one[1])[: 2 * plan.width]
        ends = [text[-1] == EOS or length == LENGTH for text, _ in ranked]
        done += [
            (logprob / length**plan.length_penalty, text)
            for rank, ((text, logprob), end) in enumerate(zip(ranked, ends, strict=True))
            if end and rank < plan.width
        ]
        done = sorted(done, reverse=True)[: plan.width]
        running = [one for one, end in zip(ranked, ends, strict=True) if not end][: plan.width]
        full = len(done) == plan.width
        if not running or (full and plan.early_stopping is True):
            break
        far = LENGTH if plan.early_stopping == "never" and plan.length_penalty > 0 else length
        if full and running[0][1] / far**plan.length_penalty <= done[-1][0]:
            break
    return [(text, score) for score, text in done]


@pytest.mark.parametrize("form", ["decoder", "pair"])
@pytest.mark.parametrize("stopping", STOPPING)
def test_narrow_it_is_its_definition(form: str, stopping: Any) -> None:
    for seed, width, penalty in product(range(2), (1, 3), (0.0, 2.0)):
        model = small(form, seed)
        plan = beam_search.BeamSettings(width, penalty, stopping)
        found = find(
            model,
            [request(prompt, n=width) for prompt in PROMPTS],
            width=width,
            length_penalty=penalty,
            early_stopping=stopping,
        )
        for prompt, endings in zip(PROMPTS, found, strict=True):
            expected = written_out(model, prompt, plan)
            assert [ending.tokens for ending in endings] == [text for text, _ in expected]
            assert [ending.score for ending in endings] == pytest.approx([score for _, score in expected])


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "marian"])
def test_one_beam_is_greedy(name: str) -> None:
    model = tiny(name)
    for asked in ({}, {"banned": (5,), "no_repeat_ngram": 2}, {"forced": {1: 4, -1: 3}}):
        settings = Settings(max_tokens=12, eos=(3,), **asked)
        requests = [Request(prompt=(1, 2, 3, id), settings=settings) for id in range(6)]
        for one, endings in zip(requests, find(model, requests, width=1), strict=True):
            greedy = alone(model, one)
            assert list(endings[0].tokens) == tokens(greedy)
            if not asked:
                assert endings[0].logprob == pytest.approx(sum(event.logprob for event in greedy), abs=1e-9)


def test_the_score_is_the_sum_of_log_probabilities() -> None:
    model = tiny("gpt2")
    asked = Settings(max_tokens=10, eos=(3,), n=4)
    for ending in find(model, [Request(prompt=(1, 2), settings=asked)], width=4, length_penalty=0.0)[0]:
        with torch.no_grad():
            logits = model.network(Text.of(torch.tensor([[1, 2, *ending.tokens[:-1]]])))[0, 1:]
        each = logits.log_softmax(-1).gather(-1, torch.tensor(ending.tokens)[:, None])
        assert ending.score == pytest.approx(float(each.sum()), abs=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_prompts_together_are_prompts_alone(name: str) -> None:
    model = tiny(name)
    asked = Settings(max_tokens=9, eos=(3,), n=3)
    requests = [Request(prompt=tuple(range(1, 3 + 4 * id)), settings=asked) for id in range(4)]
    together = find(model, requests, width=3)
    for one, endings in zip(requests, together, strict=True):
        single = find(model, [one], width=3)[0]
        assert [ending.tokens for ending in endings] == [ending.tokens for ending in single]
        assert [ending.score for ending in endings] == pytest.approx([ending.score for ending in single])


@pytest.mark.parametrize(
    ("options", "asked", "said"),
    [
        ({"width": 0}, {}, "beams=0"),
        ({"width": 2, "early_stopping": "always"}, {}, "early_stopping='always'"),
        ({"width": 2, "length_penalty": float("nan")}, {}, "length_penalty=nan"),
        ({"width": 2}, {"n": 3}, "n=3 is more than beams=2"),
        ({"width": 2}, {"temperature": 1.0}, "temperature"),
    ],
)
def test_bad_input_is_one_clear_line(options: dict[str, Any], asked: dict[str, Any], said: str) -> None:
    with pytest.raises(TriformError, match=said):
        find(tiny("gpt2"), [Request(prompt=(1,), settings=Settings(**asked))], **options)


# --- planted mistakes: the oracle sees them -------------------------------------------------------------------------


def broken(form: str = "decoder") -> bool:
    """Whether the comparison with brute force fails."""
    try:
        for penalty in PENALTIES:
            test_wide_enough_it_finds_what_trying_everything_finds(form, penalty)
        for stopping in STOPPING:
            test_narrow_it_is_its_definition(form, stopping)
    except AssertionError:
        return True
    return False


def test_eos_dropped_from_a_finished_text_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        beam_search, "Hypothesis", lambda tokens, logprob, score: Hypothesis(tokens[:-1], logprob, score)
    )
    assert broken()


def test_a_penalty_on_unfinished_beams_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = beam_search.extend_beam
    monkeypatch.setattr(
        beam_search, "extend_beam", lambda logprob, one, token: grown(logprob / (len(one.tokens) + 1), one, token)
    )
    assert broken()


def test_a_length_without_its_eos_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    score = beam_search.PromptBeams.score
    monkeypatch.setattr(
        beam_search.PromptBeams, "score", lambda self, logprob, length: score(self, logprob, max(1, length - 1))
    )
    assert broken()


def test_rows_of_the_cache_left_where_they_were_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triform.core.cache.Cache.reorder", lambda self, sources: None)
    assert broken()


def test_beams_stay_in_their_rows() -> None:
    """Only the second beam that comes from a row is moved: copying a past costs more than anything else here."""
    beams = [beam_search.Beam(row, (at,), 0.0, beam_search.PlainHistory()) for at, row in enumerate((6, 6, 4, 7))]
    assert [one.tokens for one in beam_search.assign_rows(beams, range(4, 8))] == [(2,), (1,), (0,), (3,)]
    assert [one.tokens for one in beam_search.assign_rows(beams, range(4))] == [(0,), (1,), (2,), (3,)]


def test_prompts_keep_their_rows() -> None:
    """The first of three is over: the last takes its rows, the second is not touched."""
    plan, first = beam_search.BeamSettings(2), beam_search.Beam(0, (), 0.0, beam_search.PlainHistory())
    searches = [beam_search.PromptBeams(plan, Settings(), first=first, limit=9) for _ in range(2)]
    for one, rows in zip(searches, (range(2, 4), range(4, 6)), strict=True):
        one.rows, one.beams = rows, [first._replace(row=row) for row in rows]
    assert beam_search.allocate_rows(searches) == [range(2, 4), range(2)]


@pytest.mark.parametrize(
    ("beams", "rows"),
    [((2, 1), (range(2), range(2, 4))), ((1, 2), (range(1, 3), range(3, 5))), ((2, 2), (range(2), range(4, 6)))],
)
def test_rows_have_no_gap_where_a_prompt_has_fewer_beams(beams: tuple[int, ...], rows: tuple[range, ...]) -> None:
    plan, first = beam_search.BeamSettings(2), beam_search.Beam(0, (), 0.0, beam_search.PlainHistory())
    searches = [beam_search.PromptBeams(plan, Settings(), first=first, limit=9) for _ in beams]
    for one, own, count in zip(searches, rows, beams, strict=True):
        one.rows, one.beams = own, [first] * count
    blocks = beam_search.allocate_rows(searches)
    assert [len(rows) for rows in blocks] == list(beams)
    assert sorted(row for rows in blocks for row in rows) == list(range(sum(beams)))


def test_a_source_is_held_once_and_moved_once() -> None:
    """Of three prompts the first is over: the last takes its place, and from then on no source moves."""
    model = tiny("marian")
    passes = ModelRunner(model.network, model.spec, rows=6, beams=2)
    assert passes.sources is not None
    assert passes.sources.rows == 3
    plan, first = beam_search.BeamSettings(2), beam_search.Beam(0, (), 0.0, beam_search.PlainHistory())
    searches = [beam_search.PromptBeams(plan, Settings(), first=first._replace(row=at), limit=9) for at in (1, 2)]
    for one, rows in zip(searches, (range(2, 4), range(4, 6)), strict=True):
        one.rows, one.beams = rows, [first._replace(row=row) for row in rows]
    placed = beam_search.assign_cache_rows(passes, searches)
    assert [one.rows for one in placed] == [range(2), range(2, 4)]
    assert placed == searches[::-1]
    assert [one.source for one in placed] == [0, 1]


def test_rows_that_see_as_much_are_answered_in_one_call() -> None:
    ids = torch.zeros(4, 1, dtype=torch.long)
    beams = NextOfBeams(ids, ids, real=4, biases=DistanceBiases(8), beams=(2, 2))
    assert beams.past_only((4, 4, 4, 4), None).spans == (KeySpan(0, 4, 1, 0, 5),)
    assert beams.past_only((4, 4, 6, 6), 3).spans == (KeySpan(0, 2, 1, 2, 5), KeySpan(2, 2, 1, 4, 7))
    assert beams.see_sources((6, 6)).spans == (KeySpan(0, 2, 2, 0, 6),)
    assert beams.see_sources((6, 5)).spans == (KeySpan(0, 1, 2, 0, 6), KeySpan(1, 1, 2, 0, 5))


def test_texts_that_cannot_be_are_no_endings() -> None:
    """Where every token is forced there is one text, however many beams."""
    asked = Settings(max_tokens=2, eos=(), forced={0: 4, 1: 5}, n=2)
    (endings,) = find(tiny("gpt2"), [Request(prompt=(1, 2), settings=asked)], width=3)
    assert [ending.tokens for ending in endings] == [(4, 5)]


@pytest.mark.parametrize(("number", "why"), [(0.0, "all the same number"), (float("nan"), "not finite")])
def test_scores_that_say_nothing_end_the_search(number: float, why: str) -> None:
    model = small("decoder", 5)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.fill_(number)
    with pytest.raises(InvalidScores, match=why):
        find(model, [request((0, 1))], width=2)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bart"])
@pytest.mark.parametrize("width", [2, 3])
def test_a_search_that_fills_the_context_does_not_touch_the_others(name: str, width: int) -> None:
    """Its rows are free when it is over: they take no more room, and where they fill up a pass they begin anew."""
    model = tiny(name)
    context = model.spec.context
    near = (context - 2,) if model.spec.encoder is None else (4,)
    lengths, asked = (5, *near), Settings(max_tokens=context, eos=())
    if model.spec.encoder is None:
        requests = [Request(prompt=tuple(1 + at % 20 for at in range(length)), settings=asked) for length in lengths]
    else:
        few = Settings(max_tokens=context - 3, eos=())
        requests = [Request(prompt=(1, 2, 3), settings=few), Request(prompt=(4, 5), settings=asked)]
    found = find(model, requests, width=width)
    for one, endings in zip(requests, found, strict=True):
        assert [ending.tokens for ending in endings] == [ending.tokens for ending in find(model, [one], width=width)[0]]


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_prompts_read_in_groups_and_in_pieces_are_prompts_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short ones together, one that is too long for that, one more."""
    model = tiny(name)
    requests = [
        Request(prompt=tuple(range(1, 1 + length)), settings=Settings(max_tokens=4, eos=()))
        for length in (3, 4, 20, 5)
    ]  # fmt: skip
    alone = [find(model, [one], width=2)[0] for one in requests]
    monkeypatch.setattr(beam_search, "MAX_PREFILL_TOKENS", 12)
    monkeypatch.setattr(beam_search, "CHUNK_TOKENS", 6)
    read: list[int] = []
    fresh = ModelRunner.prefill_batch
    monkeypatch.setattr(
        ModelRunner, "prefill_batch", lambda self, first, *both: read.append(first) or fresh(self, first, *both)
    )
    for endings, single in zip(find(model, requests, width=2), alone, strict=True):
        assert [ending.tokens for ending in endings] == [ending.tokens for ending in single]
        assert [ending.score for ending in endings] == pytest.approx([ending.score for ending in single])
    assert read == [0, 3]


def test_texts_longer_than_the_first_room() -> None:
    """Distances of T5 are known for as many positions as there is room: room grows with the beams."""
    model = tiny("t5")
    asked = Settings(max_tokens=80, eos=())
    assert model.spec.context > 80 > 64
    one = Request(prompt=(1, 2, 3), settings=asked)
    assert list(find(model, [one], width=1)[0][0].tokens) == tokens(alone(model, one))
