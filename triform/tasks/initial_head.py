"""What a new head begins with: logistic regression on the vectors it will read, everything below it frozen.

    scores = Wᵀ act(dense x) + b, where dense is 1/√D of the identity at first, so that tanh is nearly linear

Owns how a head is made ready for such a fit and how the fit is written into it. Refuses to know runs and files.
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from triform.core.output_heads import ReadHead
from triform.core.texts import Text
from triform.data.chunks import split_chunks
from triform.data.folds import assign_folds
from triform.data.row_sample import sample_rows
from triform.data.rows import LabelledRow
from triform.metrics import choose_labels, make_label_matrix
from triform.model import Model
from triform.pooling import Pooling
from triform.spec import Classify as Head
from triform.tasks import logistic_regression
from triform.tasks.averaging_block import add_averaging_block, can_average
from triform.tasks.embed import EmbedTask
from triform.tasks.encoder_batches import Reader, average_windows, split_into_windows
from triform.tasks.logistic_regression import LinearFit

NORMALISED_MEAN = Pooling("mean", normalise=True)
MAX_FIT_ROWS = 10_000  # more would take longer and change little: the steps that follow see all rows


@torch.no_grad()
def prepare_head(model: Model, *, base: Model, seed: int) -> Model:
    """`model` has the task's head and the body of `base`. A base that classifies keeps the vectors it has learned."""
    known = isinstance(base.spec.head, Head)
    if not known and can_average(model.spec):
        model = add_averaging_block(model, seed=seed)
    older, width = base.network.state_dict(), model.spec.width
    identity = {"readout.dense.weight": torch.eye(width) / math.sqrt(width), "readout.dense.bias": torch.zeros(width)}
    for path, numbers in model.network.state_dict().items():
        if path in identity:
            numbers.copy_(older[path] if known and path in older else identity[path])
    return model


def fit_head(rows: Sequence[LabelledRow], *, model: Model, several: bool) -> None:
    """Writes the fit into the head of the model's network."""
    vectors = read_vectors([row.text for row in rows], model=model)
    head = model.spec.head
    bias = isinstance(head, Head) and head.bias
    _write(fit_vectors(vectors, rows, names=model.labels, several=several, bias=bias), model)


def fit_vectors(
    vectors: Tensor, rows: Sequence[LabelledRow], *, names: Sequence[str], several: bool, bias: bool = True
) -> LinearFit:
    """A linear fit from vectors to labels."""
    right = make_label_matrix([row.labels for row in rows], names)
    scale = float(vectors.norm(dim=-1).mean()) or 1.0  # so that C means the same for every model
    folds = assign_folds(rows, folds=logistic_regression.FOLDS)
    found = logistic_regression.fit(vectors / scale, right, several=several, folds=folds, bias=bias)
    return found._replace(weight=found.weight / scale)


@torch.no_grad()
def _write(found: LinearFit, model: Model) -> None:
    numbers = model.network.state_dict()
    numbers["readout.out.weight"].copy_(found.weight)
    if "readout.out.bias" in numbers:
        numbers["readout.out.bias"].copy_(found.bias)


def read_vectors(texts: Sequence[str], *, model: Model) -> Tensor:
    """[texts, D], on the CPU: what the last matrix of the head reads; of a long text the mean over its windows."""
    read = make_head_reader(model)
    found = [
        average_windows(split_into_windows(some, model=model), model=model, read=read).cpu()
        for some in split_chunks(texts)
    ]
    return torch.cat(found).double()


def make_head_reader(model: Model) -> Callable[[Reader, Text], Tensor]:
    """A function that gives the vectors which a head's last matrix reads."""
    readout = cast(ReadHead, model.network.readout)

    def read(network: Reader, text: Text) -> Tensor:
        return readout.act(readout.dense(network.pick(text, network.hidden(text))))

    return read


# --- the baseline of the same kind ----------------------------------------------------------------------------------


def answer_frozen(texts: Sequence[str], *, train: Sequence[LabelledRow], base: Model) -> list[tuple[str, ...]]:
    """What a linear fit on the vectors of the base, as its folder means them, says of the texts."""
    some = sample_rows(train, most=MAX_FIT_ROWS)
    names = tuple(sorted({label for row in some for label in row.labels}))
    several = any(len(row.labels) != 1 for row in some)
    fitted = fit_vectors(read_frozen_vectors([row.text for row in some], base=base), some, names=names, several=several)
    return choose_labels(fitted.scores(read_frozen_vectors(texts, base=base)), names, several=several)


def read_frozen_vectors(texts: Sequence[str], *, base: Model) -> Tensor:
    """[texts, D]: of a decoder the hidden state of the last token."""
    if base.spec.form == "encoder":
        model = base.replace(pooling=base.pooling or NORMALISED_MEAN)
        return torch.cat([EmbedTask().read(some, model=model)[0] for some in split_chunks(texts)]).double()
    found = [
        average_windows(split_into_windows(some, model=base), model=base, read=_last) for some in split_chunks(texts)
    ]
    return torch.cat(found).cpu().double()


def _last(network: Reader, text: Text) -> Tensor:
    return text.last(network.hidden(text))
