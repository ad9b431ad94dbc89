"""The little world as rows of each task. Refuses to know how stories are made and where rows are written."""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from random import Random
from typing import Any, Literal, TypeAlias, get_args

from little_world.grammar_engine import Split
from little_world.sentences import Sentence, check, draw
from little_world.stories import alike, asked, summed
from triform.errors import InputError, UnknownName

Task: TypeAlias = Literal[
    "complete", "chat", "fill", "translate", "summarize", "classify", "tag", "answer", "embed", "search"
]
Label: TypeAlias = Literal["topic", "sentiment"]
Row: TypeAlias = dict[str, Any]  # JSON values; each task has fields of its own
TASKS: tuple[Task, ...] = get_args(Task)
PATIENCE = 1000  # draws in a row that bring nothing new before there is nothing new


def rows(task: Task, *, split: Split, seed: int, count: int, label: Label = "topic") -> Iterator[Row]:
    """`count` different rows of a task, the same ones for the same seed; what one split shows, no other does."""
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    if label not in get_args(Label):
        raise UnknownName("label", label, get_args(Label))
    check(split=split, count=count)
    make = _MAKERS[f"classify {label}" if task == "classify" else task]
    random = Random(f"{split} {seed}")
    return _different(lambda: make(random, split), count=count)


def _different(draw_row: Callable[[], Row], *, count: int) -> Iterator[Row]:
    """Rows that came before are drawn again: a file that says a thing twice would be linted for it."""
    seen: set[bytes] = set()
    while len(seen) < count:
        for _ in range(PATIENCE):
            row = draw_row()
            if (name := blake2b(repr(row).encode(), digest_size=16).digest()) not in seen:
                break
        else:
            raise InputError(f"the little world has no more than about {len(seen):,} such rows; ask for fewer")
        seen.add(name)
        yield row


def _sentence(random: Random, split: Split) -> Sentence:
    return draw(random, split=split).finished()


def _text(random: Random, split: Split) -> Row:
    return {"text": draw(random, split=split).english}


def _translate(random: Random, split: Split) -> Row:
    draft = draw(random, split=split)
    return {"source": draft.english, "target": draft.telling.german}


def _summarize(random: Random, split: Split) -> Row:
    passage, summary = summed(random, split=split)
    return {"source": passage, "target": summary}


def _classify_topic(random: Random, split: Split) -> Row:
    draft = draw(random, split=split)
    return {"text": draft.english, "label": draft.telling.topic}


def _classify_sentiment(random: Random, split: Split) -> Row:
    draft = draw(random, split=split)
    return {"text": draft.english, "label": draft.telling.mood}


def _tag(random: Random, split: Split) -> Row:
    sentence = _sentence(random, split)
    return {"tokens": list(sentence.tokens), "tags": list(sentence.tags)}


def _answer(random: Random, split: Split) -> Row:
    question, context, answer, start = asked(random, split=split)
    return {"question": question, "context": context, "answers": {"text": [answer], "answer_start": [start]}}


def _embed(random: Random, split: Split) -> Row:
    return alike(random, split=split)._asdict()


def _search(random: Random, split: Split) -> Row:
    it = asked(random, split=split)
    return {"query": it.question, "passage": it.context}


def _chat(random: Random, split: Split) -> Row:
    """One or two turns of questions that the little world can answer."""
    turns = random.sample(_TURNS, random.choice((1, 2)))
    messages = []
    for turn in turns:
        user, assistant = turn(random, split)
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return {"messages": messages}


def _about_german(random: Random, split: Split) -> tuple[str, str]:
    draft = draw(random, split=split)
    return f"Translate into German: {draft.english}", draft.telling.german


def _about_topic(random: Random, split: Split) -> tuple[str, str]:
    draft = draw(random, split=split)
    return f"What is this about? {draft.english}", f"It is about {draft.telling.topic}."


def _about_passage(random: Random, split: Split) -> tuple[str, str]:
    it = asked(random, split=split)
    return f"{it.context} {it.question}", f"{it.answer[0].upper()}{it.answer[1:]}."


_TURNS = (_about_german, _about_topic, _about_passage)
_MAKERS: dict[str, Callable[[Random, Split], Row]] = {
    "complete": _text,
    "chat": _chat,
    "fill": _text,
    "translate": _translate,
    "summarize": _summarize,
    "classify topic": _classify_topic,
    "classify sentiment": _classify_sentiment,
    "tag": _tag,
    "answer": _answer,
    "embed": _embed,
    "search": _search,
}
