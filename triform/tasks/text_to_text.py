"""Text in, text out: what translate, summarize and generated answers have in common; and the options of generation.

A task says what the model reads (`prompt`) and what it should generate (`target`). An encoder–decoder reads the prompt
as its source and is trained on the target by teacher forcing; a decoder reads prompt, separator and target as one text
and is trained on the target alone. Refuses to know metrics and what an answer holds beside its text.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict

import msgspec
import numpy as np
from msgspec import Meta

from triform.cluster.shared_evaluation import map_values
from triform.costs.predict import cache_bytes, source_bytes
from triform.data.chunks import split_chunks
from triform.data.rows import PairRow
from triform.errors import InputError
from triform.generate import api
from triform.generate.settings import Settings
from triform.model import Model
from triform.spec import Form, ModelSpec, Own, Tied, Transformed
from triform.tasks.options import TaskOptions, UnknownOption
from triform.tasks.task import A, CannotDo, Q, R, Task
from triform.tasks.task_specific_params import PreparedModel
from triform.text.tokenizer import Tokenizer
from triform.train.examples import ExampleList, Examples, SourceTarget, TokenExample
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken, SequenceToSequence

SEPARATOR = "\n=>"  # between what a decoder reads and what it writes, unless its tokenizer has a token for it
SORTED_QUESTIONS = 512  # sorted by length at a time
MAX_PARALLEL_ANSWERS = 64
MAX_CACHE_BYTES = 2**30  # keys and values that parallel answers hold, about


class Prompt(NamedTuple):
    """What goes in; `cut` tokens did not fit, `unknown` could not be spelled."""

    ids: tuple[int, ...]
    cut: int
    unknown: int


class GenerationSettings(TypedDict, total=False):
    """Settings of `generate.settings.Settings` that only Python offers, beside those that options name."""

    min_tokens: int
    max_length: int
    min_length: int
    min_p: float
    typical: float
    epsilon: float
    eta: float
    repetition_penalty: float
    source_penalty: float
    presence_penalty: float
    frequency_penalty: float
    no_repeat_ngram: int
    no_source_ngram: int
    logit_bias: Mapping[int, float]
    sequence_bias: Mapping[tuple[int, ...], float]
    banned: Sequence[int]
    banned_first: Sequence[int]
    banned_sequences: Sequence[tuple[int, ...]]
    forced: Mapping[int, int | tuple[int, ...]]
    forced_bos: int
    length_decay: tuple[int, float]
    renormalize: bool
    stop_ids: Sequence[int]
    eos: Sequence[int]
    ignore_eos: bool
    length_penalty: float
    early_stopping: bool | str


class SamplingSettings(GenerationSettings, total=False):
    """The same, with those that `complete` and `chat` name as options."""

    temperature: float
    top_p: float
    top_k: int
    stop: str | Sequence[str]
    seed: int
    logprobs: int
    lookup: bool
    n: int


MaxTokens = Annotated[
    int,
    Meta(ge=1, lt=2**31, title="max tokens", description="The most tokens to generate; default: the model's own."),
]
Beams = Annotated[
    int, Meta(ge=1, lt=2**31, title="beams", description="Beam search of this width; default: the model's own.")
]
Rest = Annotated[dict[str, Any], Meta(extra={"only": "python"})]
SEARCH_SETTINGS = ("length_penalty", "early_stopping")  # of a beam search


class GeneratingOptions(TaskOptions, frozen=True, kw_only=True):
    """Options of a task that generates text: those it names, and in Python every other setting of generation."""

    max_tokens: MaxTokens | None = None
    generation: Rest = {}  # noqa: RUF012

    def settings(self) -> dict[str, Any]:
        """Those that were chosen, by the names that `generate` has for them."""
        names = (*Settings.__struct_fields__, "beams")
        chosen = {name: getattr(self, name) for name in self.__struct_fields__ if name in names}
        return {name: value for name, value in chosen.items() if value not in (None, ())} | self.generation


class GeneratingTask(Task[R, Q, A]):
    """A task whose answers are generated, token by token."""

    class Options(GeneratingOptions, frozen=True, kw_only=True): ...

    def options(self, **chosen: Any) -> Any:
        """`Options`, with all other settings of generation in `generation`."""
        own = {field.name for field in self.fields} - {"generation"}
        known = {*own, *Settings.__struct_fields__, *SEARCH_SETTINGS}
        for name in chosen:
            if name not in known:
                raise UnknownOption(self.name, name, known)
        given = {name: value for name, value in chosen.items() if value is not None}
        if isinstance(given.get("stop"), str):
            given["stop"] = (given["stop"],)
        named = {field.name: field.check(given.pop(field.name)) for field in self.fields if field.name in given}
        return self.Options(**named, generation=given)


class TextToText(GeneratingTask[R, Q, A]):
    """R → prompt → target; `question`, `prompt`, `target`, `answer` and `score` are what a task adds."""

    forms: ClassVar[tuple[Form, ...]] = ("encoder-decoder", "decoder")
    cuts = True
    needs = "a language-model head trained for it"
    max_tokens = 256

    class Options(GeneratingOptions, frozen=True, kw_only=True):
        beams: Beams | None = None

    @abstractmethod
    def prompt(self, question: Q) -> str:
        """What the model reads."""

    @abstractmethod
    def target(self, row: R) -> str:
        """What it should generate."""

    @abstractmethod
    def answer(self, question: Q, prompt: Prompt, written: api.GeneratedText, *, model: Model) -> A: ...

    # --- made for it, trained ---------------------------------------------------------------------------------------

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        if base.decoder is None or not isinstance(base.head, Tied | Own | Transformed):
            raise CannotDo(
                f"{self.name} needs a model that generates text, not the form {base.form!r} with the head "
                f"{type(base.head).__name__}; use one of {', '.join(self.forms)}"
            )
        return base

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        if fresh:
            return Config(
                epochs=30, batch_tokens=2048, optimizer="muon", learning_rate=0.005, schedule="linear", beta2=0.98,
                weight_decay=0.01, label_smoothing=0.1, dropout=0.1, ema=0.998, eval_every=1000,
            )  # fmt: skip
        return Config(epochs=3, batch_tokens=2048, learning_rate=1e-4, warmup=0.1, weight_decay=0.01, eval_every=250)

    def examples(self, rows: Sequence[R], *, model: Model) -> Examples[Any]:
        """A target may take half of the context; a prompt that is too long is cut as when it is run."""
        tokenizer, two = model.require_tokenizer(), model.spec.form == "encoder-decoder"
        listed: list[Any] = []
        for row in rows:
            goal = encode_target(self.target(row), tokenizer, most=get_max_answer_tokens(model.spec), spaced=not two)
            shown = encode_prompt(self.prompt(self.question(row)), model, reserved_tokens=len(goal)).ids
            if two:
                listed.append(SourceTarget(np.array(shown, np.int32), np.array(goal, np.int32)))
            else:
                whole = np.array((*shown, *goal), np.int32)
                listed.append(TokenExample(whole, np.arange(len(whole)) >= len(shown)))
        lengths = [max(len(x.source), len(x.target)) if two else len(x.ids) for x in listed]
        return ExampleList(listed, lengths=lengths)

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        if model.spec.form == "encoder-decoder":
            return SequenceToSequence(start=get_first_token(model), smoothing=config.label_smoothing)
        return NextToken(smoothing=config.label_smoothing)

    def finish_model(self, rows: Sequence[R], *, model: Model) -> Model:
        """The generation defaults know how a target begins and ends."""
        if model.spec.form != "encoder-decoder" or model.generation.first is not None:
            return model
        known = msgspec.structs.replace(
            model.generation, first=get_first_token(model), eos=model.require_tokenizer().target.eos
        )
        return model.replace(generation=known)

    # --- run --------------------------------------------------------------------------------------------------------

    def settle(self, questions: Sequence[Q], *, model: Model, options: Any) -> Any:
        """The options for these questions on this model: checked, and with what depends on all of them filled in."""
        return options

    def prepare(self, model: Model, options: Any) -> PreparedModel:
        """The model with what its folder says of this task."""
        return PreparedModel(model)

    def split(self, question: Q, *, model: Model) -> list[Q]:
        """The parts that are answered one by one, where a question is too long to be read at once."""
        return [question]

    def join(self, question: Q, answers: Sequence[A], *, model: Model) -> A:
        """One answer from those to the parts of a question."""
        return answers[0]

    def answer_tokens(self, model: Model) -> int:
        """The most tokens of an answer: as the folder says, else as the task does."""
        said = model.generation
        length = said.longest - 1 if said.longest and model.spec.form == "encoder-decoder" else None
        return max(1, min(said.most_new or length or self.max_tokens, get_max_answer_tokens(model.spec)))

    def run(self, questions: Sequence[Q], *, model: Model, options: Any = None) -> Iterator[A]:
        """Those of similar length are generated together; answers come in the order of the questions."""
        self.check(model)
        options = self.settle(questions, model=model, options=options or self.Options())
        for some in split_chunks(questions, count=SORTED_QUESTIONS):
            parts = [self.split(question, model=model) for question in some]
            answers = self.generate([part for each in parts for part in each], model=model, options=options)
            for question, each in zip(some, parts, strict=True):
                yield self.join(question, [next(answers) for _ in each], model=model)

    def generate(self, questions: Sequence[Q], *, model: Model, options: Any) -> Iterator[A]:
        """The answers to questions that can each be read at once."""
        ready = self.prepare(model, options)
        model = ready.model
        most, asked = get_max_answer_tokens(model.spec), {"max_tokens": self.answer_tokens(model)} | options.settings()
        beams = api.resolve_beam_settings(model, asked, beams=asked.get("beams")).width
        for some in split_chunks(questions, count=SORTED_QUESTIONS):
            texts = [ready.add_prefix(self.prompt(one)) for one in some]
            prompts = [encode_prompt(text, model, reserved_tokens=min(most, asked["max_tokens"])) for text in texts]
            order = sorted(range(len(some)), key=lambda at: len(prompts[at].ids))
            ids = [prompts[at].ids for at in order]
            rows = max_parallel_answers(
                model.spec, prompt_tokens=len(ids[-1]), new_tokens=asked["max_tokens"], beams=beams
            )
            complete = partial(complete_best, model=model, rows=rows, asked=asked)
            best = dict(zip(order, map_values(complete, ids, type=api.GeneratedText | None), strict=True))
            for at, one in enumerate(some):
                text = best[at]
                if text is None:
                    raise InputError("nothing can be generated under these settings: every token is forbidden")
                if text.finish == "error":
                    raise InputError(f"generation failed: {text.error}")
                yield self.answer(one, prompts[at], text, model=model)


def complete_best(
    prompts: Sequence[api.Prompt], *, model: Model, rows: int, asked: Mapping[str, Any]
) -> list[api.GeneratedText | None]:
    """The best text for each prompt; None: there is none."""
    written = api.complete(model, list(prompts), start=get_first_token(model), rows=rows, **asked)
    best = {one.prompt: one for one in reversed(written)}
    return [best.get(at) for at in range(len(prompts))]


class PairTask(TextToText[PairRow, str, A]):
    """A row's source is the prompt, its target the answer."""

    kind = PairRow

    def question(self, row: PairRow) -> str:
        return row.source

    def prompt(self, question: str) -> str:
        return question

    def target(self, row: PairRow) -> str:
        return row.target


# --- tokens ---------------------------------------------------------------------------------------------------------


def get_first_token(model: Model) -> int:
    """The token that an encoder–decoder's target begins with: what its folder says, else its filling or its end."""
    target = model.require_tokenizer().target
    known = (model.generation.first, target.bos, target.pad, target.eos)
    return next((id for id in known if id is not None), 0)


def get_max_answer_tokens(spec: ModelSpec) -> int:
    """Tokens of a target: the whole context where it has a side of its own, else half."""
    return spec.context if spec.form == "encoder-decoder" else max(1, spec.context // 2)


def max_parallel_answers(spec: ModelSpec, *, prompt_tokens: int, new_tokens: int, beams: int = 1) -> int:
    """How many answers are generated side by side: as many as have a cache of about MAX_CACHE_BYTES, of their own
    tokens and of the prompt; beams share a source."""
    context = spec.context
    two = spec.form == "encoder-decoder"
    target = min(new_tokens if two else new_tokens + prompt_tokens, context)
    each = beams * cache_bytes(spec, target) + source_bytes(spec, prompt_tokens)
    return max(1, min(MAX_PARALLEL_ANSWERS, MAX_CACHE_BYTES // max(1, each)))


def encode_prompt(text: str, model: Model, *, reserved_tokens: int) -> Prompt:
    """The prompt as the model reads it, cut at its end if too long; `reserved_tokens` remain for the answer."""
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    tokenizer = model.require_tokenizer()
    ids = tuple(tokenizer.ids_many([text])[0])
    if model.spec.form == "encoder-decoder":
        tail = get_tail(ids, tokenizer)
        most = model.spec.context
    else:
        tail = (tokenizer.sep,) if tokenizer.sep is not None else tokenizer.encode(SEPARATOR, special=False).ids
        most = model.spec.context - reserved_tokens
    body = drop_end(ids[: len(ids) - len(tail)] if model.spec.form == "encoder-decoder" else ids, tokenizer)
    kept = body[: max(1, most - len(tail))]
    return Prompt((*kept, *tail), len(body) - len(kept), tokenizer.count_unknown(body))


def get_tail(ids: tuple[int, ...], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The end token, and the language token that stands behind it in some models: what a cut text keeps."""
    languages = [tokenizer.id_of(token) for token in tokenizer.languages.tokens.values()]
    length = 2 if len(ids) > 1 and ids[-1] in languages else 1
    return ids[-length:] if tokenizer.eos is not None and ids[-length] == tokenizer.eos else ()


def encode_target(text: str, tokenizer: Tokenizer, *, most: int, spaced: bool) -> tuple[int, ...]:
    """The target with its end token; behind a separator it begins with a space, as words in a text do."""
    writer = tokenizer.target
    body = drop_end(writer.encode(f" {text}" if spaced else text, special=not spaced).ids, writer)
    end = () if writer.eos is None else (writer.eos,)
    return (*body[: most - len(end)], *end)


def drop_end(ids: tuple[int, ...], tokenizer: Tokenizer) -> tuple[int, ...]:
    return ids[:-1] if tokenizer.eos is not None and ids[-1:] == (tokenizer.eos,) else ids
