"""Labels that a model was not trained on: whether a text entails "This is about sport.", by an NLI model or a decoder.

An NLI model reads text and hypothesis as two segments; a decoder chooses among the hypotheses, or says yes or no to
each.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from triform.data.chunks import split_chunks
from triform.errors import InputError
from triform.model import Model
from triform.spec import Classify as Head
from triform.tasks import generates_text
from triform.tasks.decide import DecideQuestion, DecideTask
from triform.tasks.task import CannotDo
from triform.tasks.text_pairs import read_pairs

HYPOTHESIS = "This is about {}."


def knows_entailment(labels: Sequence[str]) -> bool:
    """The labels of a model for natural-language inference."""
    return any(label.lower().startswith("entail") for label in labels)


def check_labels(labels: Sequence[str], hypothesis: str) -> None:
    """Two or more different labels, and a place for them."""
    if len(set(labels)) != len(labels) or len(labels) < 2:
        raise InputError(f"the labels {', '.join(labels)} are not two or more different ones", field="labels")
    if hypothesis.count("{}") != 1:
        raise InputError(f"the hypothesis {hypothesis[:80]!r} needs one {{}} where the label goes", field="hypothesis")


def label_texts(
    texts: Sequence[str], *, labels: Sequence[str], hypothesis: str, several: bool, model: Model
) -> Iterator[Tensor]:
    """The probability of each label, [labels]; with `several` each by itself, otherwise of one among them."""
    check_labels(labels, hypothesis)
    hypotheses = [hypothesis.replace("{}", label) for label in labels]
    if isinstance(model.spec.head, Head) and knows_entailment(model.labels):
        yield from _by_entailment(texts, hypotheses, several=several, model=model)
    elif model.spec.form == "decoder" and generates_text(model):
        yield from _by_decoder(texts, hypotheses, several=several, model=model)
    else:
        raise CannotDo(
            "labels of your own need a model for natural-language inference (one of its labels is entailment) or a "
            f"decoder; this one has the labels {', '.join(model.labels) or 'none'}",
            field="labels",
        )


def _by_entailment(texts: Sequence[str], hypotheses: Sequence[str], *, several: bool, model: Model) -> Iterator[Tensor]:
    """Softmax of entailment over the labels; or, for each label, of entailment against contradiction."""
    entails = next(at for at, label in enumerate(model.labels) if label.lower().startswith("entail"))
    others = (at for at, label in enumerate(model.labels) if label.lower().startswith("contra"))
    contradicts = next(others, -1 if entails == 0 else 0)
    for some in split_chunks(texts):
        values = read_pairs([(text, one) for text in some for one in hypotheses], model=model)[0]
        scores = values.view(len(some), len(hypotheses), -1)
        if several:
            yield from scores[..., [contradicts, entails]].softmax(-1)[..., 1]
        else:
            yield from scores[..., entails].softmax(-1)


def _by_decoder(texts: Sequence[str], hypotheses: Sequence[str], *, several: bool, model: Model) -> Iterator[Tensor]:
    task, names = DecideTask(), tuple(hypotheses)
    if several:
        asked = [
            DecideQuestion(text, "noul", (f"Is this right? {one}",), ("yes", "no")) for text in texts for one in names
        ]
        found = (answer.noul or 0.0 for answer in task.run(asked, model=model))
        for _ in texts:
            yield torch.tensor([next(found) for _ in names], dtype=torch.float64)
        return
    asked = [DecideQuestion(text, "choice", ("What fits this text best?",), names, names) for text in texts]
    for answer in task.run(asked, model=model):
        yield torch.tensor(list(answer.probabilities.values()), dtype=torch.float64)
