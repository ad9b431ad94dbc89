"""The quiz questions of the slides, answered by runs; the slide's own answer is only compared with the result."""

from collections.abc import Callable

import msgspec

from triform_lectures import quiz_runs, slides
from triform_lectures.quiz_runs import Answers


class QuizQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """`run` checks every option; `printed` is the slide's own answer."""

    name: str
    ask: str
    where: str
    options: dict[str, str]
    printed: tuple[str, ...]
    run: Callable[[], Answers]


class AnsweredQuestion(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ask: str
    where: str
    options: dict[str, str]
    printed: tuple[str, ...]
    derived: tuple[str, ...]
    evidence: Answers

    @property
    def agrees(self) -> bool:
        return set(self.derived) == set(self.printed)


def answer_question(question: QuizQuestion) -> AnsweredQuestion:
    evidence = question.run()
    return AnsweredQuestion(
        name=question.name,
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
        ask="Eight heads of dimension 64: what is the dimension after concatenation?",
        where=slides.QUIZZES,
        options={"A": "64", "B": "128", "C": "256", "D": "512"},
        printed=("D",),
        run=quiz_runs.concatenated,
    ),
    QuizQuestion(
        name="decoder-mask",
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
        ask="What is BERT?",
        where=slides.QUIZZES,
        options={"A": "decoder-only", "B": "encoder-only", "C": "encoder and decoder"},
        printed=("B",),
        run=quiz_runs.bert,
    ),
    QuizQuestion(
        name="optimised",
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
        ask="How much memory does the KV-cache take (d wide, n positions, L layers)?",
        where=slides.JHU,
        options={"1": "2nL", "2": "2dL", "3": "ndL", "4": "2ndL"},
        printed=("4",),
        run=quiz_runs.cache,
    ),
    QuizQuestion(
        name="pair-cost",
        ask="Summarising m tokens into n with an encoder-decoder: what does its attention cost?",
        where=slides.JHU,
        options={name: name for name in ("O(n)+O(m)", "O(n)+O(m)+O(nm)", "O(n²)+O(m²)+O(nm)", "O(n²)+O(m²)")},
        printed=("O(n²)+O(m²)+O(nm)",),
        run=quiz_runs.pair_cost,
    ),
)
