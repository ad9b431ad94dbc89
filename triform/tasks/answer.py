"""Answer: questions about a text. An encoder finds the span that answers; models that generate text generate it.

Which questions have no answer is learned from data that has such questions; without them, an answer is always given.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from triform.data.columns import Layout
from triform.data.rows import AnsweredQuestionRow, DataRow, QuestionRow, TextRow
from triform.generate import api
from triform.hints import Hint
from triform.metrics import score_answer
from triform.model import Model
from triform.spec import Form, ModelSpec, Span, replace
from triform.tasks import answer_spans
from triform.tasks.answer_spans import ContextQuestion, FoundSpan
from triform.tasks.bag_of_words import split_words
from triform.tasks.context_windows import ContextWindow, split_context, split_row
from triform.tasks.options import Line, Lines, UnknownOption
from triform.tasks.task import CAT_AND_MOLE, Reply, Scores
from triform.tasks.text_to_text import Prompt, TextToText
from triform.train.examples import ExampleList, Examples
from triform.train.label_objectives import AnswerSpan
from triform.train.objectives import Objective
from triform.train.run_config import Config

NO_ANSWER = "(no answer)"  # what a model that writes learns to write
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
NGRAM = 4  # words of the baseline's answer


class ExtractedAnswer(Reply, frozen=True, kw_only=True):
    """The answer, "" if the context has none. Where it stands in the context: context[start:end] == text."""

    text: str
    score: float  # the probability of a span; the log-probability of a written answer
    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        return self.text or NO_ANSWER


class AnswerInput(msgspec.Struct, frozen=True, kw_only=True):
    """One question, or several, about a text."""

    question: Lines
    context: Line


class AnswerTask(TextToText[AnsweredQuestionRow, ContextQuestion, ExtractedAnswer]):
    """Answer questions about a text. Without --context, a file of questions must contain their contexts, as SQuAD's do.

    \b
    Examples:
      triform answer models/xquad "Who led in sacks?" --context panthers.txt
      triform answer models/xquad --file questions.txt --context panthers.txt
      triform answer models/xquad --file squad.json --json --out answers.jsonl
    """

    name = "answer"
    forms = ("encoder", "encoder-decoder", "decoder")
    kind = AnsweredQuestionRow
    needs = "a question-answering head"
    answer_type = ExtractedAnswer
    input = AnswerInput
    input_rows = (TextRow, QuestionRow)
    example = {"question": "Who sat on the mat?", "context": CAT_AND_MOLE}  # noqa: RUF012
    run_hint = f"this model answers questions about a text: {Hint.ANSWER}"
    cuts = False
    max_tokens = 64

    class Options(TextToText.Options, frozen=True, kw_only=True):
        """Of a model that generates its answers; over HTTP and on the command line they are its own defaults."""

        max_tokens: Annotated[int, Meta(ge=1, lt=2**31, extra={"only": "python"})] | None = None
        beams: Annotated[int, Meta(ge=1, lt=2**31, extra={"only": "python"})] | None = None

    def questions_in(self, body: Any) -> list[ContextQuestion]:
        asked = [body.question] if isinstance(body.question, str) else body.question
        return [ContextQuestion(question, body.context) for question in asked]

    def bodies_of(self, questions: Sequence[ContextQuestion]) -> Iterator[dict[str, Any]]:
        for context, some in groupby(questions, key=lambda asked: asked.context):
            yield {"context": context, "question": [asked.question for asked in some]}

    def question_about(self, text: str, others: Sequence[str]) -> ContextQuestion:
        return ContextQuestion(text, others[0])

    def question_of_row(self, row: QuestionRow) -> ContextQuestion:
        return ContextQuestion(row.question, row.context)

    def row_kind(self, path: Path, layout: Layout) -> type[DataRow]:
        return QuestionRow

    # --- head -------------------------------------------------------------------------------------------------------

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return replace(base, head=Span()) if base.form == "encoder" else super().spec(base, labels=labels)

    def memo(self, rows: Sequence[AnsweredQuestionRow]) -> dict[str, Any]:
        return {"no_answer": 0.0 if any(not row.answers for row in rows) else None}

    # --- training ----------------------------------------------------------------------------------------------------

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        if form != "encoder":
            return super().recipe(form, fresh=fresh).replace(label_smoothing=0.0)
        if fresh:
            # Finding a question's words in the context: with learned positions the loss stays at 1.2 for 600 steps of
            # 1,024 tokens, with rotary ones it is at 0.42 after 500.
            return Config(
                family="roformer", epochs=4, batch_tokens=2048, optimizer="muon", learning_rate=0.01, schedule="linear",
                beta2=0.98, weight_decay=0.01, dropout=0.0, eval_every=200,
            )  # fmt: skip
        return Config(
            epochs=6, batch_tokens=2048, learning_rate=1e-4, schedule="linear", warmup=0.1, beta2=0.999,
            weight_decay=0.01, dropout=0.1, eval_every=100,
        )  # fmt: skip

    def examples(self, rows: Sequence[AnsweredQuestionRow], *, model: Model) -> Examples[Any]:
        if model.spec.form != "encoder":
            cut = (split_row(row, self.windows(self.question(row), model=model)) for row in rows)
            return super().examples([part for parts in cut for part in parts], model=model)
        found = list(answer_spans.make_span_examples(rows, model=model))
        return ExampleList(found, lengths=[len(each.ids) for each in found])

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        return AnswerSpan() if model.spec.form == "encoder" else super().objective(model=model, config=config)

    def finish_model(self, rows: Sequence[AnsweredQuestionRow], *, model: Model) -> Model:
        """How much likelier "no answer" must be than the best answer, so that the validation rows' F1 is highest."""
        if model.spec.form != "encoder":
            return super().finish_model(rows, model=model)
        if not any(not row.answers for row in rows) or model.memo.get("no_answer", 0.0) is None:
            return model
        threshold = find_best_threshold(
            list(answer_spans.find_spans([self.question(row) for row in rows], model=model)), rows
        )
        return model.replace(memo=dict(model.memo) | {"no_answer": threshold})

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: AnsweredQuestionRow) -> ContextQuestion:
        return ContextQuestion(row.question, row.context)

    def prompt(self, question: ContextQuestion) -> str:
        return f"question: {question.question} context: {question.context}"

    def target(self, row: AnsweredQuestionRow) -> str:
        return row.answers[0].text if row.answers else NO_ANSWER

    def answer(
        self, question: ContextQuestion, prompt: Prompt, written: api.GeneratedText, *, model: Model
    ) -> ExtractedAnswer:
        text = written.text.strip()
        start = question.context.find(text) if text and text != NO_ANSWER else -1
        return ExtractedAnswer(
            text="" if text == NO_ANSWER else text,
            score=written.logprob,
            start=None if start < 0 else start,
            end=None if start < 0 else start + len(text),
            unknown=prompt.unknown,
            cut=prompt.cut,
        )

    def run(
        self, questions: Sequence[ContextQuestion], *, model: Model, options: Options | None = None
    ) -> Iterator[ExtractedAnswer]:
        self.check(model)
        if model.spec.form != "encoder":
            yield from super().run(questions, model=model, options=options)
            return
        if chosen := options.settings() if options else {}:
            raise UnknownOption("a model that finds spans", next(iter(chosen)), ())
        least = model.memo.get("no_answer", 0.0)
        for asked, found in zip(questions, answer_spans.find_spans(questions, model=model), strict=True):
            yield _answer_from(asked, found, none=least is not None and found.none > least)

    def split(self, question: ContextQuestion, *, model: Model) -> list[ContextQuestion]:
        """The question about each window of its context."""
        return [ContextQuestion(question.question, window.text) for window in self.windows(question, model=model)]

    def join(self, question: ContextQuestion, answers: Sequence[ExtractedAnswer], *, model: Model) -> ExtractedAnswer:
        """The likeliest answer of all windows; "no answer" needs all of them."""
        windows = self.windows(question, model=model) if len(answers) > 1 else [ContextWindow(0, question.context)]
        moved = [shift_answer(answer, by=window.start) for answer, window in zip(answers, windows, strict=True)]
        return max(moved, key=lambda answer: (bool(answer.text), answer.score))

    def windows(self, asked: ContextQuestion, *, model: Model) -> list[ContextWindow]:
        """A written answer has a side of its own, or stands behind what is read."""
        shown = len(model.require_tokenizer().encode(self.prompt(ContextQuestion(asked.question, ""))).ids)
        answer = self.max_tokens if model.spec.form == "decoder" else 0
        return split_context(asked.context, max_tokens=model.spec.context - shown - answer, model=model)

    def score(self, answers: Sequence[ExtractedAnswer], rows: Sequence[AnsweredQuestionRow]) -> Scores:
        judged = [
            score_answer([right.text for right in row.answers], answer.text)
            for row, answer in zip(rows, answers, strict=True)
        ]
        exact, f1 = (
            (100 * sum(each) / max(1, len(rows)) for each in zip(*judged, strict=True)) if judged else (0.0, 0.0)
        )
        return Scores(main="f1", values={"exact": exact, "f1": f1}, rows=len(rows), signature="as SQuAD's script")

    def baselines(
        self, rows: Sequence[AnsweredQuestionRow], *, train: Sequence[AnsweredQuestionRow]
    ) -> Mapping[str, Scores]:
        sentences = [find_nearest_sentence(row.question, row.context) for row in rows]
        ngrams = [find_new_words(row.question, text) for row, text in zip(rows, sentences, strict=True)]
        return {
            name: self.score([ExtractedAnswer(text=text, score=0.0) for text in texts], rows)
            for name, texts in {"nearest sentence": sentences, "its new words": ngrams}.items()
        }


def shift_answer(answer: ExtractedAnswer, *, by: int) -> ExtractedAnswer:
    if answer.start is None or answer.end is None:
        return answer
    return msgspec.structs.replace(answer, start=answer.start + by, end=answer.end + by)


def _answer_from(asked: ContextQuestion, found: FoundSpan, *, none: bool) -> ExtractedAnswer:
    if none:
        return ExtractedAnswer(text="", score=1 - found.probability, unknown=found.unknown, cut=found.cut)
    return ExtractedAnswer(
        text=asked.context[found.start : found.end],
        score=found.probability,
        start=found.start,
        end=found.end,
        unknown=found.unknown,
        cut=found.cut,
    )


def find_best_threshold(found: Sequence[FoundSpan], rows: Sequence[AnsweredQuestionRow]) -> float:
    """argmax over t of Σ F1, where those with `none` > t are answered with nothing."""
    gains = []
    for span, row in zip(found, rows, strict=True):
        rights = [right.text for right in row.answers]
        text = row.context[span.start : span.end]
        gains.append((span.none, score_answer(rights, "")[1] - score_answer(rights, text)[1]))
    best, at, total = 0.0, max(none for none, _ in gains), 0.0
    ordered = sorted(gains, reverse=True)
    for number, (none, gain) in enumerate(ordered):
        total += gain
        below = ordered[number + 1][0] if number + 1 < len(ordered) else none - 1.0
        if total > best and below < none:
            best, at = total, (none + below) / 2
    return at


# --- baselines ------------------------------------------------------------------------------------------------------


def find_nearest_sentence(question: str, context: str) -> str:
    """The sentence that shares most words with the question."""
    asked = set(split_words(question))
    return max(SENTENCE_END.split(context), key=lambda sentence: len(asked & set(split_words(sentence))))


def find_new_words(question: str, sentence: str) -> str:
    """The first words in a row, at most four, that the question has not."""
    asked = set(split_words(question))
    words = sentence.split()
    best: list[str] = []
    for at in range(len(words)):
        run = words[at : at + NGRAM]
        if len(run) > len(best) and not asked & set(split_words(" ".join(run))):
            best = run
    return " ".join(best or words[:NGRAM])
