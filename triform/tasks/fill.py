"""Fill: the words that a masked language model predicts where a text has a mask."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from triform.core.texts import Text
from triform.data import rows as data
from triform.data.chunks import split_chunks
from triform.errors import InputError
from triform.generate.settings import SettingsError
from triform.model import Model
from triform.precision import check_scores
from triform.spec import Form, ModelSpec, NormSpec, Transformed, replace
from triform.tasks.bag_of_words import split_words
from triform.tasks.encoder_batches import Reader, run_batches
from triform.tasks.options import TaskOptions
from triform.tasks.task import CannotDo, Reply, Scores, Task
from triform.text.tokenizer import Encoding, Tokenizer
from triform.train.examples import ExampleList, Examples, TokenExample
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.token_objectives import MaskedToken

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_EVALUATED_TOKENS = 64  # of a text, evenly spread
MAX_BATCH_TEXTS = 64  # whose vectors are held at once


class Candidate(msgspec.Struct, frozen=True):
    """A token for a mask, and its probability there."""

    token: int
    text: str
    probability: float


class FilledText(Reply, frozen=True):
    """The likeliest tokens of each mask, and the text with the first of each put in."""

    text: str
    masks: tuple[tuple[Candidate, ...], ...]

    def __str__(self) -> str:
        return self.text


class Guess(msgspec.Struct, frozen=True):
    """What a model says of one place: whether the right token is its first, and the log of its probability."""

    right: bool
    logprob: float


class FillTask(Task[data.TextRow, str, FilledText]):
    """Predict the masked words of TEXT with MODEL, a masked language model.

    \b
    Examples:
      triform fill models/bert "The [MASK] sat on the mat."
      echo "Paris is the [MASK] of France." | triform fill models/bert --json
    """

    name = "fill"
    forms = ("encoder",)
    kind = data.TextRow
    needs = "a masked-language-model head"
    answer_type = FilledText
    example = {"text": "the fat ginger cat [MASK] on a mat"}  # noqa: RUF012
    baselines_learn = True

    class Options(TaskOptions, frozen=True, kw_only=True):
        k: Annotated[
            int,
            Meta(
                ge=1,
                lt=2**31,
                title="words per mask",
                description="How many candidates per mask; default: 5 for one text, else the text with masks filled.",
                extra={"flags": ["-k", "--candidates"]},
            ),
        ] = 5

    def render(self, answer: FilledText, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        from rich.table import Table
        from rich.text import Text

        table = Table("mask", "candidates", title=Text(answer.text))
        for number, row in enumerate(answer.masks, start=1):
            table.add_row(str(number), Text("  ".join(f"{one.text} {one.probability:.1%}" for one in row)))
        return [table]

    def line(self, answer: FilledText, *, chosen: Collection[str] = ()) -> str:
        """The text with its masks filled; where `k` was chosen, the candidates of each mask."""
        if "k" not in chosen:
            return str(answer)
        return " | ".join(", ".join(f"{one.text} {one.probability:.1%}" for one in row) for row in answer.masks)

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        if base.encoder is None or base.form != "encoder":
            raise CannotDo(f"fill needs an encoder, not the form {base.form!r}")
        if isinstance(base.head, Transformed):
            return base
        norm: NormSpec = base.encoder.norm
        return replace(base, head=Transformed(act="gelu", norm=norm))

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        if fresh:
            return Config(epochs=40, batch_tokens=4096, learning_rate=1e-3, warmup=0.1, weight_decay=0.01, dropout=0.1)
        return Config(epochs=3, batch_tokens=4096, learning_rate=1e-4, warmup=0.1, weight_decay=0.01)

    def examples(self, rows: Sequence[data.TextRow], *, model: Model) -> Examples[Any]:
        """Long texts in windows that do not overlap."""
        encodings = require_mask_tokenizer(model).encode_many([row.text for row in rows])
        windows = [each for found in encodings for each in found.split_windows(length=model.spec.context, overlap=0)]
        listed = [TokenExample(each.ids, [not added for added in each.special]) for each in windows]
        return ExampleList(listed, lengths=[len(each.ids) for each in listed])

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        tokenizer = require_mask_tokenizer(model)
        never = sorted(tokenizer.special_ids)
        return MaskedToken(
            mask=get_mask_id(tokenizer), vocab=model.spec.vocab, never=never, smoothing=config.label_smoothing
        )

    def question(self, row: data.TextRow) -> str:
        return row.text

    def sample(self, row: data.TextRow, *, model: Model) -> str:
        """With its middle word masked."""
        words = row.text.split()
        words[len(words) // 2] = require_mask_tokenizer(model).special["mask"]
        return " ".join(words)

    def run(self, questions: Sequence[str], *, model: Model, options: Options | None = None) -> Iterator[FilledText]:
        """The k likeliest tokens for each mask, each mask on its own."""
        self.check(model)
        k, tokenizer = (options or self.Options()).k, require_mask_tokenizer(model)
        if not 1 <= k <= model.spec.vocab:
            raise SettingsError(f"k={k} is out of range; use 1 to {model.spec.vocab}")
        for some in split_chunks(questions, count=MAX_BATCH_TEXTS):
            asked = [encode_masked(text, tokenizer, most=model.spec.context) for text in some]
            for (encoding, places), logits in zip(asked, compute_logits_at(asked, model=model), strict=True):
                yield fill_masks(encoding, places, logits, tokenizer=tokenizer, k=k)

    def evaluate(self, rows: Sequence[data.TextRow], *, model: Model, options: Any = None) -> Scores:
        """Each token is masked in turn and predicted: how often it is first, and exp(mean −log p)."""
        tokenizer, guesses = require_mask_tokenizer(model), list[Guess]()
        for row in rows:
            for window in tokenizer.encode(row.text).split_windows(length=model.spec.context, overlap=0):
                guesses += guess_tokens(window, model=model)
        count = max(1, len(guesses))
        values = {
            "accuracy": 100 * sum(guess.right for guess in guesses) / count,
            "pseudo-perplexity": float(np.exp(min(700.0, -sum(guess.logprob for guess in guesses) / count))),
        }
        return Scores(
            main="accuracy",
            values=values,
            rows=len(rows),
            signature=f"at most {MAX_EVALUATED_TOKENS} places of a text, evenly spread",
        )

    def score(self, answers: Sequence[FilledText], rows: Sequence[data.TextRow]) -> Scores:
        raise CannotDo("rows of fill are whole texts; `evaluate` masks their words and predicts them")

    def baselines(self, rows: Sequence[data.TextRow], *, train: Sequence[data.TextRow]) -> Mapping[str, Scores]:
        """Whole words, and always the same one."""
        commonest = Counter(word for row in train for word in split_words(row.text)).most_common(1)[0][0]
        words = [word for row in rows for word in split_words(row.text)]
        accuracy = 100 * words.count(commonest) / max(1, len(words))
        return {"commonest word": Scores(main="accuracy", values={"accuracy": accuracy}, rows=len(rows))}


# --- tokens ---------------------------------------------------------------------------------------------------------


def require_mask_tokenizer(model: Model) -> Tokenizer:
    if model.tokenizer is None or model.tokenizer.mask is None:
        raise CannotDo("this model's folder has no tokenizer with a mask token, so there is nothing to fill")
    return model.tokenizer


def get_mask_id(tokenizer: Tokenizer) -> int:
    return 0 if tokenizer.mask is None else tokenizer.mask


def encode_masked(text: str, tokenizer: Tokenizer, *, most: int) -> tuple[Encoding, list[int]]:
    """The text's tokens, and where its masks are."""
    tokenizer.refuse_long(text, most=most)
    encoding = tokenizer.encode(text)
    places = [at for at, id in enumerate(encoding.ids) if id == tokenizer.mask]
    if not places:
        raise InputError(f"the text has no mask; write {tokenizer.special['mask']} where a word is missing")
    if len(encoding.ids) > most:
        raise InputError(f"the text has {len(encoding.ids)} tokens, the model reads {most}; shorten it")
    return encoding, places


@torch.inference_mode()
def compute_logits_at(asked: Sequence[tuple[Encoding, Sequence[int]]], *, model: Model) -> Iterator[Tensor]:
    """Logits at these places alone, [places, V] per text: a head over the vocabulary is expensive."""
    texts = [each for each, _ in asked]
    hidden = run_batches(
        [each.ids for each in texts], model=model, read=read_hidden, kinds=[each.segment_ids for each in texts]
    )
    for x, (_, places) in zip(hidden, asked, strict=True):
        logits = model.network.head(x[list(places)])
        check_scores(logits)
        yield logits


def read_hidden(network: Reader, text: Text) -> Tensor:
    return network.hidden(text)


def fill_masks(
    encoding: Encoding, places: Sequence[int], logits: Tensor, *, tokenizer: Tokenizer, k: int
) -> FilledText:
    """The text with its masks filled, and the candidates of each mask."""
    best, tokens = logits.double().softmax(dim=-1).topk(k, dim=-1)
    ids = list(encoding.ids)
    for at, id in zip(places, tokens[:, 0].tolist(), strict=True):
        ids[at] = id
    masks = tuple(
        tuple(Candidate(id, tokenizer.decode([id]), chance) for chance, id in zip(row, names, strict=True))
        for row, names in zip(best.tolist(), tokens.tolist(), strict=True)
    )
    return FilledText(text=tokenizer.decode(ids), masks=masks, unknown=tokenizer.count_unknown(encoding.ids))


def guess_tokens(window: Encoding, *, model: Model) -> list[Guess]:
    """One text per place, with that place masked."""
    real = [at for at, added in enumerate(window.special) if not added]
    most = min(len(real), MAX_EVALUATED_TOKENS)
    places = [real[at * len(real) // most] for at in range(most)]
    mask, found = get_mask_id(require_mask_tokenizer(model)), list[Guess]()
    asked = [
        (msgspec.structs.replace(window, ids=(*window.ids[:at], mask, *window.ids[at + 1 :])), [at]) for at in places
    ]
    for at, logits in zip(places, compute_logits_at(asked, model=model), strict=True):
        logprobs = logits[0].double().log_softmax(-1)
        found.append(Guess(int(logprobs.argmax()) == window.ids[at], float(logprobs[window.ids[at]])))
    return found
