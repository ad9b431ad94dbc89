"""The quiz: the questions of the slides, and one made from each lesson; all are answered by runs, never from a list.

The slide's own answer, where it prints one, is only compared with the result.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from triform_lectures import quiz_runs, registry, slides
from triform_lectures.lesson import CONDITION, HOLDS, MISTAKE, Lesson, claim, run_lesson
from triform_lectures.quiz_runs import Answers

VERDICTS = {"A": HOLDS, "B": CONDITION, "C": MISTAKE}


class QuizQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """`run` checks every option; `printed` is the slide's own answer, if any; `item` is where to read again."""

    name: str
    item: str
    ask: str
    where: str
    options: dict[str, str]
    printed: tuple[str, ...]
    run: Callable[[], Answers]


class AnsweredQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question with what its run gave."""

    name: str
    item: str
    ask: str
    where: str
    options: dict[str, str]
    printed: tuple[str, ...]
    derived: tuple[str, ...]
    evidence: Answers

    @property
    def agrees(self) -> bool:
        return not self.printed or set(self.derived) == set(self.printed)

    def is_right(self, guess: Collection[str]) -> bool:
        """Whether these letters are exactly those that the run gave."""
        return {letter.lower() for letter in guess} == {letter.lower() for letter in self.derived}


def answer_question(question: QuizQuestion) -> AnsweredQuestion:
    evidence = question.run()
    return AnsweredQuestion(
        name=question.name,
        item=question.item,
        ask=question.ask,
        where=question.where,
        options=question.options,
        printed=question.printed,
        derived=tuple(letter for letter in question.options if evidence[letter].holds),
        evidence=evidence,
    )


QUESTIONS = (
    QuizQuestion(
        name="blocks",
        item="3.1",
        ask="Which of these are true of the Transformer of 2017?",
        where=slides.QUIZZES,
        options={
            "A": "It is a neural network.",
            "B": "The encoder outputs a latent representation of the input.",
            "C": "The decoder outputs tokens based on that representation.",
            "D": "Encoder and decoder always have one block only.",
        },
        printed=("A", "B", "C"),
        run=quiz_runs.blocks,
    ),
    QuizQuestion(
        name="positions",
        item="3.3",
        ask="What is positional encoding for?",
        where=slides.QUIZZES,
        options={
            "A": "It adds randomness to embeddings.",
            "B": "It tells words of similar meaning apart.",
            "C": "It tells the model of the order of words.",
            "D": "It makes self-attention cheaper.",
        },
        printed=("C",),
        run=quiz_runs.positional,
    ),
    QuizQuestion(
        name="self-attention",
        item="3.4",
        ask="What is self-attention for?",
        where=slides.QUIZZES,
        options={
            "A": "It lets the model focus on relevant parts of the input.",
            "B": "It makes the network cheaper.",
            "C": "It makes synthetic data for training.",
            "D": "It makes the model generalise to unseen data.",
        },
        printed=("A",),
        run=quiz_runs.self_attention,
    ),
    QuizQuestion(
        name="heads",
        item="3.6",
        ask="Eight heads of dimension 64: what is the dimension after concatenation?",
        where=slides.QUIZZES,
        options={"A": "64", "B": "128", "C": "256", "D": "512"},
        printed=("D",),
        run=quiz_runs.concatenated,
    ),
    QuizQuestion(
        name="decoder-mask",
        item="3.8",
        ask="Why is masking necessary in a decoder?",
        where=slides.QUIZZES,
        options={
            "A": "To keep it from future positions.",
            "B": "To focus on relevant information.",
            "C": "To prevent overfitting.",
            "D": "To handle longer sequences.",
        },
        printed=("A",),
        run=quiz_runs.masking,
    ),
    QuizQuestion(
        name="origins",
        item="3.12",
        ask="Where do query, key and value of encoder-decoder attention come from?",
        where=slides.QUIZZES,
        options={
            "A": "All from the encoder.",
            "B": "Query from the decoder, key and value from the encoder.",
            "C": "Query and value from the encoder, key from the decoder.",
            "D": "All from the decoder.",
        },
        printed=("B",),
        run=quiz_runs.origins,
    ),
    QuizQuestion(
        name="bert",
        item="3.12",
        ask="What is BERT?",
        where=slides.QUIZZES,
        options={"A": "decoder-only", "B": "encoder-only", "C": "encoder and decoder"},
        printed=("B",),
        run=quiz_runs.bert,
    ),
    QuizQuestion(
        name="optimised",
        item="4.17",
        ask="What do we optimise when we train a Transformer? (Option 1 cannot be read in the slide's text.)",
        where=slides.JHU,
        options={
            "2": "W_q and W_k",
            "3": "the softmax function",
            "4": "sine/cosine positional encodings",
            "5": "the embedding matrix",
            "6": "W_1 and W_2 of the feed-forward",
            "7": "W_E",
        },
        printed=tuple(map(str, slides.OPTIMISED)),
        run=quiz_runs.optimised,
    ),
    QuizQuestion(
        name="training-mask",
        item="4.19",
        ask="What is the point of attention masking during training?",
        where=slides.JHU,
        options={
            "A": "It reduces the number of computations.",
            "B": "It prevents access to future tokens.",
            "C": "It highlights important tokens.",
        },
        printed=("B",),
        run=quiz_runs.masking_in_training,
    ),
    QuizQuestion(
        name="connections",
        item="4.21",
        ask="How are encoder and decoder connected?",
        where=slides.JHU,
        options={
            "level by level": "Each encoder block to the decoder block beside it.",
            "top to all": "The last encoder block to every decoder block.",
            "top to first": "The last encoder block to the first decoder block.",
        },
        printed=("top to all",),
        run=quiz_runs.connections,
    ),
    QuizQuestion(
        name="cache",
        item="4.28",
        ask="How much memory does the KV-cache take (d wide, n positions, L layers)?",
        where=slides.JHU,
        options={"1": "2nL", "2": "2dL", "3": "ndL", "4": "2ndL"},
        printed=("4",),
        run=quiz_runs.cache,
    ),
    QuizQuestion(
        name="pair-cost",
        item="4.30",
        ask="Summarising m tokens into n with an encoder-decoder: what does its attention cost?",
        where=slides.JHU,
        options={name: name for name in ("O(n)+O(m)", "O(n)+O(m)+O(nm)", "O(n²)+O(m²)+O(nm)", "O(n²)+O(m²)")},
        printed=("O(n²)+O(m²)+O(nm)",),
        run=quiz_runs.pair_cost,
    ),
)


# --- questions made from lessons ------------------------------------------------------------------------------------


def make_lesson_question(lesson: Lesson) -> QuizQuestion:
    """Does what the slide says hold? The lesson's run decides when it is asked."""
    return QuizQuestion(
        name=lesson.id,
        item=lesson.id,
        ask=f"{lesson.title}. The slide says: {lesson.slide} Does a run agree?",
        where=lesson.where,
        options={"A": "It holds.", "B": "It holds with a condition.", "C": "It is a mistake."},
        printed=(),
        run=lambda: judge_lesson(lesson),
    )


def judge_lesson(lesson: Lesson) -> Answers:
    """The verdict of a lesson's run as answers; the claims that decide are the proof."""
    evidence = run_lesson(lesson).evidence
    worst = [each for each in evidence.claims if each.verdict == evidence.verdict]
    proof = "; ".join(filter(None, (f"{each.says}: {each.found}" if each.found else each.says for each in worst)))
    return {
        letter: claim(verdict, evidence.verdict == verdict, proof if evidence.verdict == verdict else "")
        for letter, verdict in VERDICTS.items()
    }


def list_questions(chapter: str | None = None) -> tuple[QuizQuestion, ...]:
    """The slides' questions, then one for each lesson that computes, of a chapter or of all."""
    lessons = registry.all_lessons() if chapter is None else registry.find_chapter(chapter).lessons
    items = {item for lesson in lessons for item in lesson.items}
    asked = tuple(question for question in QUESTIONS if question.item in items)
    return asked + tuple(make_lesson_question(lesson) for lesson in lessons if lesson.kind == "computed")


# --- the score ------------------------------------------------------------------------------------------------------


class ChapterScore(NamedTuple):
    """How many questions of a chapter were answered rightly, and the lessons to read again."""

    chapter: str
    right: int
    asked: int
    again: tuple[str, ...]


def score_by_chapter(answers: list[tuple[AnsweredQuestion, bool]]) -> list[ChapterScore]:
    """In the order of the chapters; `answers`: each question with whether the guess was right."""
    scores = []
    for chapter in registry.all_chapters():
        items = {item for lesson in chapter.lessons for item in lesson.items}
        mine = [(answered, right) for answered, right in answers if answered.item in items]
        if mine:
            again = dict.fromkeys(registry.find_lesson(answered.item).id for answered, right in mine if not right)
            scores.append(ChapterScore(chapter.name, sum(right for _, right in mine), len(mine), tuple(again)))
    return scores
