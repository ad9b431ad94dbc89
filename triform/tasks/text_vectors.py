"""One vector per text, from the vectors of its tokens: pooled, through the folder's layers, perhaps shortened.

Refuses to know prompts and where texts come from.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from triform.core.texts import Text
from triform.errors import InputError
from triform.model import Model
from triform.pooling import Pooling, PoolingKind
from triform.precision import at_least_float32
from triform.tasks.encoder_batches import Read, Reader, TextWindows, average_windows
from triform.train.objectives import mean_vectors, split_by_text

PoolTokens: TypeAlias = Callable[[Tensor, int], Tensor]  # [T, D] and the tokens that do not count → [D]

MEAN_POOLING = Pooling("mean", normalise=False)


def pool_weighted(x: Tensor, skip: int) -> Tensor:
    """Σ (t + 1) x_t / Σ (t + 1)"""
    weights = torch.arange(skip + 1, len(x) + 1, dtype=x.dtype, device=x.device)[:, None]
    return (x[skip:] * weights).sum(0) / weights.sum()


POOLS: dict[PoolingKind, PoolTokens] = {
    "mean": lambda x, skip: x[skip:].mean(0),
    "cls": lambda x, skip: x[skip],
    "max": lambda x, skip: x[skip:].amax(0),
    "lasttoken": lambda x, skip: x[-1],
    "weightedmean": pool_weighted,
    "mean_sqrt_len_tokens": lambda x, skip: x[skip:].sum(0) / (len(x) - skip) ** 0.5,
}


def make_reader(pooling: Pooling, *, skip: int = 0) -> Read:
    """Reads pooled vectors, [B, D]; the first `skip` tokens of each text do not count."""
    kinds = (pooling.kind, *pooling.further_kinds)

    def read_pooled(network: Reader, text: Text) -> Tensor:
        x = network.hidden(text)
        if kinds == ("mean",) and not skip:
            return mean_vectors(text, x)
        each = [at_least_float32(one) for one in split_by_text(text, x)]
        # a text that was cut within its prompt keeps its last token
        parts = [[POOLS[kind](one, min(skip, len(one) - 1)) for kind in kinds] for one in each]
        return torch.stack([torch.cat(some) for some in parts])

    return read_pooled


def get_pooling(model: Model) -> Pooling:
    """How the model's folder pools; the mean where it does not say."""
    return model.pooling or MEAN_POOLING


def get_width(model: Model) -> int:
    """Numbers of the model's embeddings."""
    return get_pooling(model).width(model.spec.width)


def get_full_width(model: Model) -> int:
    """Numbers of the model's vectors before they are shortened."""
    return get_pooling(model).full_width(model.spec.width)


def check_dimensions(dimensions: int | None, *, model: Model) -> None:
    """Refuses more numbers than a vector has."""
    full = get_full_width(model)
    if dimensions is not None and not 1 <= dimensions <= full:
        raise InputError(
            f"dimensions={dimensions} is out of range: this model's vectors have {full} numbers; use 1 to {full}",
            field="dimensions",
        )


def vectors_of_windows(
    windows: list[TextWindows], *, model: Model, skip: int = 0, dimensions: int | None = None
) -> Tensor:
    """[texts, D], on the CPU; of a text in several windows their mean."""
    check_dimensions(dimensions, model=model)
    pooling = get_pooling(model)
    pooled = average_windows(windows, model=model, read=make_reader(pooling, skip=skip))
    return pooling.apply_layers(pooled.cpu(), dimensions=dimensions)
