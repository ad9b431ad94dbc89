"""Text in, text out: what translating, summarising and answering in words have in common.

A task says what the model is shown (`prompt`) and what it should write (`target`). An encoder–decoder reads the prompt
as its source and learns the target by teacher forcing; a decoder reads prompt, separator and target as one text and
learns the target alone. Refuses to know metrics and what an answer holds beside its text.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from triform.costs.predict import cache_bytes_per_position
from triform.data.chunks import portions
from triform.data.rows import Pair
from triform.errors import InputError
from triform.generate import api
from triform.model import Model
from triform.spec import Form, ModelSpec, Own, Tied, Transformed
from triform.tasks.task import A, CannotDo, Q, R, Task
from triform.tasks.task_specific_params import Prepared
from triform.text.tokenizer import Tokenizer
from triform.train.examples import Examples, Listed, SourceTarget, Tokens
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken, Translate

SEPARATOR = "\n=>"  # between what a decoder reads and what it writes, unless its tokenizer has a token for it
TOGETHER = 512  # questions sorted by length at a time
ROWS = 64  # answers written side by side, at most
REMEMBERED = 2**30  # bytes of keys and values that they hold then, about


class Prompt(NamedTuple):
    """What goes in; `cut` tokens did not fit, `unknown` could not be spelled."""

    ids: tuple[int, ...]
    cut: int
    unknown: int


class Writing(Task[R, Q, A]):
    """R → prompt → target; `question`, `prompt`, `target`, `answer` and `score` are what a task adds."""

    forms: ClassVar[tuple[Form, ...]] = ("encoder-decoder", "decoder")
    cuts = True
    max_tokens = 256

    @abstractmethod
    def prompt(self, question: Q) -> str:
        """What the model is shown."""

    @abstractmethod
    def target(self, row: R) -> str:
        """What it should write."""

    @abstractmethod
    def answer(self, question: Q, prompt: Prompt, written: api.Answer, *, model: Model) -> A: ...

    # --- made for it, trained ---------------------------------------------------------------------------------------

    def can(self, spec: ModelSpec) -> bool:
        return spec.form in self.forms and isinstance(spec.head, Tied | Own | Transformed)

    def fits(self, model: Model) -> bool:
        """A decoder goes on from any text; only one that was trained on this task answers."""
        return self.can(model.spec) and (model.spec.form != "decoder" or model.memo.get("task") == self.name)

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        if not self.can(base):
            raise CannotDo(
                f"{self.name} needs a model that writes, not the form {base.form!r} with the head "
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
        """A target may take half of the context; what a prompt has too much is cut as when it is run."""
        tokenizer, two = model.require_tokenizer(), model.spec.form == "encoder-decoder"
        listed: list[Any] = []
        for row in rows:
            goal = target_ids(self.target(row), tokenizer, most=most_written(model.spec), spaced=not two)
            shown = prompt_ids(self.prompt(self.question(row)), model, room=len(goal)).ids
            if two:
                listed.append(SourceTarget(np.array(shown, np.int32), np.array(goal, np.int32)))
            else:
                whole = np.array((*shown, *goal), np.int32)
                listed.append(Tokens(whole, np.arange(len(whole)) >= len(shown)))
        lengths = [max(len(x.source), len(x.target)) if two else len(x.ids) for x in listed]
        return Listed(listed, lengths=lengths)

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        if model.spec.form == "encoder-decoder":
            return Translate(start=first_of(model), smoothing=config.label_smoothing)
        return NextToken(smoothing=config.label_smoothing)

    def finished(self, rows: Sequence[R], *, model: Model) -> Model:
        """What every other room needs to let it write: how a target begins and ends."""
        if model.spec.form != "encoder-decoder" or model.generation.first is not None:
            return model
        known = msgspec.structs.replace(
            model.generation, first=first_of(model), eos=model.require_tokenizer().target.eos
        )
        return model.replace(generation=known)

    # --- run --------------------------------------------------------------------------------------------------------

    def prepare(self, questions: Sequence[Q], *, model: Model, asked: dict[str, Any]) -> Prepared:
        """The model with what its folder says of this task; takes out of `asked` what is no setting of generation."""
        return Prepared(model)

    def answer_tokens(self, model: Model) -> int:
        """The most tokens of an answer: as the folder says, else as the task does."""
        said = model.generation
        length = said.longest - 1 if said.longest and model.spec.form == "encoder-decoder" else None
        return max(1, min(said.most_new or length or self.max_tokens, most_written(model.spec)))

    def run(self, questions: Sequence[Q], *, model: Model, **settings: Any) -> Iterator[A]:
        """Those of similar length are written together; they come back in their order."""
        self.check(model)
        given = {name: value for name, value in settings.items() if value is not None}
        ready = self.prepare(questions, model=model, asked=given)
        model = ready.model
        most, asked = most_written(model.spec), {"max_tokens": self.answer_tokens(model)} | given
        beams = api.plan_of(model, asked, beams=asked.get("beams")).width
        for some in portions(questions, count=TOGETHER):
            texts = [ready.shown(self.prompt(one)) for one in some]
            prompts = [prompt_ids(text, model, room=min(most, asked["max_tokens"])) for text in texts]
            order = sorted(range(len(some)), key=lambda at: len(prompts[at].ids))
            ids = [prompts[at].ids for at in order]
            rows = abreast(model.spec, read=len(ids[-1]), written=asked["max_tokens"], beams=beams)
            written = api.complete(model, ids, start=first_of(model), rows=rows, **asked)
            best = {order[one.prompt]: one for one in reversed(written)}
            for at, one in enumerate(some):
                if at not in best:
                    raise InputError("nothing can be written under these settings: every token is forbidden")
                if best[at].finish == "error":
                    raise InputError(f"the model failed while writing: {best[at].error}")
                yield self.answer(one, prompts[at], best[at], model=model)


class WritingPairs(Writing[Pair, str, A]):
    """A row's source is shown, its target is written."""

    kind = Pair

    def question(self, row: Pair) -> str:
        return row.source

    def prompt(self, question: str) -> str:
        return question

    def target(self, row: Pair) -> str:
        return row.target


# --- tokens ---------------------------------------------------------------------------------------------------------


def first_of(model: Model) -> int:
    """The token that an encoder–decoder's target begins with: what its folder says, else its filling or its end."""
    target = model.require_tokenizer().target
    known = (model.generation.first, target.bos, target.pad, target.eos)
    return next((id for id in known if id is not None), 0)


def most_written(spec: ModelSpec) -> int:
    """Tokens of a target: the whole context where it has a side of its own, else half."""
    return spec.context if spec.form == "encoder-decoder" else max(1, spec.context // 2)


def abreast(spec: ModelSpec, *, read: int, written: int, beams: int = 1) -> int:
    """How many answers are written side by side: as many as hold about REMEMBERED bytes, 2 · L · G · K numbers a
    position, of their past and of what was read; beams share a source, and each has a past of its own."""
    context = spec.context
    two = spec.form == "encoder-decoder"
    positions = beams * min(written, context) + read if two else beams * min(written + read, context)
    return max(1, min(ROWS, REMEMBERED // max(1, cache_bytes_per_position(spec) * positions)))


def prompt_ids(text: str, model: Model, *, room: int) -> Prompt:
    """The prompt as the model reads it, cut from behind where it is too long; `room` is kept for what is written."""
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    tokenizer = model.require_tokenizer()
    ids = tuple(tokenizer.ids_many([text])[0])
    if model.spec.form == "encoder-decoder":
        tail: tuple[int, ...] = ids[-1:] if ids[-1:] == (tokenizer.eos,) else ()
        most = model.spec.context
    else:
        tail = (tokenizer.sep,) if tokenizer.sep is not None else tokenizer.encode(SEPARATOR, special=False).ids
        most = model.spec.context - room
    body = without_end(ids, tokenizer)
    kept = body[: max(1, most - len(tail))]
    return Prompt((*kept, *tail), len(body) - len(kept), tokenizer.count_unknown(body))


def target_ids(text: str, tokenizer: Tokenizer, *, most: int, spaced: bool) -> tuple[int, ...]:
    """What is to be written, with its end; behind a separator it begins with a space, as words in a text do."""
    writer = tokenizer.target
    body = without_end(writer.encode(f" {text}" if spaced else text, special=not spaced).ids, writer)
    end = () if writer.eos is None else (writer.eos,)
    return (*body[: most - len(end)], *end)


def without_end(ids: tuple[int, ...], tokenizer: Tokenizer) -> tuple[int, ...]:
    return ids[:-1] if tokenizer.eos is not None and ids[-1:] == (tokenizer.eos,) else ids
