"""Translate: texts from one language into another, evaluated with sacreBLEU and chrF."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from triform.data.rows import PairRow
from triform.generate import api
from triform.inspect.token_labels import token_label
from triform.inspect.view import look
from triform.model import Model
from triform.tasks.languages import find_languages, set_configured_languages, set_languages
from triform.tasks.task import CannotDo, Reply, Scores
from triform.tasks.task_specific_params import PreparedModel, find_pair, prepare
from triform.tasks.text_to_text import PairTask, Prompt, TextToText, get_first_token
from triform.train.examples import Examples

if TYPE_CHECKING:
    from rich.console import RenderableType

SHADES = " ░▒▓█"


class Alignment(msgspec.Struct, frozen=True):
    """weights[t][s]: how much of its attention target token t had on source token s, the mean of all heads."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]

    def __rich__(self) -> "RenderableType":
        """One row per target token, one column per source token, darker where attention is higher."""
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


class Translation(Reply, frozen=True):
    """`score` is the mean log-probability of a token; `alignment` is None unless the option is set."""

    text: str
    score: float
    alignment: Alignment | None = None

    def __str__(self) -> str:
        return self.text


class TranslateTask(PairTask[Translation]):
    """Translate texts with MODEL, which was trained to translate.

    \b
    Examples:
      triform translate demo/translates "The cat sat on a mat." --alignment
      triform translate models/t5-small "The cat sat on a mat." --pair en-de
      triform translate models/nllb "The cat sat on a mat." --from-lang eng_Latn --to-lang deu_Latn
      triform translate models/en-de --file test.en --beams 5 --out test.out.de
      zcat corpus.en.gz | triform translate models/en-de > corpus.de
    """

    name = "translate"
    answer_type = Translation
    example = {"text": "The fat ginger cat sat on a mat."}  # noqa: RUF012

    class Options(TextToText.Options, frozen=True, kw_only=True):
        alignment: Annotated[
            bool, Meta(title="show alignment", description="Which words each word came from, by cross-attention.")
        ] = False
        pair: (
            Annotated[
                str,
                Meta(min_length=1, max_length=64, description="Of a model with several pairs (T5), which one: en-de."),
            ]
            | None
        ) = None
        from_lang: (
            Annotated[
                str,
                Meta(
                    min_length=1, max_length=64, title="from language",
                    description="Of a model with language tokens, the language of the texts: eng_Latn.",
                ),
            ]
            | None
        ) = None  # fmt: skip
        to_lang: (
            Annotated[
                str,
                Meta(
                    min_length=1, max_length=64, title="to language",
                    description="Of a model with language tokens, the language to translate into: deu_Latn.",
                ),
            ]
            | None
        ) = None  # fmt: skip

    def settle(self, questions: Sequence[str], *, model: Model, options: Options) -> Options:
        """`pair` and the languages are filled in: all texts of one call, or of one request, have the same."""
        if options.alignment and model.spec.form != "encoder-decoder":
            said = f"an alignment needs cross-attention, and this model is the form {model.spec.form!r}"
            raise CannotDo(said, field="alignment")
        pair = find_pair(questions, model=model, pair=options.pair)
        source, target = find_languages(questions, model=model, source=options.from_lang, target=options.to_lang)
        return msgspec.structs.replace(options, pair=pair or None, from_lang=source, to_lang=target)

    def prepare(self, model: Model, options: Options) -> PreparedModel:
        return set_languages(prepare(model, options.pair or ""), source=options.from_lang, target=options.to_lang)

    def examples(self, rows: Sequence[PairRow], *, model: Model) -> Examples[Any]:
        return super().examples(rows, model=set_configured_languages(model))

    def finish_model(self, rows: Sequence[PairRow], *, model: Model) -> Model:
        """The first token of a target stays its language."""
        forced = set_configured_languages(model).generation.forced_first
        finished = super().finish_model(rows, model=model)
        return finished.replace(generation=msgspec.structs.replace(finished.generation, forced_first=forced))

    def generate(self, questions: Sequence[str], *, model: Model, options: Options) -> Iterator[Translation]:
        ready = self.prepare(model, options)
        answers = super().generate(questions, model=model, options=options)
        for question, answer in zip(questions, answers, strict=True):
            yield (
                add_alignment(ready.add_prefix(question), answer, model=ready.model)
                if options.alignment and answer.text
                else answer
            )

    def render(self, answer: Translation, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        return [answer.text] if answer.alignment is None else [answer.text, answer.alignment]

    def answer(self, question: str, prompt: Prompt, written: api.GeneratedText, *, model: Model) -> Translation:
        return Translation(
            text=written.text.strip(),
            score=written.logprob / max(1, len(written.tokens)),
            cut=prompt.cut,
            unknown=prompt.unknown,
        )

    def score(self, answers: Sequence[Translation], rows: Sequence[PairRow]) -> Scores:
        return score_translations([answer.text for answer in answers], rows)

    def baselines(self, rows: Sequence[PairRow], *, train: Sequence[PairRow]) -> Mapping[str, Scores]:
        return {"source as it is": score_translations([row.source for row in rows], rows)}


def add_alignment(question: str, answer: Translation, *, model: Model) -> Translation:
    """Read once more with taps: the weights are recomputed from what entered the kernels of cross-attention."""
    tokenizer = model.require_tokenizer()
    source = tokenizer.encode(question).ids[: model.spec.context]
    target = tokenizer.target.encode(answer.text).ids[: model.spec.context]
    view = look(model, source, (get_first_token(model), *target)[: model.spec.context], keep="decoder.blocks.*.cross*")
    layers = range(model.spec.stacks["decoder"].layers)
    mean = sum(view.attention(layer, kind="cross").values.mean(0) for layer in layers) / len(layers)
    kept = [at for at, id in enumerate(target) if id not in tokenizer.target.special_ids]
    alignment = Alignment(
        source=tuple(token_label(id, tokenizer, strip=True) for id in source),
        target=tuple(token_label(target[at], tokenizer.target, strip=True) for at in kept),
        weights=tuple(tuple(round(float(weight), 4) for weight in mean[at]) for at in kept),
    )
    return msgspec.structs.replace(answer, alignment=alignment)


def score_translations(texts: Sequence[str], rows: Sequence[PairRow]) -> Scores:
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
