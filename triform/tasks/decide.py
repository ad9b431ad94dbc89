"""Decide: which of given answers a decoder finds likeliest, read from its scores in one pass, without writing text.

A question is a choice among answers, a yes or no, or a level on a scale. A chat model sees the answers behind letters
and is read at its next token; a model without a chat template is scored on the answers themselves. How likely each
answer is where nothing is asked about is divided out (contextual calibration): a model's preference for a letter or for
a frequent word says nothing about the question.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec
import torch
from msgspec import Meta
from torch import Tensor

from triform.data.chunks import split_chunks
from triform.errors import InputError
from triform.model import Model
from triform.tasks.options import TaskOptions
from triform.tasks.perplexity import get_start_tokens
from triform.tasks.task import Reply, RunOnlyTask, Usage
from triform.tasks.token_scores import TokenRow, score_next, score_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

NOTHING_ASKED = "N/A"  # in place of the text, to see what a model answers anyway
BAR_WIDTH = 30
Kind: TypeAlias = Literal["choice", "score", "noul"]
Json: TypeAlias = str | dict[str, Any] | list[Any]
MAX_ANSWERS = len(ascii_uppercase)


# --- questions and answers ------------------------------------------------------------------------------------------


class DecideQuestion(msgspec.Struct, frozen=True):
    """A text and what is asked about it; of the kind "options" is what the options say."""

    text: str
    kind: Literal["options", "choice", "score", "noul"] = "options"
    instructions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()  # their names
    shown: tuple[str, ...] = ()  # the same as the model reads them


class Decision(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """The probability of each answer, in their order; and the likeliest of a choice, the mean level of a scale, or how
    likely yes is. `confidence` is 0 where all answers are equally likely, and 1 where one is certain."""

    type: Kind
    probabilities: dict[str, float]
    confidence: float
    choice: str | None = None
    score: float | None = None
    noul: float | None = None

    @property
    def numbers(self) -> list[float]:
        """The probabilities, in the order of the answers."""
        return list(self.probabilities.values())

    def __str__(self) -> str:
        if self.choice is not None:
            return f"{self.choice} {self.probabilities[self.choice]:.1%}"
        return f"{self.score:.2f}" if self.score is not None else f"yes {self.noul:.1%}"

    def columns(self) -> dict[str, object]:
        value = self.choice if self.choice is not None else self.score if self.score is not None else self.noul
        return {"answer": value, "confidence": self.confidence}


class ChoiceQuestion(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="choice"):
    """Which of these answers; each may have a description."""

    instructions: Json | None = None
    criteria: Annotated[dict[str, Json | None], Meta(min_length=1, max_length=MAX_ANSWERS)]


class ScaleQuestion(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="score"):
    """Which of these levels, the lowest first."""

    instructions: Json | None = None
    criteria: Annotated[list[Json], Meta(min_length=1, max_length=MAX_ANSWERS)]


class YesNoCriteria(msgspec.Struct, frozen=True, kw_only=True):
    """What yes means, and what no means."""

    true: Json | None = None
    false: Json | None = None


class YesNoQuestion(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="noul"):
    """Yes or no."""

    instructions: Json | None = None
    criteria: YesNoCriteria | None = None


AnyTyped: TypeAlias = ChoiceQuestion | ScaleQuestion | YesNoQuestion


class DecideInput(msgspec.Struct, frozen=True, kw_only=True):
    """A state, and named questions about it; with none, the fields question, choices and levels ask one, "answer"."""

    state: Json
    questions: Annotated[dict[str, AnyTyped], Meta(max_length=64)] = {}


class ChoiceAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="choice"):
    """The likeliest answer, beside the probabilities of all."""

    choice: str
    probabilities: dict[str, float]
    confidence: float


class ScaleAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="score"):
    """`score` is the mean level; levels are counted from 0, and `legend` says what they are."""

    score: float
    legend: dict[str, Any]
    probabilities: dict[str, float]
    confidence: float


class YesNoAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="noul"):
    """`noul` is how likely yes is."""

    noul: float


class DecideUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that were read; none are written."""

    input_tokens: int
    output_tokens: int = 0


class DecideResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answers by the names of their questions."""

    model: str
    answers: dict[str, ChoiceAnswer | ScaleAnswer | YesNoAnswer]
    usage: DecideUsage


Answers: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1)], ...],
    Meta(max_length=MAX_ANSWERS, extra={"separator": ","}),
]


class DecideTask(RunOnlyTask[DecideQuestion, Decision]):
    """Decide with MODEL, a decoder: a choice among given answers, yes or no, or a level; with probabilities, in one
    pass and without writing text. Without --choices and --levels the answer is yes or no.

    \b
    Examples:
      triform decide smollm2 "What is the capital of France?" --choices "Paris,Rome,Berlin"
      triform decide smollm2 "The film was a joy." --question "Is this review positive?"
      triform decide smollm2 --file reviews.txt --question "How good is it?" --levels "bad,fair,good" --out levels.csv
    """

    name = "decide"
    needs = "a language-model head"
    route = "systemone"
    answer_type = Decision
    input = DecideInput
    response_type = DecideResponse
    example: ClassVar[dict[str, str]] = {
        "state": "What is the capital of France?",
        "choices": "Paris\nRome\nBerlin",
    }

    class Options(TaskOptions, frozen=True, kw_only=True):
        question: Annotated[str | None, Meta(description="What is asked about each text.")] = None
        choices: Annotated[Answers, Meta(description="The answers to choose from, with commas between them.")] = ()
        levels: Annotated[Answers, Meta(description="Levels of a scale, the lowest first, with commas.")] = ()
        uncalibrated: Annotated[
            bool, Meta(description="Do not divide out how likely each answer is anyway.", extra={"form": False})
        ] = False

    # --- over HTTP --------------------------------------------------------------------------------------------------

    def question_of(self, text: str) -> DecideQuestion:
        return DecideQuestion(text)

    def questions_in(self, body: DecideInput) -> list[DecideQuestion]:
        state = as_text(body.state)
        for name in ("question", "choices", "levels"):
            if body.questions and getattr(body, name, None):
                raise InputError(f"{name} asks one question, questions ask others; give one of them", field=name)
        if not body.questions:
            return [DecideQuestion(state)]
        return [read_question(state, one) for one in body.questions.values()]

    def bodies_of(self, questions: Sequence[DecideQuestion]) -> Iterator[dict[str, Any]]:
        for one in questions:
            yield {"state": one.text}

    def response(
        self, answers: Sequence[Decision], *, body: DecideInput, model: str, id: str, usage: Usage
    ) -> DecideResponse:
        names = list(body.questions) or ["answer"]
        scales = [one.criteria if isinstance(one, ScaleQuestion) else [] for one in body.questions.values()]
        found = {name: describe(one, legend) for name, one, legend in zip(names, answers, scales or [[]], strict=True)}
        return DecideResponse(model=model, answers=found, usage=DecideUsage(input_tokens=usage.prompt_tokens))

    def answers_in(self, response: DecideResponse) -> Iterator[Decision]:
        for one in response.answers.values():
            if isinstance(one, YesNoAnswer):
                yield decide("noul", ("yes", "no"), (one.noul, 1 - one.noul))
            else:
                kind: Kind = "choice" if isinstance(one, ChoiceAnswer) else "score"
                names = one.probabilities if isinstance(one, ChoiceAnswer) else one.legend.values()
                yield decide(kind, tuple(map(str, names)), tuple(one.probabilities.values()))

    def render(self, answer: Decision, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        from rich.table import Table
        from rich.text import Text

        table = Table("answer", "probability", "", box=None, show_header=False)
        for name, value in answer.probabilities.items():
            table.add_row(Text(name), f"{value:.1%}", "█" * round(BAR_WIDTH * value))
        return [table, f"score {answer.score:.2f}"] if answer.score is not None else [table]

    # --- running ----------------------------------------------------------------------------------------------------

    def run(
        self, questions: Sequence[DecideQuestion], *, model: Model, options: Options | None = None
    ) -> Iterator[Decision]:
        self.check(model)
        chosen = options or self.Options()
        for some in split_chunks(questions):
            ready = [settle(one, chosen) for one in some]
            asked = [(one,) if chosen.uncalibrated else (one, with_nothing(one)) for one in ready]
            scores = score_answers([one for each in asked for one in each], model=model)
            for one, each in zip(ready, asked, strict=True):
                found = next(scores)
                values = found - next(scores) if len(each) > 1 else found
                yield decide(one.kind, one.answers, tuple(values.softmax(-1).tolist()))


def settle(question: DecideQuestion, options: DecideTask.Options) -> DecideQuestion:
    """The question as the options ask it, where it says nothing itself; with at least two answers that differ."""
    if question.kind == "options":
        if options.choices and options.levels:
            raise InputError("choices and levels are two kinds of questions; give one of them", field="levels")
        names = options.choices or options.levels
        kind: Kind = "choice" if options.choices else "score" if options.levels else "noul"
        asked = () if options.question is None else (options.question,)
        question = DecideQuestion(question.text, kind, asked, names or ("yes", "no"), names)
    field = "levels" if question.kind == "score" else "choices"
    if not question.text.strip():
        raise InputError("the text is empty; give at least one word", field="state")
    if len(set(question.answers)) != len(question.answers) or len(question.answers) < 2:
        raise InputError(f"the {field} {', '.join(question.answers)} are not two or more different ones", field=field)
    return question


def with_nothing(question: DecideQuestion) -> DecideQuestion:
    """The same question about nothing."""
    return msgspec.structs.replace(question, text=NOTHING_ASKED)


def decide(kind: str, answers: tuple[str, ...], probabilities: tuple[float, ...]) -> Decision:
    """The decision that these probabilities make."""
    named, count = dict(zip(answers, probabilities, strict=True)), len(answers)
    best = max(range(count), key=probabilities.__getitem__)
    if kind == "score":
        mean = sum(level * value for level, value in enumerate(probabilities))
        spread = sum(value * abs(level - best) for level, value in enumerate(probabilities))
        even = sum(abs(level - (count - 1) / 2) for level in range(count)) / count
        return Decision(type="score", probabilities=named, confidence=max(0.0, 1 - spread / even), score=mean)
    confidence = max(0.0, (probabilities[best] - 1 / count) / (1 - 1 / count))
    if kind == "noul":
        return Decision(type="noul", probabilities=named, confidence=confidence, noul=probabilities[0])
    return Decision(type="choice", probabilities=named, confidence=confidence, choice=answers[best])


# --- prompts --------------------------------------------------------------------------------------------------------


def as_text(content: Any) -> str:
    """A text as it is; anything else as JSON."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def read_question(state: str, typed: AnyTyped) -> DecideQuestion:
    """A typed question over HTTP."""
    asked = () if typed.instructions is None else (as_text(typed.instructions),)
    if isinstance(typed, YesNoQuestion):
        meant = typed.criteria or YesNoCriteria()
        pairs = (("Yes", meant.true), ("No", meant.false))
        shown = tuple(f"{word}: {as_text(said)}" for word, said in pairs if said is not None)
        return DecideQuestion(state, "noul", asked, ("yes", "no"), shown)
    if isinstance(typed, ScaleQuestion):
        levels = tuple(map(as_text, typed.criteria))
        return DecideQuestion(state, "score", asked, levels, levels)
    named = typed.criteria.items()
    shown = tuple(name if said is None else f"{name}: {as_text(said)}" for name, said in named)
    return DecideQuestion(state, "choice", asked, tuple(typed.criteria), shown)


def describe(answer: Decision, legend: Sequence[Any]) -> ChoiceAnswer | ScaleAnswer | YesNoAnswer:
    """The answer in the shape of the route: levels by their numbers."""
    if answer.noul is not None:
        return YesNoAnswer(noul=answer.noul)
    if answer.choice is not None:
        return ChoiceAnswer(choice=answer.choice, probabilities=answer.probabilities, confidence=answer.confidence)
    values = answer.probabilities
    return ScaleAnswer(
        score=answer.score or 0.0,
        legend={str(at): said for at, said in enumerate(legend or values)},
        probabilities={str(at): value for at, value in enumerate(values.values())},
        confidence=answer.confidence,
    )


class PreparedQuestion(NamedTuple):
    """What the model reads, and what it might answer."""

    prompt: str
    labels: tuple[str, ...]


def prepare(question: DecideQuestion, *, letters: bool) -> PreparedQuestion:
    """The question in words; with `letters` the answers stand behind letters, which are read instead of them."""
    if question.kind == "noul":
        lines, way = question.shown, "Reply with Yes or No, nothing else."
        labels: tuple[str, ...] = ("Yes", "No")
    else:
        labels = tuple(ascii_uppercase[: len(question.answers)]) if letters else question.answers
        lines = tuple(f"{label}) {said}" for label, said in zip(labels, question.shown, strict=True)) if letters else ()
        way = f"Reply with one letter from {labels[0]} to {labels[-1]}, nothing else."
    body = "\n".join((question.text, "", *question.instructions, *lines)).rstrip()
    if letters:
        return PreparedQuestion(f"{body}\n{way}", labels)
    return PreparedQuestion(f"{body}\nAnswer:", tuple(f" {label}" for label in labels))


# --- scores ---------------------------------------------------------------------------------------------------------


def score_answers(questions: Sequence[DecideQuestion], *, model: Model) -> Iterator[Tensor]:
    """log p of each answer of each question. Answers of one token each are read at one position."""
    letters = model.template is not None
    ready = [prepare(one, letters=letters) for one in questions]
    prompts = [one.prompt for one in ready]
    if model.template is not None:
        messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
        prompts = model.template.render_many(messages, enable_thinking=False)
    encoded = [encode_answers(text, one.labels, model=model) for text, one in zip(prompts, ready, strict=True)]
    known: dict[tuple[Any, ...], Tensor] = {}
    single = list(dict.fromkeys(one for one in encoded if all(len(ids) == 1 for ids in one.answers)))
    found = score_next([one.prompt for one in single], [[ids[0] for ids in one.answers] for one in single], model=model)
    known |= zip(single, found, strict=True)
    several = list(dict.fromkeys(one for one in encoded if one not in known))
    rows = [TokenRow((*one.prompt, *ids)) for one in several for ids in one.answers]
    values = iter(score_rows(rows, model=model))
    for one in several:
        sums = [next(values).values[-len(ids) :].sum() for ids in one.answers]
        known[one] = torch.stack(sums)
    yield from (known[one] for one in encoded)


class EncodedAnswers(NamedTuple):
    """The tokens that all answers begin behind, and those of each answer."""

    prompt: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]


def encode_answers(prompt: str, labels: Sequence[str], *, model: Model) -> EncodedAnswers:
    """Prompt and answer are cut into tokens together, as they would be read."""
    tokenizer, context = model.require_tokenizer(), model.spec.context
    start = () if model.template is not None else get_start_tokens(tokenizer)
    if model.template is not None and not tokenizer.has_bos(prompt):
        start = tokenizer.encode("").ids[:1] if tokenizer.bos in tokenizer.encode("").ids[:1] else ()
    whole = [(*start, *tokenizer.encode(prompt + label, special=False).ids) for label in labels]
    alone = (*start, *tokenizer.encode(prompt, special=False).ids)
    shared = min(count_shared(ids, alone) for ids in whole)
    shared = max(1, min(shared, *(len(ids) - 1 for ids in whole)))
    longest = max(map(len, whole))
    if longest > context:
        raise InputError(
            f"the question has {longest:,} tokens with its answers, the model reads {context:,}; shorten it",
            field="state",
        )
    return EncodedAnswers(alone[:shared], tuple(ids[shared:] for ids in whole))


def count_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens at the beginning that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
