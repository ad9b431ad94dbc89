"""Complete: a decoder continues a text; evaluated by its perplexity on texts that people wrote."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from triform.data.array_store import FolderCache, StoredNumbers
from triform.data.chunks import split_chunks
from triform.data.row_cache import TokenCache, describe_place, digest
from triform.data.rows import DocumentRow
from triform.errors import InputError
from triform.generate import api
from triform.generate.events import Event, Finish
from triform.generate.settings import Request, SettingsError
from triform.model import Model
from triform.spec import Form, ModelSpec, Own, Tied
from triform.tasks.perplexity import compute_perplexity, get_start_tokens, score_compression
from triform.tasks.task import CannotDo, Reply, Scores
from triform.tasks.text_to_text import (
    Beams,
    GeneratingOptions,
    GeneratingTask,
    get_first_token,
    max_parallel_answers,
)
from triform.train.examples import ExampleList, ExamplePlace, Examples, TokenExample, TokenWindows
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken

SAMPLE_CHARACTERS = 60  # of a text, that a sample continues
HASHED_TOKENS = 1 << 16  # at once

Ids: TypeAlias = npt.NDArray[np.integer] | StoredNumbers
Bounds: TypeAlias = npt.NDArray[np.int64]


class Continuation(Reply, frozen=True):
    """The generated text, token by token with log-probabilities; `logprob` is their sum."""

    text: str
    finish: Finish
    logprob: float
    tokens: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return self.text

    def columns(self) -> dict[str, object]:
        return {"text": self.text, "finish": self.finish, "logprob": self.logprob}


def continuation_of(events: Sequence[Event], *, unknown: int = 0) -> Continuation:
    """The continuation that these events make."""
    return Continuation(
        text="".join(event.text for event in events),
        finish=events[-1].finish or "length",
        logprob=sum(event.logprob for event in events),
        tokens=tuple(events),
        unknown=unknown,
    )


def option(description: str, **more: Any) -> Meta:
    """An option that the playground does not show."""
    return Meta(description=description, extra={"form": False}, **more)


NewTokens: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        title="max tokens",
        description="The most tokens to generate; default: the model's own, or 128.",
        extra={"form": 48},
    ),
]
Temperature: TypeAlias = Annotated[
    float, Meta(ge=0, description="0: always the likeliest token; default: the model's own.", extra={"form": 0})
]


class SamplingOptions(GeneratingOptions, frozen=True, kw_only=True):
    """How the next token is chosen: the same options wherever text is continued."""

    max_tokens: NewTokens | None = None
    temperature: Temperature | None = None
    top_p: Annotated[float, option("Only the likeliest tokens that together have this probability.")] | None = None
    top_k: Annotated[int, option("Only the k likeliest tokens.")] | None = None
    stop: Annotated[tuple[str, ...], Meta(description="Stop before this text; may be given several times.")] = ()
    seed: Annotated[int, Meta(ge=0, description="The same seed gives the same text.")] | None = None


class CompleteTask(GeneratingTask[DocumentRow, api.Prompt, Continuation]):
    """Continue TEXT with MODEL (from standard input where no TEXT is given). An encoder-decoder answers TEXT.

    \b
    Examples:
      triform complete smollm2 "The cat sat on"
      triform complete smollm2 "Once" --temperature 0.8 --seed 7 --n 3
      triform complete smollm2 "Once" "The cat sat on" --max-tokens 20
      echo "Lily went" | triform complete models/stories --max-tokens 40 --json
      triform complete models/stories --file openings.txt --out stories.txt
    """

    name = "complete"
    forms = ("decoder",)
    kind = DocumentRow
    needs = "a language-model head"
    answer_type = Continuation
    example = {"prompt": "The fat ginger cat"}  # noqa: RUF012

    class Options(SamplingOptions, frozen=True, kw_only=True):
        n: Annotated[int, option("How many answers.", ge=1)] = 1
        beams: Beams | None = None
        logprobs: Annotated[int, option("Alternatives to show beside each token.", ge=0)] = 0
        lookup: Annotated[
            bool,
            Meta(
                description="Draft from the text so far: the same tokens, sooner where text repeats.",
                extra={"form": False, "http": False},
            ),
        ] = False

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        if base.form != "decoder" or not isinstance(base.head, Tied | Own):
            raise CannotDo(f"{self.name} needs a decoder with a language head, not the form {base.form!r}")
        return base

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        if fresh:
            return Config(epochs=10, optimizer="muon", learning_rate=1e-2, weight_decay=0.1, dropout=0.0)
        return Config(epochs=1, batch_tokens=2048, learning_rate=5e-5, warmup=0.1, weight_decay=0.01)

    def examples(self, rows: Sequence[DocumentRow], *, model: Model) -> Examples[Any]:
        """Texts that fit one by one; longer ones as a stream, cut into windows elsewhere in each epoch."""
        texts = encode_with_end(rows, model=model)
        ids = np.concatenate([np.zeros(0, np.int64), *texts])
        return make_stream_examples(ids, np.cumsum([0, *map(len, texts)]), model=model)

    def keep_examples(
        self, rows: Sequence[DocumentRow], *, model: Model, cache: FolderCache, fingerprint: str
    ) -> Examples[Any]:
        """The same, from a file of all tokens that is not read into memory."""
        tokenizer = model.require_tokenizer()
        end = [] if tokenizer.eos is None else [tokenizer.eos]

        def encode(some: Sequence[DocumentRow]) -> Iterator[dict[str, list[int]]]:
            for row, ids in zip(some, tokenizer.ids_many([row.text for row in some], special=False), strict=True):
                yield {"ids": ids if row.goes_on else ids + end, "goes_on": [int(row.goes_on)]}

        tokens = TokenCache.build(rows, encode, cache=cache, fingerprint=fingerprint)
        ends = tokens["goes_on"].values[:] == 0
        bounds = np.concatenate([[0], tokens["ids"].offsets[1:][ends].astype(np.int64)])
        begins = np.flatnonzero(np.concatenate([[True], ends[:-1]]))  # the row that each text begins with
        return make_stream_examples(
            tokens["ids"].values, bounds, model=model, where=lambda text: describe_place(rows, int(begins[text]))
        )

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        return NextToken(smoothing=config.label_smoothing)

    def question(self, row: DocumentRow) -> str:
        return row.text

    def sample(self, row: DocumentRow, *, model: Model) -> str:
        """The beginning, cut behind a word: there is something to go on with."""
        half = row.text[: min(SAMPLE_CHARACTERS, len(row.text) // 2 + 1)]
        return half.rpartition(" ")[0].strip() or half

    def run(
        self, questions: Sequence[api.Prompt], *, model: Model, options: GeneratingOptions | None = None
    ) -> Iterator[Continuation]:
        """Those of a chunk are generated side by side; `n` is for `model.complete`."""
        self.check(model)
        settings = (options or self.Options()).settings()
        if api.resolve_beam_settings(model, settings, beams=settings.get("beams")).width > 1:
            yield from search_beams(questions, model=model, settings=settings)
            return
        settings.pop("beams", None)
        wanted = api.resolve_settings(model, settings)
        if wanted.n != 1:
            raise SettingsError(f"n={wanted.n} is out of range; here each text has one answer")
        prompts = [api.encode_prompt(model, one) for one in questions]
        longest = max(map(len, prompts), default=0)
        rows = max_parallel_answers(model.spec, prompt_tokens=longest, new_tokens=wanted.max_tokens)
        start = get_first_token(model) if model.spec.form == "encoder-decoder" else None
        engine = api.make_engine(model, rows=min(rows, max(1, len(prompts))), start=start)
        place = {engine.add(Request(prompt=one, settings=wanted)): at for at, one in enumerate(prompts)}
        written: list[list[Event]] = [[] for _ in questions]
        while engine.busy:
            for event in engine.step():
                written[place[event.request]].append(msgspec.structs.replace(event, request=0))
        for prompt, events in zip(prompts, written, strict=True):
            if events[-1].finish == "error":
                raise InputError(f"generation failed: {events[-1].error}")
            yield continuation_of(events, unknown=model.require_tokenizer().count_unknown(prompt))

    def evaluate(self, rows: Sequence[DocumentRow], *, model: Model, options: Any = None) -> Scores:
        """Each of the text's own tokens is predicted once, behind the token that texts begin with and with at least
        half a context behind it where the text has as much. No end of a text is predicted."""
        if model.spec.form != "decoder":
            raise CannotDo(f"perplexity of texts needs a decoder, not the form {model.spec.form!r}")
        context, start = model.spec.context, get_start_tokens(model.require_tokenizer())
        judged = []
        for text in encode_texts(rows, model=model):
            whole = np.concatenate([np.array(start, dtype=np.int64), text])
            for number, piece in enumerate(split_windows(whole, context, overlap=context // 2)):
                # the first token that no piece before has predicted
                first = context // 2 + 1 if number else max(1, len(start))
                judged.append(TokenExample(piece, [at >= first for at in range(len(piece))]))
        listed = ExampleList(judged, lengths=[len(each.ids) for each in judged])
        size = sum(len(row.text.encode()) for row in rows) - (
            0 if start else count_first_token_bytes(rows, model=model)
        )
        return compute_perplexity(
            listed,
            objective=NextToken(),
            model=model,
            rows=len(rows),
            bytes_of_text=size,
            signature=describe_counting(start, model=model),
        )

    def score(self, answers: Sequence[Continuation], rows: Sequence[DocumentRow]) -> Scores:
        raise CannotDo("what a model writes on has no one right answer; `evaluate` asks how likely it finds the texts")

    def baselines(self, rows: Sequence[DocumentRow], *, train: Sequence[DocumentRow]) -> Mapping[str, Scores]:
        return {"xz": score_compression([row.text for row in rows], before=[row.text for row in train])}


def search_beams(
    questions: Sequence[api.Prompt], *, model: Model, settings: Mapping[str, Any]
) -> Iterator[Continuation]:
    """By beam search, which has no log-probability per token."""
    for some in split_chunks(questions):
        for prompt, found in zip(some, api.complete(model, some, **settings), strict=True):
            unknown = model.require_tokenizer().count_unknown(api.encode_prompt(model, prompt))
            yield Continuation(text=found.text, finish=found.finish, logprob=found.logprob, unknown=unknown)


# --- examples -------------------------------------------------------------------------------------------------------


def name_text(text: int) -> str:
    return f"text {text}"


def make_stream_examples(
    ids: Ids, bounds: Bounds, *, model: Model, where: Callable[[int], str] = name_text
) -> Examples[Any]:
    """Text i is ids[bounds[i] : bounds[i + 1]], its end included, and stands in where(i)."""
    context, texts = model.spec.context, len(bounds) - 1
    if len(ids) < 2:
        raise InputError("there is no text to learn from")
    if len(ids) <= texts * context:
        return SeparateTexts(ids, bounds, length=context, before=model.require_tokenizer().eos, where=where)
    return TokenWindows(ids, length=min(context, len(ids) - 1), fingerprint=compute_digest(ids))


class SeparateTexts(Examples[TokenExample]):
    """Texts that each stand alone, long ones in pieces. Every other time a text follows the end of another, so that a
    model learns both to begin one and to go on from a prompt that has nothing before it. Not so a piece that goes on,
    which follows no end, nor one that leaves no room for it."""

    def __init__(
        self, ids: Ids, bounds: Bounds, *, length: int, before: int | None, where: Callable[[int], str] = name_text
    ) -> None:
        self._ids, self._before, self._where = ids, [] if before is None else [before], where
        counts = np.maximum(1, -(-(np.diff(bounds) - 1) // length))  # pieces of each text, as `pieces` cuts them
        owners = np.repeat(np.arange(len(counts)), counts)
        first = np.cumsum(counts) - counts
        self._begins = bounds[owners] + length * (np.arange(len(owners)) - first[owners])
        self._lengths = np.minimum(length + 1, bounds[owners + 1] - self._begins)
        self._owners = owners
        self._may_follow = (self._begins == bounds[owners]) & (self._lengths <= length)
        self._fingerprint = digest(self._before, compute_digest(bounds), compute_digest(ids), length)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self._lengths

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def at(self, place: ExamplePlace) -> TokenExample:
        text = self._piece(place.row)
        alone = not self._may_follow[place.row] or place.uniform(1)[0] < 0.5
        return TokenExample(text if alone else np.concatenate([np.array(self._before, dtype=text.dtype), text]))

    def where(self, place: ExamplePlace) -> str:
        return self._where(int(self._owners[place.row]))

    def _piece(self, row: int) -> npt.NDArray[np.integer]:
        return self._ids[self._begins[row] : self._begins[row] + self._lengths[row]]


def compute_digest(ids: Ids) -> str:
    """digest(ids.tolist()), without the list"""
    content = hashlib.sha256(b"[[")
    for begin in range(0, len(ids), HASHED_TOKENS):
        content.update(b"," * (begin > 0) + msgspec.json.encode(ids[begin : begin + HASHED_TOKENS].tolist())[1:-1])
    content.update(b"]]")
    return content.hexdigest()


def encode_texts(rows: Sequence[DocumentRow], *, model: Model) -> list[npt.NDArray[np.int64]]:
    """The tokens of each text; pieces of a long text that go on are one again."""
    texts: list[npt.NDArray[np.int64]] = []
    held: list[int] = []
    for row, ids in zip(
        rows, model.require_tokenizer().ids_many([row.text for row in rows], special=False), strict=True
    ):
        held += ids
        if not row.goes_on:
            texts.append(np.array(held, dtype=np.int64))
            held = []
    return [*texts, np.array(held, dtype=np.int64)] if held else texts


def encode_with_end(rows: Sequence[DocumentRow], *, model: Model) -> list[npt.NDArray[np.int64]]:
    """The tokens of each text with its end."""
    end = [] if model.require_tokenizer().eos is None else [model.require_tokenizer().eos]
    return [np.concatenate([text, np.array(end, dtype=np.int64)]) for text in encode_texts(rows, model=model)]


def describe_counting(start: Sequence[int], *, model: Model) -> str:
    """Which tokens a perplexity is of, in the words that papers use."""
    context = model.spec.context
    names = "".join(model.require_tokenizer().token_of(id) or str(id) for id in start)
    behind = f"behind {names}" if start else "without a start token (the first of each text is not predicted)"
    return f"each text's own tokens, {behind}, no end token; windows of {context}, stride {context - context // 2}"


def count_first_token_bytes(rows: Sequence[DocumentRow], *, model: Model) -> int:
    """Of each text, those of its first token: where nothing stands before it, it is read and not predicted."""
    begins = [
        row.text for row, before in zip(rows, [None, *rows], strict=False) if before is None or not before.goes_on
    ]
    firsts = (model.require_tokenizer().encode(text, special=False).offsets[:1] for text in begins)
    return sum(len(text[: ends[0][1]].encode()) for text, ends in zip(begins, firsts, strict=True) if ends)


def split_windows(text: npt.NDArray[np.integer], length: int, *, overlap: int) -> Iterator[npt.NDArray[np.integer]]:
    """At most length + 1 tokens each: the last is only predicted, and is the first of the next."""
    step = length - overlap
    for begin in range(0, max(1, len(text) - 1 - overlap), step):
        yield text[begin : begin + length + 1]
