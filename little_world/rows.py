"""The little world as rows for each task."""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from random import Random
from typing import Any, Literal, TypeAlias, get_args

from little_world.grammar_engine import Split
from little_world.sentences import Sentence, check_request, draw
from little_world.stories import draw_question, draw_similar_pair, draw_summary
from triform.errors import InputError, UnknownName

Task: TypeAlias = Literal[
    "complete", "chat", "fill", "translate", "summarize", "classify", "tag", "answer", "embed", "search"
]
Label: TypeAlias = Literal["topic", "sentiment"]
Row: TypeAlias = dict[str, Any]  # JSON values; each task has fields of its own
TASKS: tuple[Task, ...] = get_args(Task)
MAX_REPEATED_DRAWS = 1000  # consecutive draws without a new row, after which there are no more rows


def rows(task: Task, *, split: Split, seed: int, count: int, label: Label = "topic") -> Iterator[Row]:
    """`count` different rows for a task, the same for the same seed; no two splits share a combination of words."""
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    if label not in get_args(Label):
        raise UnknownName("label", label, get_args(Label))
    check_request(split=split, count=count)
    make = _MAKERS[f"classify {label}" if task == "classify" else task]
    random = Random(f"{split} {seed}")
    return _draw_different(lambda: make(random, split), count=count)


def _draw_different(draw_row: Callable[[], Row], *, count: int) -> Iterator[Row]:
    """No row twice: repeated rows would be reported by `triform lint`."""
    seen: set[bytes] = set()
    while len(seen) < count:
        for _ in range(MAX_REPEATED_DRAWS):
            row = draw_row()
            if (name := blake2b(repr(row).encode(), digest_size=16).digest()) not in seen:
                break
        else:
            raise InputError(f"the little world has no more than about {len(seen):,} such rows; ask for fewer")
        seen.add(name)
        yield row


def _draw_sentence(random: Random, split: Split) -> Sentence:
    return draw(random, split=split).to_sentence()


def _make_text(random: Random, split: Split) -> Row:
    return {"text": draw(random, split=split).english}


def _make_translation(random: Random, split: Split) -> Row:
    draft = draw(random, split=split)
    return {"source": draft.english, "target": draft.labels.german}


def _make_summary(random: Random, split: Split) -> Row:
    passage, summary = draw_summary(random, split=split)
    return {"source": passage, "target": summary}


def _label_topic(random: Random, split: Split) -> Row:
    draft = draw(random, split=split)
    return {"text": draft.english, "label": draft.labels.topic}


def _label_sentiment(random: Random, split: Split) -> Row:
    draft = draw(random, split=split)
    return {"text": draft.english, "label": draft.labels.mood}


def _make_tags(random: Random, split: Split) -> Row:
    sentence = _draw_sentence(random, split)
    return {"tokens": list(sentence.tokens), "tags": list(sentence.tags)}


def _make_answer(random: Random, split: Split) -> Row:
    question, context, answer, start = draw_question(random, split=split)
    return {"question": question, "context": context, "answers": {"text": [answer], "answer_start": [start]}}


def _make_pair(random: Random, split: Split) -> Row:
    return draw_similar_pair(random, split=split)._asdict()


def _make_query(random: Random, split: Split) -> Row:
    it = draw_question(random, split=split)
    return {"query": it.question, "passage": it.context}


def _make_chat(random: Random, split: Split) -> Row:
    """One or two turns of questions that the little world can answer."""
    turns = random.sample(_TURNS, random.choice((1, 2)))
    messages = []
    for turn in turns:
        user, assistant = turn(random, split)
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return {"messages": messages}


def _ask_german(random: Random, split: Split) -> tuple[str, str]:
    draft = draw(random, split=split)
    return f"Translate into German: {draft.english}", draft.labels.german


def _ask_topic(random: Random, split: Split) -> tuple[str, str]:
    draft = draw(random, split=split)
    return f"What is this about? {draft.english}", f"It is about {draft.labels.topic}."


def _ask_passage(random: Random, split: Split) -> tuple[str, str]:
    it = draw_question(random, split=split)
    return f"{it.context} {it.question}", f"{it.answer[0].upper()}{it.answer[1:]}."


_TURNS = (_ask_german, _ask_topic, _ask_passage)
_MAKERS: dict[str, Callable[[Random, Split], Row]] = {
    "complete": _make_text,
    "chat": _make_chat,
    "fill": _make_text,
    "translate": _make_translation,
    "summarize": _make_summary,
    "classify topic": _label_topic,
    "classify sentiment": _label_sentiment,
    "tag": _make_tags,
    "answer": _make_answer,
    "embed": _make_pair,
    "search": _make_query,
}
