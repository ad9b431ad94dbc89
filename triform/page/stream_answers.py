"""Answers about the residual stream: its growth, what the head would predict after each layer, a word in contexts."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from triform.errors import InputError
from triform.inspect import module_paths
from triform.inspect.compare_views import compare_contexts
from triform.inspect.module_paths import StackName
from triform.page import requests
from triform.page.rounding import check_count, check_window, count_positions, round_to_lists
from triform.page.session import InspectionSession, stream_modules

MAX_LENS_TOKENS = 32  # each layer of each costs a head over the whole vocabulary


def answer_stream(session: InspectionSession, request: requests.StreamRequest) -> dict[str, Any]:
    """What each part of each block adds to the residual stream."""
    module_paths.check_stack(session.model.network, request.stack)
    view = session.view(request.run, need=stream_modules(request.stack))
    tokens = check_window(request.tokens, len(view.texts[request.stack].ids), "tokens")
    layers = session.model.spec.stacks[request.stack].layers
    check_count(
        (layers, "layers"),
        (count_positions(tokens), "tokens"),
        (6, "entries"),
        narrow="request fewer tokens [from, to]",
    )
    walk = view.stream(stack=request.stack, positions=tokens)
    shares = [view.shares(layer, stack=request.stack, positions=tokens) for layer in range(layers)]
    return {
        "places": list(walk.axes[0].labels),
        "lengths": round_to_lists(walk.lengths().values),
        "degrees": round_to_lists(view.angles(stack=request.stack, positions=tokens).values),
        "entries": list(shares[0].axes[0].labels),
        "shares": round_to_lists(np.stack([layer.values for layer in shares])),
        "error": max(layer.error or 0.0 for layer in shares),
    }


def answer_lens(session: InspectionSession, request: requests.LensRequest) -> dict[str, Any]:
    """The logit lens: the most likely token at each layer and position."""
    view = session.view(request.run, need=stream_modules(list(session.model.spec.stacks)[-1]))
    tokens = check_window(request.tokens, len(view.predicted_text.ids), "tokens")
    if count_positions(tokens) > MAX_LENS_TOKENS:
        raise InputError(
            f"a lens over {count_positions(tokens)} tokens is too large; request at most {MAX_LENS_TOKENS}"
        )
    result = view.lens(positions=tokens)
    words = [] if result.words is None else result.words.tolist()
    return {"places": list(result.axes[0].labels), "words": words, "chances": round_to_lists(result.values)}


def answer_contexts(session: InspectionSession, request: requests.ContextsRequest) -> dict[str, Any]:
    """One word in several texts: its direction and its length, from the embedding to the last layer."""
    stack = cast(
        StackName, next(iter(session.model.spec.stacks))
    )  # an encoder-decoder reads the texts with its encoder
    need = stream_modules(stack)
    result = [
        (session.view(requests.PageRun(text=text), need=need), find_word(session, text, request.word))
        for text in request.texts
    ]
    walks = [view.stream(stack=stack)[:, at] for view, at in result]
    x = np.stack([walk.values for walk in walks], axis=1).astype(np.float64)  # [places, texts, D]
    angles = compare_contexts(result, stack=stack)
    check_count((x.shape[0], "layers"), (len(result) ** 2, "pairs"), narrow="give fewer texts")
    return {
        "places": list(angles.axes[0].labels),
        "texts": list(request.texts),
        "tokens": [view.texts[stack].labels[at] for view, at in result],
        "at": [at for _, at in result],
        "degrees": round_to_lists(angles.values),
        "lengths": round_to_lists(np.linalg.norm(x, axis=-1)),
        "plane": [round_to_lists(project_to_plane(vectors)) for vectors in x],
        "causal": stack == "decoder",
    }


def find_word(session: InspectionSession, text: str, word: str) -> int:
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


def project_to_plane(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Projects vectors to a plane through the origin: their mean direction, and the direction of largest spread."""
    mean = vectors.mean(axis=0)
    first = mean / (np.linalg.norm(mean) or 1.0)
    rest = vectors - np.outer(vectors @ first, first)
    second = np.linalg.svd(rest)[2][0]
    return np.stack((vectors @ first, vectors @ second), axis=1)
