"""Score: how likely a model finds texts that are given; and how well two texts fit together.

A decoder scores each token behind those before it, an encoder–decoder behind its source, a masked encoder each token
while it sees all others (the pseudo-log-likelihood). A text longer than the context is read in windows that overlap by
half. A cross-encoder or an embedding model says how relevant a second text is to a first.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta

from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.rows import DataRow, PairRow, TextRow
from triform.errors import InputError
from triform.model import Model
from triform.spec import Classify as Head
from triform.spec import Transformed
from triform.tasks import makes_vectors, predicts_tokens, scores_pairs
from triform.tasks.complete import split_windows
from triform.tasks.encoder_batches import check_texts
from triform.tasks.options import Lines, TaskOptions
from triform.tasks.perplexity import get_start_tokens
from triform.tasks.rerank import score_text_pairs
from triform.tasks.task import CannotDo, Reply, RunOnlyTask, Usage
from triform.tasks.text_to_text import encode_prompt, encode_target, get_first_token
from triform.tasks.token_scores import TokenLogprobs, TokenRow, score_masked, score_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_SHOWN_PERPLEXITY = 700.0  # the logarithm of the largest number that can be shown


class ScoreQuestion(msgspec.Struct, frozen=True):
    """`source`: what an encoder–decoder reads, or what stands before the text of a decoder; not scored itself."""

    text: str
    source: tuple[str, ...] = ()


class RelevanceQuestion(msgspec.Struct, frozen=True):
    """How well the second text fits the first."""

    text_1: str
    text_2: str


AnyQuestion: TypeAlias = ScoreQuestion | RelevanceQuestion


class TokenScore(msgspec.Struct, frozen=True):
    """A token as it stands in the text, and its log-probability; None of a first token that has nothing before it."""

    text: str
    logprob: float | None


class TextScore(Reply, frozen=True, kw_only=True):
    """Natural logarithms, over the tokens that are scored; `greedy`: each was the likeliest.

    Of two texts, `score` alone: how well they fit together. Of one text it is its log-probability.
    """

    score: float
    logprob: float | None = None
    perplexity: float | None = None
    bits_per_byte: float | None = None
    greedy: bool | None = None
    count: int | None = None
    tokens: tuple[TokenScore, ...] | None = None

    @property
    def numbers(self) -> list[float]:
        """The log-probabilities of the tokens, NaN where there is none; without tokens the score."""
        if self.tokens is None:
            return [self.score]
        return [math.nan if one.logprob is None else one.logprob for one in self.tokens]

    def __str__(self) -> str:
        if self.logprob is None:
            return f"{self.score:.4f}"
        return (
            f"logprob {self.logprob:.3f}  perplexity {self.perplexity:.3f}  "
            f"{self.bits_per_byte:.3f} bits per byte  {self.count:,} tokens"
        )

    def columns(self) -> dict[str, object]:
        names = ("score",) if self.logprob is None else ("logprob", "perplexity", "bits_per_byte", "count")
        return {name: getattr(self, name) for name in names}


class ScoreInput(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to score, behind sources where they have any; or `text_1` and `text_2`, one each or one for several."""

    text: Lines | None = None
    source: Lines | None = None
    text_1: Lines | None = None
    text_2: Lines | None = None


class ScoredItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One score, in the fields of vLLM's route; of a given text also what else was counted."""

    index: int
    object: str
    score: float
    logprob: float | None = None
    perplexity: float | None = None
    bits_per_byte: float | None = None
    greedy: bool | None = None
    count: int | None = None
    tokens: tuple[TokenScore, ...] | None = None


class ScoreResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The list that vLLM's clients read."""

    id: str
    created: int
    model: str
    data: tuple[ScoredItem, ...]
    usage: Usage
    object: str = "list"


SHARED_FIELDS = ("score", "logprob", "perplexity", "bits_per_byte", "greedy", "count", "tokens")


class ScoreTask(RunOnlyTask[AnyQuestion, TextScore]):
    """Score given texts with MODEL: log-probability, perplexity and bits per byte, of a lone text token by token.

    --source is what an encoder–decoder reads, or what stands before the text of a decoder. In a file with both,
    name the columns.

    \b
    Examples:
      triform score smollm2 "The capital of France is Paris."
      triform score smollm2 " Paris." --source "The capital of France is"
      triform score models/en-de "Ein Löwe schläft." --source "A lion sleeps."
      triform score smollm2 --file sentences.txt --out scores.csv
      triform score models/en-de --file pairs.csv --source-column en --target-column de --json
    """

    name = "score"
    needs = "a language-model head"
    answer_type = TextScore
    input = ScoreInput
    response_type = ScoreResponse
    input_rows: ClassVar[tuple[type[DataRow], ...]] = (TextRow, PairRow)
    example = {"text": "the fat ginger cat sat on a mat"}  # noqa: RUF012

    class Options(TaskOptions, frozen=True, kw_only=True):
        source: Annotated[
            str | None,
            Meta(description="What stands before the texts, or what they are the target of.", extra={"http": False}),
        ] = None
        totals: Annotated[bool, Meta(description="Only totals, without the single tokens.")] = False

    # --- questions and answers --------------------------------------------------------------------------------------

    def question_of(self, text: str) -> AnyQuestion:
        return ScoreQuestion(text)

    def question_of_row(self, row: Any) -> AnyQuestion:
        return ScoreQuestion(row.target, (row.source,)) if isinstance(row, PairRow) else ScoreQuestion(row.text)

    def row_kind(self, path: Path, layout: Layout) -> type[DataRow]:
        """Texts; where the columns of a source and a target are named, both."""
        return PairRow if {"source", "target"} & {*layout.columns} else TextRow

    def questions_in(self, body: ScoreInput) -> list[AnyQuestion]:
        if (body.text is None) == (body.text_1 is None) or (body.text_1 is None) != (body.text_2 is None):
            raise InputError("give text (with or without source), or both text_1 and text_2", field="text")
        if body.text_1 is not None and body.text_2 is not None:
            if body.source is not None:
                raise InputError("source belongs to text, not to text_1 and text_2", field="source")
            return [RelevanceQuestion(*pair) for pair in match_texts(body.text_1, body.text_2)]
        texts = [body.text] if isinstance(body.text, str) else body.text or []
        return list(match_sources(texts, body.source))

    def options_body(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The source of all texts is a field of the question over HTTP."""
        own = {name: value for name, value in options.items() if name != "source"}
        source = options.get("source")
        return super().options_body(own) | ({} if source is None else {"source": source})

    def bodies_of(self, questions: Sequence[AnyQuestion]) -> Iterator[dict[str, Any]]:
        texts = [one for one in questions if isinstance(one, ScoreQuestion)]
        if any(one.source for one in texts):
            yield {"text": [one.text for one in texts], "source": ["".join(one.source) for one in texts]}
        elif texts:
            yield {"text": [one.text for one in texts]}
        pairs = [one for one in questions if isinstance(one, RelevanceQuestion)]
        if pairs:
            yield {"text_1": [one.text_1 for one in pairs], "text_2": [one.text_2 for one in pairs]}

    def response(
        self, answers: Sequence[TextScore], *, body: ScoreInput, model: str, id: str, usage: Usage
    ) -> ScoreResponse:
        data = tuple(
            ScoredItem(index=index, object="score", **{name: getattr(one, name) for name in SHARED_FIELDS})
            for index, one in enumerate(answers)
        )
        return ScoreResponse(id=id, created=int(time()), model=model, data=data, usage=usage)

    def answers_in(self, response: ScoreResponse) -> Iterator[TextScore]:
        for one in response.data:
            yield TextScore(**{name: getattr(one, name) for name in SHARED_FIELDS})

    def render(self, answer: TextScore, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        from rich.table import Table
        from rich.text import Text

        if not answer.tokens:
            return [str(answer)]
        table = Table("token", "logprob", box=None, header_style="dim")
        table.columns[1].justify = "right"
        for token in answer.tokens:
            table.add_row(Text(repr(token.text)), "" if token.logprob is None else f"{token.logprob:.3f}")
        return [table, str(answer)]

    # --- running ----------------------------------------------------------------------------------------------------

    def run(
        self, questions: Sequence[AnyQuestion], *, model: Model, options: Options | None = None
    ) -> Iterator[TextScore]:
        self.check(model)
        chosen = options or self.Options()
        for some in split_chunks(questions):
            texts = [at for at, one in enumerate(some) if isinstance(one, ScoreQuestion)]
            pairs = [at for at, one in enumerate(some) if isinstance(one, RelevanceQuestion)]
            found = dict(zip(texts, score_texts([some[at] for at in texts], model=model, options=chosen), strict=True))
            found |= zip(pairs, score_relevance([some[at] for at in pairs], model=model), strict=True)
            yield from (found[at] for at in range(len(some)))


def match_sources(texts: Sequence[str], source: str | Sequence[str] | None) -> list[ScoreQuestion]:
    """Each text with its source, or all with one."""
    if source is None:
        return [ScoreQuestion(text) for text in texts]
    sources = [source] * len(texts) if isinstance(source, str) else source
    if len(sources) != len(texts):
        raise InputError(f"{len(texts)} texts have {len(sources)} sources; give one per text", field="source")
    return [ScoreQuestion(text, (one,)) for text, one in zip(texts, sources, strict=True)]


def match_texts(first: str | list[str], second: str | list[str]) -> list[tuple[str, str]]:
    """One with each of several, or as many pairs as both have texts."""
    ones, others = ([each] if isinstance(each, str) else each for each in (first, second))
    if len(ones) == 1:
        ones = ones * len(others)
    if len(ones) != len(others):
        raise InputError(
            f"text_1 has {len(ones)} texts, text_2 has {len(others)}; give one, or as many as the other", field="text_2"
        )
    return list(zip(ones, others, strict=True))


# --- how well two texts fit together --------------------------------------------------------------------------------


def score_relevance(questions: Sequence[Any], *, model: Model) -> list[TextScore]:
    """By a cross-encoder, or by the similarity of an embedding model."""
    if not questions:
        return []
    if not (scores_pairs(model) or makes_vectors(model)):
        raise CannotDo("this model does not score pairs of texts; give text, or a cross-encoder", field="text_1")
    pairs = score_text_pairs([(one.text_1, one.text_2) for one in questions], model=model)
    return [TextScore(score=pair.score, cut=pair.cut, unknown=pair.unknown) for pair in pairs]


# --- how likely a text is -------------------------------------------------------------------------------------------


class _Scored(msgspec.Struct):
    """The tokens of a text, as they stand in it, and the log-probabilities of the last so many of them."""

    tokens: list[str]
    logprobs: list[float]
    greedy: bool
    bytes: int
    cut: int = 0
    unknown: int = 0


def score_texts(questions: Sequence[Any], *, model: Model, options: ScoreTask.Options) -> list[TextScore]:
    """In the order of the questions, many in one pass."""
    if not questions:
        return []
    if not predicts_tokens(model):
        kind = type(model.spec.head).__name__
        raise CannotDo(
            f"a model with the head {kind} predicts no tokens, so it cannot score a text"
            + ("; it scores pairs: give text_1 and text_2" if isinstance(model.spec.head, Head) else ""),
            field="text",
        )
    source = () if options.source is None else (options.source,)
    asked = [(one.text, one.source or source) for one in questions]
    check_texts([part for text, before in asked for part in (text, *before)])
    if isinstance(model.spec.head, Transformed) and model.spec.decoder is None:
        scored = _score_by_encoder(asked, model=model)
    elif model.spec.form == "encoder-decoder":
        scored = _score_by_pair(asked, model=model)
    else:
        scored = _score_by_decoder(asked, model=model)
    return [_describe(one, totals=options.totals) for one in scored]


def _describe(scored: _Scored, *, totals: bool) -> TextScore:
    total, count = math.fsum(scored.logprobs), len(scored.logprobs)
    first = [None] * (len(scored.tokens) - count)
    tokens = tuple(TokenScore(*pair) for pair in zip(scored.tokens, (*first, *scored.logprobs), strict=True))
    return TextScore(
        score=total,
        logprob=total,
        perplexity=math.exp(min(-total / max(1, count), MAX_SHOWN_PERPLEXITY)),
        bits_per_byte=-total / math.log(2) / max(1, scored.bytes),
        greedy=scored.greedy,
        count=count,
        tokens=None if totals else tokens,
        cut=scored.cut,
        unknown=scored.unknown,
    )


def _score_by_decoder(asked: Sequence[tuple[str, tuple[str, ...]]], *, model: Model) -> Iterator[_Scored]:
    """Behind the token that texts begin with in training; where there is none, the first token is only read."""
    tokenizer, context = model.require_tokenizer(), model.spec.context
    start, rows, whose = get_start_tokens(tokenizer), list[TokenRow](), list[list[tuple[int, int]]]()
    encodings = tokenizer.encode_many(["".join((*before, text)) for text, before in asked], special=False)
    for encoding in encodings:
        pieces = list(split_windows(np.array([*start, *encoding.ids]), context, overlap=context // 2))
        whose.append([(len(rows) + n, context // 2 if n else 0) for n in range(len(pieces))])
        rows += [TokenRow(piece) for piece in pieces]
    short = {at for at, row in enumerate(rows) if len(row.ids) < 2}  # a lone token with nothing before it
    kept = [at for at in range(len(rows)) if at not in short]
    scores = dict(zip(kept, score_rows([rows[at] for at in kept], model=model), strict=True))
    for (text, before), encoding, parts in zip(asked, encodings, whose, strict=True):
        values = [value for at, skip in parts if at in scores for value in scores[at].values[skip:].tolist()]
        greedy = [value for at, skip in parts if at in scores for value in scores[at].greedy[skip:].tolist()]
        yield _read_own(text, "".join(before), encoding, values, greedy, unknown=tokenizer.count_unknown(encoding.ids))


def _read_own(
    text: str, before: str, encoding: Any, values: list[float], greedy: list[bool], *, unknown: int
) -> _Scored:
    """The tokens that reach into the text, behind those of what stands before it."""
    first = next((at for at, (_, end) in enumerate(encoding.offsets) if end > len(before)), len(encoding.ids))
    missing = len(encoding.ids) - min(len(values), len(encoding.ids))  # the first token, where nothing stands before it
    offsets = encoding.offsets[first:]
    scored_from = max(first, missing)
    begin = max(len(before), encoding.offsets[scored_from - 1][1] if scored_from > first else len(before))
    whole = before + text
    own = len(encoding.ids) - scored_from
    return _Scored(
        tokens=[whole[max(start, len(before)) : end] for start, end in offsets],
        logprobs=values[len(values) - own :] if own else [],
        greedy=all(greedy[len(greedy) - own :]) if own else False,
        bytes=len(whole[begin:].encode()),
        unknown=unknown,
    )


def _score_by_pair(asked: Sequence[tuple[str, tuple[str, ...]]], *, model: Model) -> Iterator[_Scored]:
    """The target with its end, behind its source."""
    tokenizer, first = model.require_tokenizer(), get_first_token(model)
    writer, rows, cuts = tokenizer.target, list[TokenRow](), list[int]()
    for number, (text, before) in enumerate(asked, start=1):
        if not before:
            raise InputError(
                f"text {number} has no source; an encoder-decoder scores a text behind its source", field="source"
            )
        prompt = encode_prompt("".join(before), model, reserved_tokens=0)
        ids = encode_target(text, tokenizer, most=2**31, spaced=False)
        if len(ids) > model.spec.context:
            raise InputError(_explain_long(number, len(ids), model), field="text")
        rows.append(TokenRow((first, *ids), prompt.ids))
        cuts.append(prompt.cut)
    for (text, _), row, cut, found in zip(asked, rows, cuts, score_rows(rows, model=model), strict=True):
        tokens = [writer.token_of(id) or "" for id in row.ids[1:]]
        unknown = writer.count_unknown([*row.ids[1:]])
        yield _Scored(tokens, *_as_lists(found), bytes=len(text.encode()), cut=cut, unknown=unknown)


def _as_lists(found: TokenLogprobs) -> tuple[list[float], bool]:
    return found.values.tolist(), bool(found.greedy.all())


def _score_by_encoder(asked: Sequence[tuple[str, tuple[str, ...]]], *, model: Model) -> Iterator[_Scored]:
    """Each of the text's own tokens, masked alone."""
    tokenizer = model.require_tokenizer()
    mask = tokenizer.mask
    if mask is None:
        raise CannotDo("this encoder's tokenizer has no mask token, so it cannot score texts")
    encodings = tokenizer.encode_many([text for text, _ in asked])
    places = []
    for number, ((_, before), encoding) in enumerate(zip(asked, encodings, strict=True), start=1):
        if before:
            raise InputError("an encoder scores whole texts, which have no source; leave it out", field="source")
        if len(encoding.ids) > model.spec.context:
            raise InputError(_explain_long(number, len(encoding.ids), model), field="text")
        places.append([at for at, part in enumerate(encoding.parts) if part is not None])
    found = score_masked([each.ids for each in encodings], places, mask=mask, model=model)
    for (text, _), encoding, own, values in zip(asked, encodings, places, found, strict=True):
        tokens = [text[slice(*encoding.offsets[at])] for at in own]
        unknown = tokenizer.count_unknown(encoding.ids)
        yield _Scored(tokens, *_as_lists(values), bytes=len(text.encode()), unknown=unknown)


def _explain_long(number: int, tokens: int, model: Model) -> str:
    return f"text {number} has {tokens:,} tokens, the model reads {model.spec.context:,} at once; shorten it"
