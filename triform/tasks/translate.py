"""Translate: a sentence in one language, the same in another; judged by sacreBLEU and chrF."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from triform.data.rows import Pair
from triform.generate import api
from triform.inspect.token_labels import token_label
from triform.inspect.view import look
from triform.model import Model
from triform.tasks.task import CannotDo, Reply, Scores
from triform.tasks.task_specific_params import Prepared, pair_for, prepare
from triform.tasks.text_to_text import Prompt, WritingPairs, first_of

if TYPE_CHECKING:
    from rich.console import RenderableType

SHADES = " ░▒▓█"


class Alignment(msgspec.Struct, frozen=True):
    """weights[t][s]: how much of its attention target token t had on source token s, the mean of all heads."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]

    def __rich__(self) -> "RenderableType":
        """A row a target token, a column a source token, darker where it looked more; numbers name the columns."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 0, 0, 1))
        table.add_column("", justify="right")
        for number in range(len(self.source)):
            table.add_column(Text(str(number + 1)), justify="center", no_wrap=True)
        table.add_column("mostly from")
        for token, row in zip(self.target, self.weights, strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            cells = (Text(SHADES[min(4, int(weight * 5))] * 2) for weight in row)
            table.add_row(Text(token), *cells, Text(f"{best + 1} {self.source[best]} {row[best]:.0%}"))
        return table


class Translated(Reply, frozen=True):
    """`score` is the mean log-probability of a token; `alignment` is there where it was asked for."""

    text: str
    score: float
    alignment: Alignment | None = None

    def __str__(self) -> str:
        return self.text


class Translate(WritingPairs[Translated]):
    name = "translate"

    def run(
        self, questions: Sequence[str], *, model: Model, alignment: bool = False, **settings: Any
    ) -> Iterator[Translated]:
        if alignment and model.spec.form != "encoder-decoder":
            raise CannotDo(f"an alignment needs cross-attention, and this model is the form {model.spec.form!r}")
        ready = self.prepare(questions, model=model, asked=dict(settings))
        for question, answer in zip(questions, super().run(questions, model=model, **settings), strict=True):
            yield aligned(ready.shown(question), answer, model=model) if alignment and answer.text else answer

    def prepare(self, questions: Sequence[str], *, model: Model, asked: dict[str, Any]) -> Prepared:
        """`pair`: of a model that translates several pairs, which one ("en-de")."""
        return prepare(model, pair_for(questions, model=model, pair=asked.pop("pair", None)))

    def answer(self, question: str, prompt: Prompt, written: api.Answer, *, model: Model) -> Translated:
        return Translated(
            text=written.text.strip(),
            score=written.logprob / max(1, len(written.tokens)),
            cut=prompt.cut,
            unknown=prompt.unknown,
        )

    def score(self, answers: Sequence[Translated], rows: Sequence[Pair]) -> Scores:
        return judged([answer.text for answer in answers], rows)

    def baselines(self, rows: Sequence[Pair], *, train: Sequence[Pair]) -> Mapping[str, Scores]:
        return {"source as it is": judged([row.source for row in rows], rows)}


def aligned(question: str, answer: Translated, *, model: Model) -> Translated:
    """Read once more with taps: the weights are recomputed from what entered the kernels of cross-attention."""
    tokenizer = model.require_tokenizer()
    source = tokenizer.encode(question).ids[: model.spec.context]
    target = tokenizer.target.encode(answer.text).ids[: model.spec.context]
    view = look(model, source, (first_of(model), *target)[: model.spec.context], keep="decoder.blocks.*.cross*")
    layers = range(model.spec.stacks["decoder"].layers)
    mean = sum(view.attention(layer, kind="cross").values.mean(0) for layer in layers) / len(layers)
    kept = [at for at, id in enumerate(target) if id not in tokenizer.target.special_ids]
    alignment = Alignment(
        source=tuple(token_label(id, tokenizer, strip=True) for id in source),
        target=tuple(token_label(target[at], tokenizer.target, strip=True) for at in kept),
        weights=tuple(tuple(round(float(weight), 4) for weight in mean[at]) for at in kept),
    )
    return msgspec.structs.replace(answer, alignment=alignment)


def judged(texts: Sequence[str], rows: Sequence[Pair]) -> Scores:
    """BLEU and chrF as sacreBLEU counts them, with all references; exact: the share that is a reference."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    most = max((1 + len(row.others) for row in rows), default=1)
    known = [(row.target, *row.others) for row in rows]
    references: list[Any] = [[each[n] if n < len(each) else None for each in known] for n in range(most)]
    exact = sum(text in each for text, each in zip(texts, known, strict=True))
    bleu, chrf = BLEU(), CHRF()
    values = {
        "BLEU": bleu.corpus_score(list(texts), references).score,
        "chrF": chrf.corpus_score(list(texts), references).score,
        "exact": 100 * exact / max(1, len(rows)),
    }
    return Scores(main="BLEU", values=values, rows=len(rows), signature=str(bleu.get_signature()))
