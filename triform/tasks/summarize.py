"""Summarize: a document in a sentence or two, evaluated with ROUGE against its first sentence."""

import re
from collections.abc import Mapping, Sequence

from triform.data.rows import PairRow
from triform.generate import api
from triform.metrics import RougeScore, score_best_rouge
from triform.model import Model
from triform.tasks.task import CAT_AND_MOLE, Reply, Scores
from triform.tasks.task_specific_params import SUMMARIZATION, PreparedModel, prepare
from triform.tasks.text_to_text import PairTask, Prompt, TextToText

SIGNATURE = "F1, best reference, lines are sentences, no stemming"
FIRST_SENTENCE = re.compile(r".+?[.!?](?=\s|$)", re.DOTALL)


class Summary(Reply, frozen=True):
    """A summary of a text."""

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

    def prepare(self, model: Model, options: Options) -> PreparedModel:
        return prepare(model, SUMMARIZATION)

    def answer(self, question: str, prompt: Prompt, written: api.GeneratedText, *, model: Model) -> Summary:
        return Summary(text=written.text.strip(), cut=prompt.cut, unknown=prompt.unknown)

    def score(self, answers: Sequence[Summary], rows: Sequence[PairRow]) -> Scores:
        return score_summaries([answer.text for answer in answers], rows)

    def baselines(self, rows: Sequence[PairRow], *, train: Sequence[PairRow]) -> Mapping[str, Scores]:
        return {"first sentence": score_summaries([get_first_sentence(row.source) for row in rows], rows)}


def get_first_sentence(text: str) -> str:
    found = FIRST_SENTENCE.match(text.strip())
    return found[0] if found else text.strip()


def score_summaries(texts: Sequence[str], rows: Sequence[PairRow]) -> Scores:
    """The mean over all rows, × 100; with several references each measure takes the best."""
    pairs = zip(texts, rows, strict=True)
    each = [score_best_rouge(text, references=(row.target, *row.others)) for text, row in pairs]
    means = (
        RougeScore(*(100 * sum(values) / len(each) for values in zip(*each, strict=True)))
        if each
        else RougeScore(0, 0, 0)
    )
    values = {"ROUGE-1": means.one, "ROUGE-2": means.two, "ROUGE-Lsum": means.lsum}
    return Scores(main="ROUGE-Lsum", values=values, rows=len(rows), signature=SIGNATURE)
