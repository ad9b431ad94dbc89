"""Tag: the named entities of a text, each with its kind and its characters.

Tokens have labels O, B-x and I-x; a word has the label of its first token. A long text is read in windows that overlap:
each token is judged where it stands further from the edge. Names of labels that are no tags are not for this task.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.detect_format import detect_format_key
from triform.data.formats import get_ending, list_formats
from triform.data.rows import DataRow, TaggedRow, TextRow
from triform.data.values import is_bio
from triform.errors import InputError
from triform.metrics import EntitySpan, find_entities, score_entities
from triform.model import Model
from triform.spec import Form, ModelSpec, replace
from triform.spec import Tag as Head
from triform.tasks.encoder_batches import (
    check_texts,
    compute_overlap,
    find_own_tokens,
    get_max_tokens,
    run_batches,
    split_encoding,
)
from triform.tasks.task import Reply, Scores, Task
from triform.text.tokenizer import Encoding
from triform.train.examples import ExampleList, Examples
from triform.train.examples import TagExample as Example
from triform.train.label_objectives import TokenLabels
from triform.train.objectives import IGNORED, Objective
from triform.train.run_config import Config

Question: TypeAlias = str | Sequence[str]  # a text, or its words


class Entity(msgspec.Struct, frozen=True):
    """text[start:end] is an entity of this kind; the probability is the mean over its words."""

    kind: str
    text: str
    start: int
    end: int
    probability: float


class TaggedText(Reply, frozen=True, kw_only=True):
    """The entities of a text."""

    entities: tuple[Entity, ...]

    def __str__(self) -> str:
        return "  ".join(f"{each.kind}[{each.start}:{each.end}] {each.text}" for each in self.entities) or "(none)"


class Characters(NamedTuple):
    """Characters start to end of the text, without the end."""

    start: int
    end: int


class TagTask(Task[TaggedRow, Question, TaggedText]):
    """Find the named entities of a text: their kind, their characters, and the text there.

    \b
    Examples:
      triform tag models/wnut17 "Empire State Building = ESB."
      triform tag models/wnut17 --file tweets.txt --json --out entities.jsonl
      triform tag models/wnut17 --file report.txt --whole
      triform tag models/wnut17 --file test.conll --json
    """

    name = "tag"
    forms = ("encoder",)
    kind = TaggedRow
    needs = "a token-classification head"
    answer_type = TaggedText
    input_rows = (TextRow, TaggedRow)
    example = {"text": "A sea lion from Lima sat on a mat."}  # noqa: RUF012
    baselines_learn = True

    def question_of_row(self, row: DataRow) -> Question:
        return row.texts[0]

    def row_kind(self, path: Path, layout: Layout) -> type[DataRow]:
        return TaggedRow if holds_tokens(path, layout) else TextRow

    # --- head -------------------------------------------------------------------------------------------------------

    def labels(self, rows: Iterable[TaggedRow]) -> tuple[str, ...]:
        """O first, then both tags of each kind: a kind that never goes on in training may do so later."""
        kinds = sorted({tag[2:] for row in rows for tag in row.tags if tag != "O"})
        return ("O", *(f"{mark}-{kind}" for kind in kinds for mark in "BI"))

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return replace(base, head=Head(labels=len(labels)))

    # --- training ----------------------------------------------------------------------------------------------------

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        shared = Config(batch_tokens=1024, schedule="linear", warmup=0.1, weight_decay=0.01, beta2=0.999, dropout=0.1)
        if fresh:
            return shared.replace(epochs=8, batch_tokens=2048, learning_rate=1e-3, eval_every=100, patience=8)
        return shared.replace(epochs=4, learning_rate=5e-5, eval_every=100)

    def examples(self, rows: Sequence[TaggedRow], *, model: Model) -> Examples[Example]:
        """Every token of a word is labelled: the first with the word's tag, the others as going on."""
        found = list(make_token_examples(rows, model=model))
        if not found:
            known = ", ".join(model.labels)
            raise InputError(f"none of the {len(rows)} rows has only tags that the model knows: {known}")
        return ExampleList(found, lengths=[len(each.ids) for each in found])

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        return TokenLabels(smoothing=config.label_smoothing)

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: TaggedRow) -> Question:
        return row.tokens

    def run(self, questions: Sequence[Question], *, model: Model, options: Any = None) -> Iterator[TaggedText]:
        self.check(model)
        names = {at: label for at, label in enumerate(model.labels) if is_bio(label)}
        for some in split_chunks(questions):
            texts = [join_words(question) for question in some]
            check_texts(texts)
            whole = model.require_tokenizer().encode_many(texts)
            for question, text, encoding, chances in zip(
                some, texts, whole, _chances(whole, names, model), strict=True
            ):
                words = None if isinstance(question, str) else locate_words(question)
                units = _own_words(encoding) if words is None else _first_tokens(encoding, words)
                yield TaggedText(
                    entities=tuple(_entities(text, units, chances, list(names.values()))),
                    unknown=model.require_tokenizer().count_unknown(encoding.ids),
                )

    def score(self, answers: Sequence[TaggedText], rows: Sequence[TaggedRow]) -> Scores:
        right = [[_spot(stretch, locate_words(row.tokens)) for stretch in find_entities(row.tags)] for row in rows]
        answered = [[(each.kind, each.start, each.end) for each in answer.entities] for answer in answers]
        found = score_entities(right, answered)
        return Scores(main="f1", values=found._asdict(), rows=len(rows), signature="entities, micro, as seqeval")

    def judge_answers(self, answers: Sequence[TaggedText], rows: Sequence[TaggedRow], *, model: Model) -> Scores:
        return self.score(answers, rows).add_unseen(rows, known=model.labels)

    def baselines(self, rows: Sequence[TaggedRow], *, train: Sequence[TaggedRow]) -> Mapping[str, Scores]:
        seen: dict[str, Counter[str]] = {}
        for row in train:
            for word, tag in zip(row.tokens, row.tags, strict=True):
                seen.setdefault(word, Counter())[tag] += 1
        usual = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
        answers = [_from_tags(row.tokens, [usual.get(word, "O") for word in row.tokens]) for row in rows]
        return {"most frequent tag": self.score(answers, rows)}


def holds_tokens(path: Path, layout: Layout) -> bool:
    """One token per line, not one text: by the columns or the format that was named, by the ending, else by content."""
    if "text" in layout.columns or {"tokens", "tags"} & layout.columns.keys():
        return "text" not in layout.columns
    if layout.format is not None:
        return layout.format == "conll"
    texts, tokens = list_formats(TextRow), list_formats(TaggedRow)
    if get_ending(path) in texts or get_ending(path) in tokens:
        return get_ending(path) in tokens.keys() - texts.keys()
    return path.is_file() and detect_format_key(path) == "conll"


# --- words, tokens and characters -----------------------------------------------------------------------------------


def join_words(question: Question) -> str:
    return question if isinstance(question, str) else " ".join(question)


def locate_words(words: Sequence[str]) -> list[Characters]:
    """Where each word stands when they are joined by spaces."""
    found, at = [], 0
    for word in words:
        found.append(Characters(at, at + len(word)))
        at += len(word) + 1
    return found


class TaggedWord(NamedTuple):
    """What has one tag: a word, its characters, and its first token among the text's own; below 0: it has no token."""

    place: Characters
    token: int


def _own_words(encoding: Encoding) -> list[TaggedWord]:
    """The words of a plain text are those its tokenizer sees."""
    own = find_own_tokens(encoding)
    numbered = [(encoding.words[at], encoding.offsets[at], number) for number, at in enumerate(own)]
    units = []
    for _, group in groupby(numbered, key=lambda each: each[0]):
        tokens = list(group)
        units.append(TaggedWord(Characters(tokens[0][1][0], tokens[-1][1][1]), tokens[0][2]))
    return units


def _first_tokens(encoding: Encoding, words: Sequence[Characters]) -> list[TaggedWord]:
    first: dict[int, int] = {}
    for number, word in enumerate(_word_of_tokens(encoding, words)):
        if word is not None:
            first.setdefault(word, number)
    return [TaggedWord(place, first.get(at, -1)) for at, place in enumerate(words)]


def _word_of_tokens(encoding: Encoding, words: Sequence[Characters]) -> list[int | None]:
    """For each of the text's own tokens the first word it has a character of."""
    found: list[int | None] = []
    word = 0
    for start, end in (encoding.offsets[at] for at in find_own_tokens(encoding)):
        while word < len(words) and words[word].end <= start:
            word += 1
        found.append(word if word < len(words) and words[word].start < end else None)
    return found


# --- from rows to examples ------------------------------------------------------------------------------------------


def make_token_examples(rows: Sequence[TaggedRow], *, model: Model) -> Iterator[Example]:
    """Windows of each row with a label for each of its own tokens; rows with a tag the model has not are left out."""
    number = {label: at for at, label in enumerate(model.labels)}
    for some in split_chunks([row for row in rows if all(tag in number for tag in row.tags)]):
        encodings = model.require_tokenizer().encode_many([join_words(row.tokens) for row in some])
        for row, encoding in zip(some, encodings, strict=True):
            whole = np.full(len(encoding.ids), IGNORED, np.int32)
            whole[find_own_tokens(encoding)] = list(_token_labels(row, encoding, number))
            yield from _cut(encoding, whole, length=get_max_tokens(model))


def _token_labels(row: TaggedRow, encoding: Encoding, number: Mapping[str, int]) -> Iterator[int]:
    before: int | None = None
    for word in _word_of_tokens(encoding, locate_words(row.tokens)):
        if word is None:
            yield IGNORED
        else:
            tag = row.tags[word]
            yield number[f"I-{tag[2:]}" if tag[0] == "B" and word == before and f"I-{tag[2:]}" in number else tag]
        before = word


def _cut(encoding: Encoding, labels: np.ndarray[Any, Any], *, length: int) -> Iterator[Example]:
    own, done = find_own_tokens(encoding), 0
    overlap = compute_overlap(length)
    for window in split_encoding(encoding, length=length):
        inside = find_own_tokens(window)
        cut = np.full(len(window.ids), IGNORED, np.int32)
        cut[inside] = labels[own[done : done + len(inside)]]
        done += len(inside) - overlap
        yield Example(np.asarray(window.ids, np.int32), cut)


# --- from scores to entities ----------------------------------------------------------------------------------------


class TagProbabilities(NamedTuple):
    """For each of a text's own tokens its likeliest tag and how likely that is."""

    tags: list[int]
    probabilities: list[float]


def _chances(whole: Sequence[Encoding], names: Mapping[int, str], model: Model) -> Iterator[TagProbabilities]:
    length = get_max_tokens(model)
    cut = [split_encoding(encoding, length=length) for encoding in whole]
    flat = [window for each in cut for window in each]
    values = iter(
        run_batches([window.ids for window in flat], model=model, kinds=[window.segment_ids for window in flat])
    )
    for each in cut:
        scores = stitch_windows(each, [next(values)[:, list(names)] for _ in each], overlap=compute_overlap(length))
        best = scores.double().softmax(-1).max(-1)
        yield TagProbabilities(best.indices.tolist(), best.values.tolist())


def stitch_windows(cut: Sequence[Encoding], values: Sequence[Tensor], *, overlap: int) -> Tensor:
    """The values of the text's own tokens, each once: two windows share what both have seen, half and half."""
    parts = []
    for number, (window, value) in enumerate(zip(cut, values, strict=True)):
        own = value[find_own_tokens(window)]
        first = overlap // 2 if number else 0
        last = len(own) - (overlap - overlap // 2 if number + 1 < len(cut) else 0)
        parts.append(own[first:last])
    return torch.cat(parts)


def _entities(
    text: str, units: Sequence[TaggedWord], chances: TagProbabilities, names: Sequence[str]
) -> Iterator[Entity]:
    tags = [names[chances.tags[unit.token]] if unit.token >= 0 else "O" for unit in units]
    for kind, first, last in find_entities(tags):
        start, end = _trimmed(text, units[first].place.start, units[last].place.end)
        inside = [chances.probabilities[unit.token] for unit in units[first : last + 1]]
        yield Entity(kind, text[start:end], start, end, sum(inside) / len(inside))


def _trimmed(text: str, start: int, end: int) -> Characters:
    """Some tokenizers count the space before a word as part of it."""
    inside = text[start:end]
    return Characters(start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip()))


def _spot(stretch: EntitySpan, words: Sequence[Characters]) -> tuple[str, int, int]:
    return stretch.kind, words[stretch.first].start, words[stretch.last].end


def _from_tags(words: Sequence[str], tags: Sequence[str]) -> TaggedText:
    text, places = join_words(words), locate_words(words)
    spots = [_spot(stretch, places) for stretch in find_entities(tags)]
    return TaggedText(entities=tuple(Entity(kind, text[start:end], start, end, 1.0) for kind, start, end in spots))
