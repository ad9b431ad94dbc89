"""Summarize: a document in a sentence or two, evaluated with ROUGE against its first sentence."""

import re
from collections.abc import Mapping, Sequence

from triform.data.rows import Pair
from triform.generate import api
from triform.metrics import Rouge, best_rouge
from triform.model import Model
from triform.tasks.task import CAT_AND_MOLE, Reply, Scores
from triform.tasks.task_specific_params import SUMMARIZATION, Prepared, prepare
from triform.tasks.text_to_text import PairTask, Prompt, TextToText

SIGNATURE = "F1, best reference, lines are sentences, no stemming"
SENTENCE = re.compile(r".+?[.!?](?=\s|$)", re.DOTALL)


class Summary(Reply, frozen=True):
    text: str

    def __str__(self) -> str:
        return self.text


class SummarizeTask(PairTask[Summary]):
    """Summarize texts in a sentence or two with MODEL, which was trained to.

    \b
    Examples:
      triform summarize models/scitldr --whole --file article.txt
      triform summarize models/scitldr --file papers.jsonl --column abstract
      triform summarize models/scitldr --file papers.txt --beams 4 --out short.txt
    """

    name = "summarize"
    answer_type = Summary
    example = {"text": CAT_AND_MOLE}  # noqa: RUF012

    class Options(TextToText.Options, frozen=True, kw_only=True): ...

    def prepare(self, model: Model, options: Options) -> Prepared:
        return prepare(model, SUMMARIZATION)

    def answer(self, question: str, prompt: Prompt, written: api.Answer, *, model: Model) -> Summary:
        return Summary(text=written.text.strip(), cut=prompt.cut, unknown=prompt.unknown)

    def score(self, answers: Sequence[Summary], rows: Sequence[Pair]) -> Scores:
        return judged([answer.text for answer in answers], rows)

    def baselines(self, rows: Sequence[Pair], *, train: Sequence[Pair]) -> Mapping[str, Scores]:
        return {"first sentence": judged([first_sentence(row.source) for row in rows], rows)}


def first_sentence(text: str) -> str:
    found = SENTENCE.match(text.strip())
    return found[0] if found else text.strip()


def judged(texts: Sequence[str], rows: Sequence[Pair]) -> Scores:
    """The mean over all rows, × 100; with several references each measure takes the best."""
    pairs = zip(texts, rows, strict=True)
    each = [best_rouge(text, references=(row.target, *row.others)) for text, row in pairs]
    means = Rouge(*(100 * sum(values) / len(each) for values in zip(*each, strict=True))) if each else Rouge(0, 0, 0)
    values = {"ROUGE-1": means.one, "ROUGE-2": means.two, "ROUGE-Lsum": means.lsum}
    return Scores(main="ROUGE-Lsum", values=values, rows=len(rows), signature=SIGNATURE)
