"""One word in several texts: its direction and its length, from the embedding to the last layer."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from triform.errors import InputError
from triform.inspect.compare_views import in_contexts
from triform.inspect.module_paths import StackName
from triform.page.requests import Contexts, Run
from triform.page.rounding import check, listed
from triform.page.session import Looker, streaming


def contexts(looker: Looker, ask: Contexts) -> dict[str, Any]:
    stack = cast(StackName, next(iter(looker.model.spec.stacks)))  # a pair reads these texts with its encoder
    need = streaming(stack)
    found = [(looker.view(Run(text=text), need=need), place(looker, text, ask.word)) for text in ask.texts]
    walks = [view.stream(stack=stack)[:, at] for view, at in found]
    x = np.stack([walk.values for walk in walks], axis=1).astype(np.float64)  # [places, texts, D]
    angles = in_contexts(found, stack=stack)
    check((x.shape[0], "places"), (len(found) ** 2, "pairs"), narrow="give fewer texts")
    return {
        "places": list(angles.axes[0].labels),
        "texts": list(ask.texts),
        "tokens": [view.texts[stack].labels[at] for view, at in found],
        "at": [at for _, at in found],
        "degrees": listed(angles.values),
        "lengths": listed(np.linalg.norm(x, axis=-1)),
        "plane": [listed(flat(vectors)) for vectors in x],
        "causal": stack == "decoder",
    }


def place(looker: Looker, text: str, word: str) -> int:
    """The last token of the word's first occurrence: in a decoder the one that has seen all of the word."""
    tokenizer = looker.model.tokenizer
    if tokenizer is None:
        raise InputError("this model has no tokenizer, so there are no words to follow")
    start = text.lower().find(word.lower())
    if start < 0:
        raise InputError(f"{word!r} is not in {text[:60]!r}; write texts that have the word")
    end = start + len(word)
    touching = [at for at, (a, b) in enumerate(tokenizer.encode(text).offsets) if a < end and b > start and a < b]
    if not touching:
        raise InputError(f"no token of {text[:60]!r} could be found for {word!r}")
    return touching[-1]


def flat(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Vectors seen in a plane through the origin: along their mean, and along where they part most."""
    mean = vectors.mean(axis=0)
    first = mean / (np.linalg.norm(mean) or 1.0)
    rest = vectors - np.outer(vectors @ first, first)
    second = np.linalg.svd(rest)[2][0]
    return np.stack((vectors @ first, vectors @ second), axis=1)
