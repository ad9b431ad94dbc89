"""Each task that writes: learn, judge, answer, save, load, answer the same; on each of its forms."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tasks as tiny
import torch

from triform.data.rows import ChatRow, DocumentRow, Message, PairRow, TextRow
from triform.errors import InputError, TriformError
from triform.families import bart, gpt2
from triform.model import Model
from triform.tasks import get_task
from triform.tasks.chat import drop_special, get_learned_ids, mark_answers
from triform.tasks.complete import encode_with_end, split_windows
from triform.tasks.task import CannotDo, Task
from triform.tasks.task_of_model import own_task
from triform.tasks.text_to_text import (
    MAX_CACHE_BYTES,
    MAX_PARALLEL_ANSWERS,
    SEPARATOR,
    encode_prompt,
    max_parallel_answers,
)
from triform.tasks.translate import Translation, add_alignment
from triform.text import chat_template
from triform.train.examples import ExamplePlace
from triform.weights import model_folder

PAIRS = [PairRow(f"{name} loves {place}.", f"{name} liebt {place}.") for name in tiny.NAMES for place in tiny.PLACES]
SHORT = [DocumentRow(row.source) for row in PAIRS]
LONG = [
    DocumentRow("".join(f"{row.source}\n" for row in PAIRS), goes_on=True),
    DocumentRow("".join(r.target for r in PAIRS)),
]
CHATS = [
    ChatRow((Message("user", f"Where is {name}?"), Message("assistant", f"{name} is in {place}.")))
    for name in tiny.NAMES
    for place in tiny.PLACES
]
TEXTS = [TextRow(row.source) for row in PAIRS]

WALKS: dict[str, tuple[str, list[Any], str]] = {
    "translate, encoder-decoder": ("translate", PAIRS, "encoder-decoder"),
    "translate, decoder": ("translate", PAIRS, "decoder"),
    "summarize, encoder-decoder": ("summarize", PAIRS, "encoder-decoder"),
    "summarize, decoder": ("summarize", PAIRS, "decoder"),
    "complete, texts": ("complete", SHORT, "decoder"),
    "complete, a stream": ("complete", LONG, "decoder"),
    "chat": ("chat", CHATS, "decoder"),
    "fill": ("fill", TEXTS, "encoder"),
}


def questions(task: Task[Any, Any, Any], rows: list[Any]) -> list[Any]:
    if task.name == "fill":
        return ["[MASK] loves Rome.", "Jack [MASK] [MASK]."]
    return [task.question(row) for row in rows[:3]] if task.name != "complete" else ["Jack loves", "Rose"]


@pytest.mark.parametrize("walk", WALKS)
def test_learned_judged_run_saved_and_run_again(walk: str, tmp_path: Path) -> None:
    name, rows, form = WALKS[walk]
    task = get_task(name)
    model = tiny.begun(task, rows, form=form)
    before = task.evaluate(
        rows, model=model, options=task.options(**({"max_tokens": 8} if name in ("translate", "summarize") else {}))
    )
    model = tiny.learned(task, rows, model=model)
    after = task.evaluate(
        rows, model=model, options=task.options(**({"max_tokens": 8} if name in ("translate", "summarize") else {}))
    )
    assert after.rows == len(rows)
    assert all(math.isfinite(value) for value in after.values.values())
    if name in ("complete", "chat"):
        assert after.values["perplexity"] < before.values["perplexity"]
    if name == "fill":
        assert after.values["pseudo-perplexity"] < before.values["pseudo-perplexity"]
    asked, settings = questions(task, rows), {} if name == "fill" else {"max_tokens": 8}
    answers = list(task.run(asked, model=model, options=task.options(**settings)))
    model_folder.write(tmp_path / "model", model=model)
    again = model_folder.read(tmp_path / "model")
    assert list(task.run(asked, model=again, options=task.options(**settings))) == answers
    assert own_task(again).name == name
    assert [
        answer for one in asked for answer in task.run([one], model=again, options=task.options(**settings))
    ] == answers


def translator(*, context: int = 64, form: str = "encoder-decoder") -> Model:
    return tiny.begun(get_task("translate"), PAIRS, form=form, context=context)


def test_a_decoder_learns_the_answer_alone_and_reads_what_it_was_taught_with() -> None:
    task, model = get_task("translate"), translator(form="decoder")
    example = task.examples(PAIRS[:1], model=model).at(ExamplePlace(0, 0, 0))
    shown = encode_prompt(PAIRS[0].source, model, reserved_tokens=8).ids
    assert tuple(example.ids[: len(shown)]) == shown
    assert example.learn.tolist() == [False] * len(shown) + [True] * (len(example.ids) - len(shown))
    assert model.tokenizer is not None
    assert model.tokenizer.decode(shown) == PAIRS[0].source + SEPARATOR
    assert model.tokenizer.decode(example.ids[len(shown) :].tolist()) == f" {PAIRS[0].target}"
    assert example.ids[-1] == model.tokenizer.eos


@pytest.mark.parametrize("form", ["encoder-decoder", "decoder"])
def test_a_long_text_is_cut_and_says_so(form: str) -> None:
    model = translator(context=24, form=form)
    short, long = get_task("translate").run(
        ["Jack.", "Jack loves Rome. " * 2000], model=model, options=get_task("translate").options(max_tokens=4)
    )
    assert short.cut == 0
    assert model.tokenizer is not None
    assert long.cut > 7_000
    kept = encode_prompt("Jack loves Rome. " * 2000, model, reserved_tokens=4)
    assert len(kept.ids) <= 24 - (4 if form == "decoder" else 0)
    assert kept.cut == long.cut


def test_empty_text_and_models_that_were_not_made_for_it() -> None:
    model = translator()
    with pytest.raises(InputError, match="the text is empty"):
        list(get_task("translate").run(["  "], model=model))
    decoder = translator(form="decoder")
    with pytest.raises(CannotDo, match=r"so it cannot summarize; it can: .*translate"):
        list(get_task("summarize").run(["a"], model=decoder))
    with pytest.raises(CannotDo, match="an alignment needs cross-attention"):
        list(get_task("translate").run(["a"], model=decoder, options=get_task("translate").options(alignment=True)))
    with pytest.raises(CannotDo, match=r"so it cannot fill; it can: .*translate"):
        list(get_task("fill").run(["a [MASK]"], model=decoder))


def test_the_alignment_is_what_cross_attention_gave() -> None:
    model = translator()
    (answer,) = get_task("translate").run(
        ["Jack loves Rome."], model=model, options=get_task("translate").options(alignment=True, max_tokens=6)
    )
    assert answer.alignment is not None
    assert answer.alignment.source[-1] == "<|endoftext|>"
    weights = np.array(answer.alignment.weights)
    assert weights.shape == (len(answer.alignment.target), len(answer.alignment.source))
    assert np.allclose(weights.sum(-1), 1, atol=2e-3)
    plain, *_ = get_task("translate").run(
        ["Jack loves Rome."], model=model, options=get_task("translate").options(max_tokens=6)
    )
    assert (plain.text, plain.alignment) == (answer.text, None)


def test_an_answer_as_long_as_the_context_is_aligned() -> None:
    model = translator()
    said = Translation(text="Jack loves Rome. " * 40, score=0.0)
    alignment = add_alignment("Jack loves Rome.", said, model=model).alignment
    assert alignment is not None
    assert len(alignment.target) == len(alignment.weights) == model.spec.context


def test_beams_and_greedy_through_the_facade() -> None:
    model = translator()
    one = model.translate("Jack loves Rome.", beams=3, max_tokens=6)
    assert model.translate(["Jack loves Rome."], beams=3, max_tokens=6) == [one]
    assert model.run("Jack loves Rome.", beams=3, max_tokens=6) == one
    assert one.score <= 0


# --- texts of a decoder ---------------------------------------------------------------------------------------------


def test_as_many_abreast_as_have_room() -> None:
    """Of a large BART six searches of four beams, of a small one as many as are useful; one at least."""
    large = bart(width=1024, layers=12, heads=16)
    assert (
        max_parallel_answers(large, prompt_tokens=1024, new_tokens=142, beams=4)
        == MAX_CACHE_BYTES // (2 * 12 * 1024 * 4 * (4 * 142 + 1024))
        == 6
    )
    assert (
        max_parallel_answers(bart(width=64, layers=1, heads=2), prompt_tokens=20, new_tokens=20, beams=4)
        == MAX_PARALLEL_ANSWERS
    )
    assert max_parallel_answers(gpt2(), prompt_tokens=600, new_tokens=400, beams=2) == MAX_CACHE_BYTES // (
        2 * 12 * 768 * 4 * 2 * 1000
    )
    assert max_parallel_answers(large, prompt_tokens=1024, new_tokens=1024, beams=100) == 1
    assert max_parallel_answers(gpt2(), prompt_tokens=20, new_tokens=10**9) == max_parallel_answers(
        gpt2(), prompt_tokens=20, new_tokens=1004
    ), "nobody writes so much"


def test_what_cannot_be_searched_is_one_clear_line() -> None:
    for form in ("encoder-decoder", "decoder"):
        model = translator(form=form)
        with pytest.raises(TriformError, match="beams=0 is out of range"):
            next(get_task("translate").run(["a cat"], model=model, options=get_task("translate").options(beams=0)))
        every = tuple(range(model.spec.vocab))
        with pytest.raises(TriformError, match="every token is forbidden"):
            next(
                get_task("translate").run(
                    ["a cat"], model=model, options=get_task("translate").options(beams=2, banned=every)
                )
            )
        asked = {"beams": None, "max_tokens": None}
        assert (
            next(get_task("translate").run(["a cat"], model=model, options=get_task("translate").options(**asked))).text
            is not None
        )


def test_perplexity_counts_every_token_once() -> None:
    """exp(−Σ log p / tokens) and bits per byte, from the logits of the whole text at once; no end is predicted."""
    task = get_task("complete")
    model = tiny.begun(task, SHORT, form="decoder")
    text = SHORT[0].text
    assert model.tokenizer is not None
    ids = [model.tokenizer.eos, *model.tokenizer.encode(text, special=False).ids]
    logprobs = model.logits([ids[:-1]])[0].double().log_softmax(-1)
    total = -sum(float(logprobs[at, id]) for at, id in enumerate(ids[1:]))
    found = task.evaluate(SHORT[:1], model=model).values
    assert found["tokens"] == len(ids) - 1
    assert found["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-5)
    assert found["bits per byte"] == pytest.approx(total / math.log(2) / len(text.encode()), rel=1e-5)


@pytest.mark.parametrize(("count", "length", "overlap"), [(5, 8, 4), (9, 8, 4), (10, 8, 4), (57, 8, 4), (30, 7, 0)])
def test_pieces_predict_each_token_once(count: int, length: int, overlap: int) -> None:
    text, seen = np.arange(count), [0]
    for number, piece in enumerate(split_windows(text, length, overlap=overlap)):
        assert len(piece) <= length + 1
        seen += piece[1 + (overlap if number else 0) :].tolist()
    assert seen == list(range(count))


def test_a_long_text_is_judged_whole() -> None:
    task = get_task("complete")
    model = tiny.begun(task, LONG, form="decoder", context=16)
    (text,) = encode_with_end(LONG, model=model)
    assert task.evaluate(LONG, model=model).values["tokens"] == len(text) - 1
    assert len(task.examples(LONG, model=model).lengths) == (len(text) - 1) // 16


def test_only_answers_are_learned() -> None:
    model = tiny.begun(get_task("chat"), CHATS, form="decoder")
    talk = (*CHATS[0].messages, Message("user", "And Rose?"), Message("assistant", "Rose too."))
    (tokens,) = mark_answers([talk], model=model)
    said = get_learned_ids(tokens)
    assert model.require_tokenizer().decode(said).replace("\n", "") == " Jack is in London. Rose too."
    assert said.count(model.require_tokenizer().eos) == 2


def test_conversations_without_an_answer_are_left_out() -> None:
    task, silent = get_task("chat"), ChatRow((Message("user", "Where is Jack?"),))
    model = tiny.begun(task, CHATS, form="decoder")
    assert len(task.examples([silent, *CHATS, silent], model=model).lengths) == len(CHATS)
    assert task.evaluate([silent, *CHATS], model=model) == task.evaluate(CHATS, model=model)
    with pytest.raises(InputError, match="none of the 1 conversations"):
        task.evaluate([silent], model=model)


def test_of_a_conversation_that_is_cut_only_what_is_read_counts() -> None:
    task, talk = get_task("chat"), CHATS[:1]
    model = tiny.begun(task, CHATS, form="decoder")
    (whole,) = mark_answers([talk[0].messages], model=model)
    short = tiny.begun(task, CHATS, form="decoder", context=len(whole.ids) - 3)
    scores = task.evaluate(talk, model=short).values
    kept = get_learned_ids(drop_special(mark_answers([talk[0].messages], model=short)[0], model=short))
    assert 0 < len(kept) < len(get_learned_ids(whole))
    bits = math.log2(scores["perplexity"]) * scores["tokens"]
    assert scores["bits per byte"] == pytest.approx(bits / len(short.require_tokenizer().decode(kept).encode()))


def test_a_template_is_run_in_one_process_for_all_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    real = chat_template.TemplateProcess
    monkeypatch.setattr(chat_template, "TemplateProcess", lambda: started.append(1) or real())
    model = tiny.begun(get_task("chat"), CHATS, form="decoder")
    get_task("chat").examples(CHATS * 40, model=model)
    assert len(started) == 1


def test_fill_asks_for_the_masked_word_alone() -> None:
    task = get_task("fill")
    model = tiny.learned(task, TEXTS, model=tiny.begun(task, TEXTS), steps=60)
    answer = model.fill("Jack [MASK] Rome.", k=3)
    assert [len(mask) for mask in answer.masks] == [3]
    ids = torch.tensor([model.tokenizer.encode("Jack [MASK] Rome.").ids])  # type: ignore[union-attr]
    at = ids[0].tolist().index(model.tokenizer.mask)  # type: ignore[union-attr]
    chances = model.logits(ids)[0, at].double().softmax(-1)
    assert answer.masks[0][0].probability == pytest.approx(float(chances.max()), rel=1e-4)
    with pytest.raises(InputError, match="no mask"):
        list(task.run(["Jack"], model=model))
    with pytest.raises(InputError, match="the model reads 64: shorten it"):
        list(task.run(["Jack [MASK] " * 64], model=model))
