"""Answers about the residual stream: its growth, what the head would predict after each layer, a word in contexts."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from triform.errors import InputError
from triform.inspect import module_paths
from triform.inspect.compare_views import in_contexts
from triform.inspect.module_paths import StackName
from triform.page import requests
from triform.page.rounding import check, listed, size, windowed
from triform.page.session import Looker, streaming

MAX_LENS_TOKENS = 32  # each layer of each costs a head over the whole vocabulary


def stream(session: Looker, request: requests.Stream) -> dict[str, Any]:
    module_paths.stack_named(session.model.network, request.stack)
    view = session.view(request.run, need=streaming(request.stack))
    tokens = windowed(request.tokens, len(view.texts[request.stack].ids), "tokens")
    layers = session.model.spec.stacks[request.stack].layers
    check((layers, "layers"), (size(tokens), "tokens"), (6, "entries"), narrow="request fewer tokens [from, to]")
    walk = view.stream(stack=request.stack, positions=tokens)
    shares = [view.shares(layer, stack=request.stack, positions=tokens) for layer in range(layers)]
    return {
        "places": list(walk.axes[0].labels),
        "lengths": listed(walk.lengths().values),
        "degrees": listed(view.angles(stack=request.stack, positions=tokens).values),
        "entries": list(shares[0].axes[0].labels),
        "shares": listed(np.stack([layer.values for layer in shares])),
        "error": max(layer.error or 0.0 for layer in shares),
    }


def lens(session: Looker, request: requests.Lens) -> dict[str, Any]:
    view = session.view(request.run, need=streaming(list(session.model.spec.stacks)[-1]))
    tokens = windowed(request.tokens, len(view.answering.ids), "tokens")
    if size(tokens) > MAX_LENS_TOKENS:
        raise InputError(f"a lens over {size(tokens)} tokens is too large; request at most {MAX_LENS_TOKENS}")
    result = view.lens(positions=tokens)
    words = [] if result.words is None else result.words.tolist()
    return {"places": list(result.axes[0].labels), "words": words, "chances": listed(result.values)}


def contexts(session: Looker, request: requests.Contexts) -> dict[str, Any]:
    """One word in several texts: its direction and its length, from the embedding to the last layer."""
    stack = cast(
        StackName, next(iter(session.model.spec.stacks))
    )  # an encoder-decoder reads the texts with its encoder
    need = streaming(stack)
    result = [
        (session.view(requests.Run(text=text), need=need), place(session, text, request.word)) for text in request.texts
    ]
    walks = [view.stream(stack=stack)[:, at] for view, at in result]
    x = np.stack([walk.values for walk in walks], axis=1).astype(np.float64)  # [places, texts, D]
    angles = in_contexts(result, stack=stack)
    check((x.shape[0], "layers"), (len(result) ** 2, "pairs"), narrow="give fewer texts")
    return {
        "places": list(angles.axes[0].labels),
        "texts": list(request.texts),
        "tokens": [view.texts[stack].labels[at] for view, at in result],
        "at": [at for _, at in result],
        "degrees": listed(angles.values),
        "lengths": listed(np.linalg.norm(x, axis=-1)),
        "plane": [listed(flat(vectors)) for vectors in x],
        "causal": stack == "decoder",
    }


def place(session: Looker, text: str, word: str) -> int:
    """The last token of the word's first occurrence: in a decoder it has seen the whole word."""
    tokenizer = session.model.tokenizer
    if tokenizer is None:
        raise InputError("this model has no tokenizer, so it has no words to compare")
    start = text.lower().find(word.lower())
    if start < 0:
        raise InputError(f"{word!r} is not in {text[:60]!r}; give texts that contain the word")
    end = start + len(word)
    touching = [at for at, (a, b) in enumerate(tokenizer.encode(text).offsets) if a < end and b > start and a < b]
    if not touching:
        raise InputError(f"no token of {text[:60]!r} belongs to {word!r}")
    return touching[-1]


def flat(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Projects vectors to a plane through the origin: their mean direction, and the direction of largest spread."""
    mean = vectors.mean(axis=0)
    first = mean / (np.linalg.norm(mean) or 1.0)
    rest = vectors - np.outer(vectors @ first, first)
    second = np.linalg.svd(rest)[2][0]
    return np.stack((vectors @ first, vectors @ second), axis=1)
